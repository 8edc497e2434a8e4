#include "tensor/cuda/shared_gpu.h"

#include "kernels/launch.h"
#include "tensor/cuda/cuda_check.h"

namespace ms::tensor {
namespace {

// An event that is issued when the host has issued it and passed when the GPU has reached it.
class QueuedEvent final : public EventState {
 public:
  bool ready() const override { return issued_.ready() && (!inner_ || inner_->ready()); }
  void synchronize() override {
    issued_.synchronize();  // throws the cause if the stream is poisoned
    inner_->synchronize();
  }
  void set_issued(Event event) { issued_ = std::move(event); }
  void set(std::shared_ptr<EventState> inner) { inner_ = std::move(inner); }
  const Event& issued() const { return issued_; }
  // Call only once issued.
  const EventState& inner() const { return *inner_; }

 private:
  Event issued_;
  std::shared_ptr<EventState> inner_;  // null if the stream was poisoned
};

class QueuedStream final : public TaskStream, PeerMemory {
 public:
  QueuedStream(Device& device, CudaDevice& gpu, CpuDevice& host, std::string name, int index, StreamKind kind)
      : TaskStream(device, name, index),
        gpu_(gpu),
        target_(gpu, name, index, kind),
        queue_stream_(host.make_stream(std::move(name), kind)),
        queue_(dynamic_cast<CpuStream&>(*queue_stream_)) {}

  void submit_async(std::shared_ptr<AsyncTask> task) override {
    const trace::Ticket ticket = std::exchange(next_, trace::kNoTicket);
    if (ticket == trace::kNoTicket) return queue_.submit_async(std::move(task));
    queue_.submit_async(std::make_shared<Timed>(*this, std::move(task), ticket));
  }
  PeerMemory& peer_memory() override { return *this; }

  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) override {
    issue([&] {
      check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, target_.handle()),
            "copying between ranks");
    });
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) override {
    issue([&] {
      check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, target_.handle()),
            "copying from the GPU");
      check(cudaStreamSynchronize(target_.handle()), "waiting for the GPU");
    });
  }
  void reduce(ReduceKind kind, DType dtype, std::byte* out, const void* const* in, int count, std::int64_t n) override {
    MS_ASSERT(count <= kernels::kMostInputs, "{} ranks share a GPU", count);
    issue([&] {
      kernels::reduce(target_.handle(), kind == ReduceKind::max, kernel_type(dtype), out, in, count, n);
      check_launch("adding up over ranks");
    });
  }
  bool is_immediate() const override { return false; }
  std::shared_ptr<EventState> mark() override {
    std::shared_ptr<EventState> event;
    issue([&] { event = target_.do_record(); });
    return event;
  }
  void come_after(const EventState& mark) override {
    issue([&] { target_.come_after(mark); });
  }

 protected:
  void do_submit(const Op& op) override {
    const trace::Ticket ticket = std::exchange(next_, trace::kNoTicket);
    queue_.call([this, op, ticket] {
      issue([&] {
        target_.do_trace_next(ticket);
        target_.do_submit(op);
      });
    });
  }
  std::shared_ptr<EventState> do_record() override {
    auto event = std::make_shared<QueuedEvent>();
    queue_.call([this, event] { event->set(mark()); });
    event->set_issued(queue_.record());
    return event;
  }
  void do_wait(const Event& event) override {
    const auto state = std::dynamic_pointer_cast<QueuedEvent>(event.state());
    MS_ASSERT(state, "stream {} waits for an event of another device", name());
    queue_.wait(state->issued());
    queue_.call([this, state] { come_after(state->inner()); });
  }
  void do_trace_next(trace::Ticket ticket) override { next_ = ticket; }
  void do_section(trace::Ticket ticket, bool begins) override {
    queue_.call([this, ticket, begins] { issue([&] { target_.do_section(ticket, begins); }); });
  }
  void do_copy_to_host(const Tensor& x) override {
    queue_.call([this, x] { issue([&] { target_.do_copy_to_host(x); }); });
  }

 private:
  // A traced task: its event runs from where the GPU reaches it to where the GPU has completed it.
  class Timed final : public AsyncTask {
   public:
    Timed(QueuedStream& stream, std::shared_ptr<AsyncTask> task, trace::Ticket ticket)
        : stream_(stream), task_(std::move(task)), ticket_(ticket) {}
    bool step(const CpuWaker& waker) override {
      if (begin_ == nullptr) stream_.issue([&] { begin_ = stream_.target_.mark_time(); });
      if (!task_->step(waker)) return false;
      stream_.issue([&] { stream_.target_.finished(std::move(begin_), ticket_); });
      return true;
    }
    void cancel(const Error& cause) noexcept override { task_->cancel(cause); }

   private:
    QueuedStream& stream_;
    std::shared_ptr<AsyncTask> task_;
    trace::Ticket ticket_;
    std::shared_ptr<CUevent_st> begin_;
  };

  // Called by workers, on this rank's GPU. Errors that poison the CUDA stream poison the queue.
  template <class F>
  void issue(F&& function) {
    check(cudaSetDevice(gpu_.gpu()), "selecting the GPU");  // for calls that bypass the target
    function();
    target_.throw_if_poisoned();
  }

  CudaDevice& gpu_;
  CudaStream target_;
  std::unique_ptr<Stream> queue_stream_;
  CpuStream& queue_;
  trace::Ticket next_ = trace::kNoTicket;
};

}  // namespace

std::unique_ptr<Stream> SharedGpu::make_stream(std::string name, StreamKind kind) {
  gpu_.set_recorder(recorder());
  return std::make_unique<QueuedStream>(*this, gpu_, host_, std::move(name), next_stream_index(), kind);
}

}  // namespace ms::tensor
