// Streams whose work the host puts in order, task by task: what communicators between threads and processes issue to.
#pragma once

#include <memory>

#include "tensor/cpu_kernels.h"
#include "tensor/stream.h"

namespace ms::tensor {

class CpuStreamCore;  // the queue; shared with those who may wake it

// Tells a stream that the task at its head may have progressed. A value: it may outlive the stream.
class CpuWaker {
 public:
  explicit CpuWaker(std::shared_ptr<CpuStreamCore> core) : core_(std::move(core)) {}
  void wake() const;  // from any thread

 private:
  std::shared_ptr<CpuStreamCore> core_;
};

// An operation that completes later: a communicator's. step() is called by a worker when everything before it on the
// stream is done, or has been issued where a GPU does it, and again after each wake of the stream; it may be called
// more often than needed. It must be short or do this rank's share of the work, and never block: it runs on a worker. A
// throw poisons the stream.
class AsyncTask {
 public:
  virtual ~AsyncTask() = default;
  virtual bool step(const CpuWaker& waker) = 0;          // true when complete
  virtual void cancel(const Error& cause) noexcept = 0;  // will never run, the stream is poisoned: tell the peers
};

// What tasks do with memory of their own rank and of other ranks in this process.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  virtual void copy(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
  // out = in[0] + in[1] + ... (or the maximum) of n elements, in this order, in f32 where they are bf16. out may be one
  // of them.
  virtual void reduce(ReduceKind kind, DType dtype, std::byte* out, const void* const* in, int count,
                      std::int64_t n) = 0;

  // Whether the calls above have done their work when they return. Where they have only issued it: a point behind all
  // that was issued, and what makes everything issued later come after somebody's point. (Both do nothing where work is
  // done at once, whose point is null.)
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
