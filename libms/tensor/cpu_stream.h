// CPU streams: queues drained by one fixed pool of threads per process. A stream that must wait is parked; a thread
// never is. The pool is shared by all ranks that are threads of this process.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "tensor/cpu_matmul.h"
#include "tensor/stream.h"

namespace ms::tensor {

class CpuStream;

// An operation that completes later: a communicator's. step() is called by a worker when everything before it on the
// stream is done, and again after each CpuStream::wake(); it may be called more often than needed. A throw poisons the
// stream. It must be short or do this rank's share of the work: it runs on a worker.
class AsyncTask {
 public:
  virtual ~AsyncTask() = default;
  virtual bool step(CpuStream& stream) = 0;                // true when complete
  virtual void cancel(const Error& cause) noexcept = 0;    // will never run: the stream is poisoned; tell the peers
};

// The threads. `workers` run streams; each lets an op use `threads_per_op` threads (OpenMP, oneDNN's included).
class CpuPool {
 public:
  CpuPool(int workers, int threads_per_op);
  ~CpuPool();
  CpuPool(const CpuPool&) = delete;
  CpuPool& operator=(const CpuPool&) = delete;

  int workers() const { return static_cast<int>(threads_.size()); }
  int threads_per_op() const { return threads_per_op_; }
  // Workers and threads for `ranks_here` ranks in this process, of `ranks_on_node` on a node with `cores` cores.
  static std::pair<int, int> size_for(int cores, int ranks_here, int ranks_on_node);

 private:
  friend class CpuStream;
  void make_ready(CpuStream& stream);
  void work(std::stop_token stop);

  int threads_per_op_;
  std::mutex mutex_;  // guards ready_
  std::condition_variable_any ready_changed_;
  std::deque<CpuStream*> ready_[2];  // comm first, then compute
  std::vector<std::jthread> threads_;
};

class CpuStream final : public Stream {
 public:
  CpuStream(Device& device, CpuPool& pool, MatmulCache& matmuls, std::string name, int index, StreamKind kind);
  ~CpuStream() override;

  void submit_async(std::shared_ptr<AsyncTask> task);
  // Runs `function` on a worker, in order.
  void call(std::function<void()> function);
  // The task at the head of this stream may have progressed. From any thread.
  void wake();
  // Seconds spent in ops, by class.
  void add_op_seconds(std::vector<double>& sums) const;

 protected:
  void do_submit(const Op& op) override;
  std::shared_ptr<EventState> do_record() override;
  void do_wait(const Event& event) override;

 private:
  friend class CpuPool;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::tensor
