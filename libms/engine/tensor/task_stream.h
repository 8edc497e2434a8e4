// Streams whose tasks the host runs in order. Communicators between threads and processes issue their operations to
// these.
#pragma once

#include <memory>

#include "tensor/cpu_kernels.h"
#include "tensor/stream.h"

namespace ms::tensor {

class CpuStreamCore;  // the queue; shared with its wakers

// Notifies a stream that the task at its head may have progressed. A value: it may outlive the stream.
class CpuWaker {
 public:
  explicit CpuWaker(std::shared_ptr<CpuStreamCore> core) : core_(std::move(core)) {}
  void wake() const;  // from any thread

 private:
  std::shared_ptr<CpuStreamCore> core_;
};

// An operation that completes later, such as a communicator's. A worker calls step() when everything before it on the
// stream is done, or has been issued if a GPU does it, and again after each wake-up of the stream; it may call it more
// often than needed. step() must be short or do this rank's share of the work, and must never block: it runs on a
// worker. If it throws, the stream is poisoned.
class AsyncTask {
 public:
  virtual ~AsyncTask() = default;
  virtual bool step(const CpuWaker& waker) = 0;          // true when complete
  virtual void cancel(const Error& cause) noexcept = 0;  // the stream is poisoned, it will not run: notify peers
};

// Copies and reductions that tasks do on memory of their own rank and of other ranks in this process.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  virtual void copy(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
  // Copies to the host at once, after everything issued so far.
  virtual void read(void* to, const std::byte* from, std::int64_t bytes) = 0;
  // out = in[0] + in[1] + ... (or the maximum) of n elements, in this order; bf16 is summed in f32. out may be one of
  // the inputs.
  virtual void reduce(ReduceKind kind, DType dtype, std::byte* out, const void* const* in, int count,
                      std::int64_t n) = 0;

  // is_immediate() tells whether copy() and reduce() have done their work when they return. If they only issue it,
  // mark() returns a point behind everything issued so far, and come_after() makes everything issued later wait for
  // such a point. If they are immediate, mark() returns null and come_after() does nothing.
  virtual bool is_immediate() const = 0;
  virtual std::shared_ptr<EventState> mark() = 0;
  virtual void come_after(const EventState& mark) = 0;
};

class TaskStream : public Stream {
 public:
  using Stream::Stream;
  virtual void submit_async(std::shared_ptr<AsyncTask> task) = 0;
  virtual PeerMemory& peer_memory() = 0;  // for step() of its tasks
};

}  // namespace ms::tensor
