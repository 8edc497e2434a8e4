// CPU streams: queues drained by one fixed pool of threads per process. A stream that must wait is parked; a thread
// never is. All ranks that are threads of this process share the pool.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "tensor/cpu_matmul.h"
#include "tensor/task_stream.h"

namespace ms::tensor {

// The worker threads. `workers` run streams; each lets an op use `threads_per_op` threads (tensor/team.h). Outlives its
// streams.
class CpuPool {
 public:
  struct Size {
    int workers;
    int threads_per_op;
  };
  // Returns the size for `ranks_here` ranks in this process, of `ranks_on_node` on a node with `cores` usable cores.
  // `threads` above 0: as many, shared by the ranks of this process, whatever the cores.
  static Size size_for(int cores, int ranks_here, int ranks_on_node, int threads = 0);
  // Returns the threads that a process is to have: `key` if above 0, else the first number of OMP_NUM_THREADS, if that
  // is set, else 0: as many as it has cores. Throws Error("run.cpu_threads", user).
  static int threads_asked(std::int64_t key, const char* omp_num_threads);
  // Returns the number of cores in this process's affinity mask.
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

class CpuStream final : public TaskStream, PeerMemory {
 public:
  CpuStream(Device& device, CpuPool& pool, MatmulCache& matmuls, std::string name, int index, StreamKind kind);
  ~CpuStream() override;  // waits until the stream is drained

  void submit_async(std::shared_ptr<AsyncTask> task) override;
  PeerMemory& peer_memory() override { return *this; }
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
  // This process's memory: operations complete at once.
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void reduce(ReduceKind kind, DType dtype, std::byte* out, const void* const* in, int count, std::int64_t n) override {
    cpu_kernels().reduce(kind, dtype, out, in, count, n);
  }
  bool is_immediate() const override { return true; }
  std::shared_ptr<EventState> mark() override { return nullptr; }
  void come_after(const EventState&) override {}

  std::shared_ptr<CpuStreamCore> core_;
  trace::Ticket next_ = trace::kNoTicket;  // of the next item submitted
};

}  // namespace ms::tensor
