#include "tensor/stream.h"

namespace ms::tensor {

Stream::Stream(Device& device, std::string name, int index) : device_(device), name_(std::move(name)), index_(index) {}

void Stream::submit(const Op& op) {
  RaceChecker& races = device_.races();
  if (races.enabled()) {
    // Reads come first: an in-place op reads what it then writes.
    for (const Access kind : {Access::read, Access::write}) {
      each_access(op, [&](Access access, const Tensor& tensor) {
        if (access == kind) races.access(index_, access, tensor, op_name(op));
      });
    }
  }
  trace::Recorder* recorder = device_.recorder();
  if (recorder == nullptr || recorder->level() != trace::Level::ops) return do_submit(op);
  const auto kind = static_cast<trace::Kind>(static_cast<int>(trace::Kind::matmul) + static_cast<int>(op_class(op)));
  trace_next(recorder->issue(kind, op_name(op)));
  do_submit(op);
}

void Stream::note(Access access, const Tensor& tensor) {
  device_.races().access(index_, access, tensor, "an operation of " + name_);
}

void Stream::copy_to_host(const Tensor& x) {
  MS_ASSERT(x.dtype == DType::i32 && x.contiguous(), "a copy of {}, with gaps or not, for the host",
            to_string(x.dtype));
  note(Access::read, x);
  do_copy_to_host(x);
}

Event Stream::record() {
  StreamClock clock = device_.races().record(index_);
  return Event(do_record(), std::move(clock));
}

void Stream::wait(const Event& event) {
  MS_ASSERT(event, "stream {} waits for an event that was never recorded", name_);
  device_.races().wait(index_, event.clock());
  do_wait(event);
}

void Stream::synchronize() {
  const Event event = record();
  event.synchronize();
  device_.races().host_sync(event.clock());
}

Arena::Arena() : base_(reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40)), capacity_(INT64_MAX), measuring_(true) {}

Tensor Arena::take(DType dtype, std::int64_t rows, std::int64_t cols) {
  MS_ASSERT(rows > 0 && cols > 0, "a tensor of {}x{}", rows, cols);
  Tensor tensor{base_ + used_, rows, cols, cols, dtype};
  const std::int64_t bytes = (tensor.size_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  MS_ASSERT(used_ + bytes <= capacity_, "the arena of {} bytes is full: {} used, {} wanted", capacity_, used_, bytes);
  used_ += bytes;
  return tensor;
}

Arena Arena::take_arena(std::int64_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  MS_ASSERT(used_ + bytes <= capacity_, "the arena of {} bytes is full: {} used, {} wanted", capacity_, used_, bytes);
  Arena inner(base_ + used_, bytes, measuring_);
  used_ += bytes;
  return inner;
}

}  // namespace ms::tensor
