// CPU streams: queues drained by one fixed pool of threads per process. A stream that must wait is parked; a thread
// never is. The pool is shared by all ranks that are threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/cpu_matmul.h"
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
// stream is done, and again after each wake of the stream; it may be called more often than needed. It must be short or
// do this rank's share of the work, and never block: it runs on a worker. A throw poisons the stream.
class AsyncTask {
 public:
  virtual ~AsyncTask() = default;
  virtual bool step(const CpuWaker& waker) = 0;          // true when complete
  virtual void cancel(const Error& cause) noexcept = 0;  // will never run, the stream is poisoned: tell the peers
};

// The threads. `workers` run streams; each lets an op use `threads_per_op` threads (OpenMP, oneDNN's included).
// Outlives its streams.
class CpuPool {
 public:
  struct Size {
    int workers;
    int threads_per_op;
  };
  // For `ranks_here` ranks in this process, of `ranks_on_node` on a node where `cores` cores may be used.
  static Size size_for(int cores, int ranks_here, int ranks_on_node);
  // Cores that this process may run on (its affinity mask).
  static int usable_cores();

  explicit CpuPool(Size size);
  ~CpuPool();
  CpuPool(const CpuPool&) = delete;
  CpuPool& operator=(const CpuPool&) = delete;

  Size size() const { return size_; }

 private:
  friend class CpuStreamCore;
  class Impl;
  Size size_;
  std::unique_ptr<Impl> impl_;
};

class CpuStream final : public Stream {
 public:
  CpuStream(Device& device, CpuPool& pool, MatmulCache& matmuls, std::string name, int index, StreamKind kind);
  ~CpuStream() override;  // waits until the stream is drained

  void submit_async(std::shared_ptr<AsyncTask> task);
  // Runs `function` on a worker, in order.
  void call(std::function<void()> function);
  // Adds the seconds spent in ops so far, by class.
  void add_op_seconds(std::vector<double>& sums) const;

 protected:
  void do_submit(const Op& op) override;
  std::shared_ptr<EventState> do_record() override;
  void do_wait(const Event& event) override;
  void do_trace_next(trace::Ticket ticket) override { next_ = ticket; }
  void do_section(trace::Ticket ticket, bool begins) override;

 private:
  std::shared_ptr<CpuStreamCore> core_;
  trace::Ticket next_ = trace::kNoTicket;  // of what is submitted next
};

}  // namespace ms::tensor
