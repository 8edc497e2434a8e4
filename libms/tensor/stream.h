// The first of the two seams: devices, streams, events and device memory.
//
// A stream runs what is submitted to it in order; streams run side by side; events order them. Nothing here waits on
// the host except Event::synchronize(). All methods of one rank's device and streams are called from that rank's one
// issuing thread; an event, once recorded, may be asked and awaited by any.
//
// Errors. A failed op poisons its stream: what follows on it is skipped, its events carry the first cause, streams that
// wait for such an event are poisoned by it, and synchronize() throws it.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/matmul_choices.h"
#include "tensor/ops.h"
#include "tensor/race.h"
#include "tensor/tensor.h"
#include "trace/recorder.h"

namespace ms::tensor {

// What a device keeps behind an event.
class EventState {
 public:
  virtual ~EventState() = default;
  virtual bool ready() const = 0;
  virtual void synchronize() = 0;  // returns when reached; throws the cause when poisoned
};

// A point in a stream. Single-use; waiting on one that was never recorded is a bug.
class Event {
 public:
  Event() = default;
  Event(std::shared_ptr<EventState> state, StreamClock clock) : state_(std::move(state)), clock_(std::move(clock)) {}

  explicit operator bool() const { return state_ != nullptr; }
  bool ready() const { return checked().ready(); }
  void synchronize() const { checked().synchronize(); }
  const std::shared_ptr<EventState>& state() const { return state_; }
  const StreamClock& clock() const { return clock_; }

 private:
  EventState& checked() const {
    MS_ASSERT(state_, "an event that was never recorded");
    return *state_;
  }
  std::shared_ptr<EventState> state_;
  StreamClock clock_;
};

class Device;

class Stream {
 public:
  Stream(Device& device, std::string name, int index);
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const std::string& name() const { return name_; }
  int index() const { return index_; }  // among the streams of its device
  Device& device() const { return device_; }

  void submit(const Op& op);
  Event record();
  void wait(const Event& event);
  // Runs everything submitted so far: record().synchronize(), and tells the race check so.
  void synchronize();
  // Telemetry; kNoTicket is nothing. What is submitted next, to the list of ops or by a communicator, is this event of
  // the device's recorder: it begins when all before it is done.
  void trace_next(trace::Ticket ticket) {
    if (ticket != trace::kNoTicket) do_trace_next(ticket);
  }
  // What is issued between the two is this event; see section.h.
  void begin_section(trace::Ticket ticket) {
    if (ticket != trace::kNoTicket) do_section(ticket, true);
  }
  void end_section(trace::Ticket ticket) {
    if (ticket != trace::kNoTicket) do_section(ticket, false);
  }
  // For communicators, whose operations are not in the op list: the race check sees these accesses.
  void note(Access access, const Tensor& tensor);

 protected:
  virtual void do_submit(const Op& op) = 0;
  virtual std::shared_ptr<EventState> do_record() = 0;
  virtual void do_wait(const Event& event) = 0;
  virtual void do_trace_next(trace::Ticket ticket) = 0;
  virtual void do_section(trace::Ticket ticket, bool begins) = 0;

 private:
  Device& device_;
  std::string name_;
  int index_;
};

// Memory of a device, zeroed. Freed when the handle goes; nothing may be in flight then.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* data() const = 0;
  virtual std::size_t size_bytes() const = 0;
};

enum class StreamKind { compute, comm };  // comm streams go first when both could run

// Told of every operation once it has run, by whichever thread ran it.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void ran(const Op& op, double seconds) = 0;
};

// What prepare() found.
struct Readiness {
  std::int64_t scratch_bytes = 0;  // of the device's memory that operations take while they run, beside their tensors
  std::int64_t free_bytes = -1;    // of the device, now; negative: nobody counts them
  std::int64_t total_bytes = -1;
};

// One rank's device.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view kind() const = 0;  // "cpu", "cuda", "sim"
  virtual std::unique_ptr<Stream> make_stream(std::string name, StreamKind kind) = 0;
  // Throws Error("tensor.memory") where there is not enough.
  virtual std::unique_ptr<Memory> allocate(std::size_t bytes, const std::string& what) = 0;
  // The same, of memory that the host reads and writes, too.
  virtual std::unique_ptr<Memory> allocate_host(std::size_t bytes, const std::string& what) = 0;
  // Makes ready what operations like these need to run at once: once messages are under way, peers would wait for it.
  // Their tensors are not touched. Products are multiplied as `choices` says from now on; where `timed`, the fastest
  // algorithm of every other product is found and added, and else its library decides. Blocks; nothing is in flight.
  virtual Readiness prepare(std::span<const Op> /*ops*/, MatmulChoices& /*choices*/, bool /*timed*/) { return {}; }
  // Seconds spent in ops so far, by class; for timing tables. Call between steps.
  virtual std::vector<double> op_seconds() = 0;

  // Fault injection: from now on every op takes so many times as long as it needs.
  void slow_down(double factor) { slowness_.store(factor, std::memory_order_relaxed); }
  double slowness() const { return slowness_.load(std::memory_order_relaxed); }

  RaceChecker& races() { return races_; }
  // Where this rank's events are written down; nullptr: nowhere. Set before streams are made; it outlives them.
  trace::Recorder* recorder() const { return recorder_; }
  void set_recorder(trace::Recorder* recorder) { recorder_ = recorder; }
  // Who is told of operations; nullptr: nobody. Set while no operation is in flight; it outlives the device.
  OpObserver* observer() const { return observer_; }
  void set_observer(OpObserver* observer) { observer_ = observer; }

 protected:
  int next_stream_index() { return stream_count_++; }

 private:
  RaceChecker races_;
  int stream_count_ = 0;
  trace::Recorder* recorder_ = nullptr;
  OpObserver* observer_ = nullptr;
  std::atomic<double> slowness_ = 1;
};

// Cuts tensors from memory, one after the other, each aligned. A measuring arena has no memory: it hands out addresses
// that must not be touched and counts bytes, so that a plan and a run carve with the same code.
class Arena {
 public:
  static constexpr std::int64_t kAlignment = 256;

  explicit Arena(Memory& memory) : base_(memory.data()), capacity_(static_cast<std::int64_t>(memory.size_bytes())) {}
  static Arena measuring() { return Arena(); }

  Tensor take(DType dtype, std::int64_t rows, std::int64_t cols);
  // Memory for something that another arena cuts up.
  Arena take_arena(std::int64_t bytes);
  std::int64_t used_bytes() const { return used_; }
  bool is_measuring() const { return measuring_; }
  // Forgets everything taken: the slot is used anew. Who calls this has ordered the streams.
  void reset() { used_ = 0; }

 private:
  Arena();
  Arena(std::byte* base, std::int64_t capacity, bool measuring)
      : base_(base), capacity_(capacity), measuring_(measuring) {}
  std::byte* base_;
  std::int64_t capacity_;
  std::int64_t used_ = 0;
  bool measuring_ = false;
};

}  // namespace ms::tensor
