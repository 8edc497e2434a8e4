// A host's stream cannot wait for an event of another device. A thread can: it waits for the event and opens a gate,
// which is a task of the stream.
#pragma once

#include <mutex>
#include <optional>

#include "tensor/task_stream.h"

namespace ms::tensor {

class EventGate final : public AsyncTask {
 public:
  // Once `event` is reached, the stream that has come to the gate goes on; what it throws poisons the stream, and is
  // thrown here, too. Blocks. Somebody has to do this or that: a stream that stands does not end.
  void open_after(const Event& event);
  void give_up();  // poisons the stream, if the gate is still shut

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
