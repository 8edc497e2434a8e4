#include "tensor/cuda/cuda_stream.h"

#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/op_checks.h"

namespace ms::tensor {
namespace {

class CudaEvent final : public EventState {
 public:
  CudaEvent(int gpu, std::shared_ptr<CudaEventPool> pool, cudaEvent_t event, std::shared_ptr<DeviceFailure> failure,
            std::shared_ptr<const Error> poison)
      : gpu_(gpu), pool_(std::move(pool)), event_(event), failure_(std::move(failure)), poison_(std::move(poison)) {}
  ~CudaEvent() override { pool_->release(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  // Called from any thread. A thread without a current GPU would create a context on the node's first one, some hundred
  // MB.
  bool ready() const override {
    cudaSetDevice(gpu_);
    return has_passed(event_);
  }
  void synchronize() override {
    cudaSetDevice(gpu_);
    const cudaError_t code = cudaEventSynchronize(event_);
    if (const auto cause = failure_->get()) throw *cause;
    if (poison_) throw *poison_;
    check(code, "waiting for the GPU");
  }
  cudaEvent_t handle() const { return event_; }
  const std::shared_ptr<const Error>& poison() const { return poison_; }

 private:
  int gpu_;
  std::shared_ptr<CudaEventPool> pool_;  // an event may outlive its device
  cudaEvent_t event_;
  std::shared_ptr<DeviceFailure> failure_;
  std::shared_ptr<const Error> poison_;
};

}  // namespace

CudaEventPool::~CudaEventPool() {
  for (const cudaEvent_t event : all_) cudaEventDestroy(event);
}
cudaEvent_t CudaEventPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, timed_ ? cudaEventDefault : cudaEventDisableTiming), "making an event");
    all_.push_back(event);
    return event;
  }
  const cudaEvent_t event = free_.back();
  free_.pop_back();
  return event;
}
void CudaEventPool::release(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

CudaStream::CudaStream(CudaDevice& device, std::string name, int index, StreamKind kind)
    : Stream(device, std::move(name), index), cuda_(device) {
  int least = 0, most = 0;  // priorities: the most urgent is the smallest number
  check(cudaDeviceGetStreamPriorityRange(&least, &most), "asking for priorities of streams");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, kind == StreamKind::comm ? most : least),
        "making a stream");
  scratch_.belong_to(stream_, device.has_pools());
}
CudaStream::~CudaStream() {
  scratch_.free();
  cudaStreamSynchronize(stream_);  // errors were reported to those who waited
  cudaStreamDestroy(stream_);
}

void CudaStream::poison(const Error& cause) {
  if (!poison_) poison_ = std::make_shared<const Error>(cause);
}

template <class F>
void CudaStream::issue(F&& launch) {
  if (poison_) return;
  if (const auto cause = cuda_.failure()->get()) return poison(*cause);
  const std::lock_guard lock(cuda_.mutex());
  try {
    check(cudaSetDevice(cuda_.gpu()), "selecting the GPU");  // of the calling thread
    launch();
  } catch (const Error& error) { poison(error); }
}

void CudaStream::do_submit(const Op& op) {
  const trace::Ticket ticket = std::exchange(next_, trace::kNoTicket);
  issue([&] {
    check_op(op);
    if (!cuda_.times_ops() && ticket == trace::kNoTicket) return cuda_.ops().run(op, stream_, scratch_);
    // An op that is issued before the last one has ended begins where that ends: one event instead of two.
    const bool follows = last_end_ != nullptr && !has_passed(last_end_.get());
    auto begin = follows ? last_end_ : cuda_.mark(stream_);
    cuda_.ops().run(op, stream_, scratch_);
    last_end_ = cuda_.mark(stream_);
    cuda_.finished({.begin = std::move(begin),
                    .end = last_end_,
                    .stream = index(),
                    .op_class = static_cast<int>(op_class(op)),
                    .ticket = ticket});
  });
}

std::shared_ptr<EventState> CudaStream::do_record() {
  check(cudaSetDevice(cuda_.gpu()),
        "selecting the GPU");  // an event belongs to the GPU that is current when it is created
  const cudaEvent_t event = cuda_.events()->take();
  issue([&] { check(cudaEventRecord(event, stream_), "recording an event"); });
  return std::make_shared<CudaEvent>(cuda_.gpu(), cuda_.events(), event, cuda_.failure(), poison_);
}

void CudaStream::do_wait(const Event& event) { come_after(*event.state()); }

void CudaStream::come_after(const EventState& event) {
  const auto* state = dynamic_cast<const CudaEvent*>(&event);
  MS_ASSERT(state, "stream {} waits for an event of another device", name());
  if (state->poison()) return poison(*state->poison());
  last_end_.reset();
  issue([&] { check(cudaStreamWaitEvent(stream_, state->handle(), 0), "waiting for an event"); });
}

std::shared_ptr<CUevent_st> CudaStream::mark_time() {
  std::shared_ptr<CUevent_st> event;
  issue([&] { event = cuda_.mark(stream_); });
  return event;
}
void CudaStream::finished(std::shared_ptr<CUevent_st> begin, trace::Ticket ticket) {
  issue([&] {
    cuda_.finished({.begin = std::move(begin), .end = cuda_.mark(stream_), .stream = index(), .ticket = ticket});
  });
}
int CudaStream::gpu() const { return cuda_.gpu(); }
const std::shared_ptr<DeviceFailure>& CudaStream::failure() const { return cuda_.failure(); }

void CudaStream::launch(const std::function<void(cudaStream_t)>& launch) {
  const trace::Ticket ticket = std::exchange(next_, trace::kNoTicket);
  last_end_.reset();
  issue([&] {
    if (ticket == trace::kNoTicket) return launch(stream_);
    auto begin = cuda_.mark(stream_);
    launch(stream_);
    cuda_.finished({.begin = std::move(begin), .end = cuda_.mark(stream_), .stream = index(), .ticket = ticket});
  });
}
void CudaStream::do_copy_to_host(const Tensor& x) {
  last_end_.reset();
  issue([&] { cuda_.ops().integers().copy(x, stream_); });
}
std::vector<std::int32_t> CudaStream::integers(const Tensor& x) const {
  return cuda_.ops().integers().read(x, stream_);
}
void CudaStream::throw_if_poisoned() const {
  if (poison_) throw *poison_;
}

void CudaStream::do_section(trace::Ticket ticket, bool begins) {
  issue([&] {
    if (begins) {
      cuda_.begin_section(index(), ticket, cuda_.mark(stream_));
    } else {
      cuda_.end_section(index(), ticket, cuda_.mark(stream_));
    }
  });
}

}  // namespace ms::tensor
