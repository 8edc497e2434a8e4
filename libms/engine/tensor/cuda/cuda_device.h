// The CUDA device: one rank's view of a GPU. Several ranks of a process may share one.
#pragma once

#include <deque>
#include <map>

#include "tensor/cuda/cuda_stream.h"
#include "tensor/cuda_plugin.h"

namespace ms::tensor {

class CudaDevice final : public Device {
 public:
  static int count();                          // GPUs that the process sees; throws Error("cuda.none")
  static bool enable_peer(int gpu, int peer);  // whether `gpu` can access the memory of `peer` from now on
  // `gpu` counts the GPUs that the process sees. `shared`: with other ranks, or null. Throws Error("cuda.*").
  CudaDevice(int gpu, const CudaOptions& options, SharedPlans* shared = nullptr);
  ~CudaDevice() override;

  std::string_view kind() const override { return "cuda"; }
  std::unique_ptr<Stream> make_stream(std::string name, StreamKind kind) override;
  std::unique_ptr<Memory> allocate(std::size_t bytes, const std::string& what) override;
  std::unique_ptr<Memory> allocate_host(std::size_t bytes, const std::string& what) override;
  std::int64_t prepare(std::span<const Op> ops, MatmulChoices& choices, bool timed) override;
  std::string name() override;
  DeviceMemory memory() override;
  // Returns the seconds of ops that have completed, which are then in the trace too.
  std::vector<double> op_seconds() override {
    const std::lock_guard lock(mutex_);
    collect();
    return seconds_;
  }

  int gpu() const { return gpu_; }
  CudaOps& ops() { return ops_; }
  const std::shared_ptr<CudaEventPool>& events() { return events_; }
  const std::shared_ptr<DeviceFailure>& failure() const { return failure_; }
  // Held while work is issued: several threads may drive the streams of a device.
  std::mutex& mutex() { return mutex_; }

  // Op seconds and traces: two timed events around a span of work, read when both have passed. Spans may share one.
  using TimedEvent = std::shared_ptr<CUevent_st>;  // back to the pool with its last owner
  bool times_ops() const { return times_ops_; }
  bool has_pools() const { return has_pools_; }  // cudaMallocAsync() works
  struct Span {
    TimedEvent begin, end;
    int stream = 0;     // its index
    int op_class = -1;  // for op_seconds(); negative if not an op
    bool is_section = false;
    trace::Ticket ticket = trace::kNoTicket;  // if the span is an event of the recorder
  };
  TimedEvent mark(cudaStream_t stream);  // records a timed event
  void finished(const Span& span);       // both events have been recorded
  void begin_section(int stream, trace::Ticket ticket, TimedEvent begin);
  void end_section(int stream, trace::Ticket ticket, TimedEvent end);

 private:
  // Counts the seconds of completed spans and passes them to the recorder.
  void collect();
  std::int64_t host_ns(const TimedEvent& event);

  int gpu_;
  CudaOps ops_;
  std::mutex mutex_;
  std::shared_ptr<CudaEventPool> events_ = std::make_shared<CudaEventPool>(false);
  CudaEventPool timed_{true};
  std::shared_ptr<DeviceFailure> failure_ = std::make_shared<DeviceFailure>();
  bool times_ops_, has_pools_ = false;
  std::deque<Span> spans_;        // in the order of issue
  std::map<int, Span> sections_;  // by stream: open sections
  std::map<int, double> busy_s_;  // by stream: seconds in ops since its last section ended
  std::vector<double> seconds_;
  // One moment on the GPU's clock and on the host's. Renewed, since an elapsed time is a float of milliseconds.
  cudaStream_t anchor_stream_ = nullptr;
  TimedEvent anchor_;
  std::int64_t anchor_ns_ = 0;
};

}  // namespace ms::tensor
