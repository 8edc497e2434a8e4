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

void EventGate::open(std::shared_ptr<const Error> cause) {
  std::vector<CpuWaker> waiting;
  {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    cause_ = std::move(cause);
    waiting.swap(waiting_);
  }
  for (const CpuWaker& waker : waiting) waker.wake();
}

bool EventGate::step(const CpuWaker& waker) {
  const std::lock_guard lock(mutex_);
  if (cause_) throw Error(*cause_);
  if (!is_open_) waiting_.push_back(waker);
  return is_open_;
}

}  // namespace ms::tensor
