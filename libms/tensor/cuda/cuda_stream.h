// CUDA streams behind the seam. Events are CUDA events without timing, except those that a recorder or the table of
// seconds wants. The host meets no stream but in Event::synchronize().
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tensor/cuda/cuda_ops.h"
#include "tensor/stream.h"

namespace ms::tensor {

class CudaDevice;

// Why everything on a device has failed, from outside of it: the world stopped, and streams that waited for a peer were
// cut loose. The first cause stays. Thread-safe.
class DeviceFailure {
 public:
  void set(const Error& cause) {
    const std::lock_guard lock(mutex_);
    if (!cause_) cause_ = std::make_shared<const Error>(cause);
  }
  std::shared_ptr<const Error> get() const {
    const std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Error> cause_;
};

// CUDA events that are used again and again: making one costs more than recording it.
class CudaEventPool {
 public:
  explicit CudaEventPool(bool timed) : timed_(timed) {}
  ~CudaEventPool();
  CudaEventPool(const CudaEventPool&) = delete;
  CudaEventPool& operator=(const CudaEventPool&) = delete;

  cudaEvent_t take();
  void give_back(cudaEvent_t event);

 private:
  bool timed_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_, all_;
};

class CudaStream final : public Stream {
 public:
  CudaStream(CudaDevice& device, std::string name, int index, StreamKind kind);
  ~CudaStream() override;  // waits until it is drained

  cudaStream_t handle() const { return stream_; }
  int gpu() const;
  const std::shared_ptr<DeviceFailure>& failure() const;
  // `issue` puts something on CUDA's stream; with trace_next() it is that event.
  void launch(const std::function<void(cudaStream_t)>& issue);
  // A point of this stream, for those who ask for it without ordering anything by it: unseen by the race check.
  Event point() { return Event(do_record(), {}); }
  // What is issued later comes after an event of any stream of CUDA's. Unlike wait() it is not seen by the race check.
  void come_after(const EventState& event);
  cudaEvent_t mark_time();                                 // for finished(); nullptr where the stream is poisoned
  void finished(cudaEvent_t begin, trace::Ticket ticket);  // an event of the recorder that ends here
  void throw_if_poisoned() const;

  // Public for those who put what they issue in an order of their own.
  void do_submit(const Op& op) override;
  std::shared_ptr<EventState> do_record() override;
  void do_wait(const Event& event) override;
  void do_trace_next(trace::Ticket ticket) override { next_ = ticket; }
  void do_section(trace::Ticket ticket, bool begins) override;

 private:
  // Runs `launch`, alone on its device, unless the stream is poisoned; what it throws poisons it: all that is issued
  // later is skipped.
  template <class F>
  void issue(F&& launch);
  void poison(const Error& cause);

  CudaDevice& cuda_;
  cudaStream_t stream_ = nullptr;
  CudaScratch scratch_;
  std::shared_ptr<const Error> poison_;
  trace::Ticket next_ = trace::kNoTicket;
};

}  // namespace ms::tensor
