// A stream of the host cannot wait for an event of another device. A thread can: it waits for the event and then opens
// a gate, which is a task on the stream.
#pragma once

#include <mutex>
#include <optional>

#include "tensor/task_stream.h"

namespace ms::tensor {

class EventGate final : public AsyncTask {
 public:
  // Waits for `event`, then lets the stream continue past the gate. If the event throws, the exception poisons the
  // stream and is rethrown here. Blocks. Exactly one of open_after() and give_up() must be called: a stream at a closed
  // gate never finishes.
  void open_after(const Event& event);
  void give_up();  // poisons the stream if the gate is still closed

  bool step(const CpuWaker& waker) override;
  void cancel(const Error&) noexcept override {}

 private:
  void open(std::shared_ptr<const Error> cause);

  std::mutex mutex_;  // guards what follows
  bool is_open_ = false;
  std::shared_ptr<const Error> cause_;
  std::optional<CpuWaker> waiting_;
};

}  // namespace ms::tensor
