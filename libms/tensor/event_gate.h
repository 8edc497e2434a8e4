// A host's stream cannot wait for an event of another device. A thread can: it waits for the event and opens a gate,
// which is a task of the stream.
#pragma once

#include <mutex>
#include <vector>

#include "tensor/task_stream.h"

namespace ms::tensor {

class EventGate final : public AsyncTask {
 public:
  // Once `event` is reached, streams that have come to the gate go on; what it throws poisons them, and is thrown here,
  // too. Blocks. Once, or they stand for ever.
  void open_after(const Event& event);

  bool step(const CpuWaker& waker) override;
  void cancel(const Error&) noexcept override {}

 private:
  void open(std::shared_ptr<const Error> cause);

  std::mutex mutex_;  // guards what follows
  bool is_open_ = false;
  std::shared_ptr<const Error> cause_;
  std::vector<CpuWaker> waiting_;
};

}  // namespace ms::tensor
