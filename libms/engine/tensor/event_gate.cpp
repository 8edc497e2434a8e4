#include "tensor/event_gate.h"

#include <utility>

namespace ms::tensor {

void EventGate::open_after(const Event& event) {
  try {
    event.synchronize();
  } catch (const Error& error) {
    open(std::make_shared<const Error>(error));
    throw;
  }
  open(nullptr);
}

void EventGate::give_up() {
  open(
      std::make_shared<const Error>("tensor.gate", Blame::bug, "the wait for an event of another device was given up"));
}

void EventGate::open(std::shared_ptr<const Error> cause) {
  std::optional<CpuWaker> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (is_open_) return;
    is_open_ = true;
    cause_ = std::move(cause);
    waiting.swap(waiting_);
  }
  if (waiting) waiting->wake();
}

bool EventGate::step(const CpuWaker& waker) {
  const std::lock_guard lock(mutex_);
  if (cause_) throw Error(*cause_);
  if (!is_open_) waiting_ = waker;
  return is_open_;
}

}  // namespace ms::tensor
