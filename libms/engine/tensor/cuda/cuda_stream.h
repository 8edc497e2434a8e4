// CUDA streams. Events are CUDA events without timing, except those that a recorder or the table of op seconds needs.
// The host blocks on a stream only in Event::synchronize().
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

// The cause of a failure of the whole device that came from outside: the world stopped, and streams that waited for a
// peer were aborted. The first cause stays. Thread-safe.
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

// A pool of CUDA events: creating one costs more than recording it.
class CudaEventPool {
 public:
  explicit CudaEventPool(bool timed) : timed_(timed) {}
  ~CudaEventPool();
  CudaEventPool(const CudaEventPool&) = delete;
  CudaEventPool& operator=(const CudaEventPool&) = delete;

  cudaEvent_t take();
  void release(cudaEvent_t event);

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
  // `issue` issues work to the CUDA stream; after trace_next() that work is the traced event.
  void launch(const std::function<void(cudaStream_t)>& issue);
  // Records an event that orders nothing: the race check does not see it.
  Event point() { return Event(do_record(), {}); }
  // Makes later work wait for an event of any CUDA stream. Unlike wait(), the race check does not see it.
  void come_after(const EventState& event);
  std::shared_ptr<CUevent_st> mark_time();  // for finished(); nullptr if the stream is poisoned
  void finished(std::shared_ptr<CUevent_st> begin, trace::Ticket ticket);  // ends an event of the recorder here
  // Returns the elements of an i32 tensor, as copy_to_host() documents. Called by what launch() runs.
  std::vector<std::int32_t> integers(const Tensor& x) const;
  void throw_if_poisoned() const;

  // Public for callers that queue what they issue themselves.
  void do_submit(const Op& op) override;
  std::shared_ptr<EventState> do_record() override;
  void do_wait(const Event& event) override;
  void do_trace_next(trace::Ticket ticket) override { next_ = ticket; }
  void do_section(trace::Ticket ticket, bool begins) override;
  void do_copy_to_host(const Tensor& x) override;

 private:
  // Runs `launch`, holding the device's mutex, unless the stream is poisoned. An exception poisons the stream, which
  // skips all later work.
  template <class F>
  void issue(F&& launch);
  void poison(const Error& cause);

  CudaDevice& cuda_;
  cudaStream_t stream_ = nullptr;
  CudaScratch scratch_;
  std::shared_ptr<const Error> poison_;
  trace::Ticket next_ = trace::kNoTicket;
  std::shared_ptr<CUevent_st> last_end_;  // of the last op, if nothing was issued since
};

}  // namespace ms::tensor
