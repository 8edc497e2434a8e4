// Devices, streams, events and device memory: the interface that the cpu, cuda and sim devices implement.
//
// A stream runs what is submitted to it in order; streams run concurrently; events order them. Only
// Event::synchronize() blocks the host. All methods of one rank's device and streams are called from that rank's one
// issuing thread. Once recorded, an event may be queried and waited for by any thread.
//
// Errors. A failed op poisons its stream: later work on it is skipped, its events carry the first cause, streams that
// wait for such an event are poisoned too, and synchronize() throws the cause.
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

// The device's part of an event.
class EventState {
 public:
  virtual ~EventState() = default;
  virtual bool ready() const = 0;
  virtual void synchronize() = 0;  // returns once the event is reached; throws the cause if poisoned
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
  // Blocks until everything submitted so far has run: record().synchronize(), which the race check takes into account.
  void synchronize();
  // Copies integers, i32, to where the host finds them when it issues work that depends on them:
  // GroupedMatmul::offsets, those of an exchange of rows. The host then waits for this copy alone, and otherwise for
  // all that the stream has to do. What changes the tensor later, or takes its memory for other integers, copies again.
  // A device that reads them when the work runs copies nothing.
  void copy_to_host(const Tensor& x);
  // Telemetry: the next op, or the next operation of a communicator, becomes this event of the device's recorder. It
  // begins when all earlier work is done. kNoTicket is ignored.
  void trace_next(trace::Ticket ticket) {
    if (ticket != trace::kNoTicket) do_trace_next(ticket);
  }
  // Everything issued between the two calls becomes this event; see section.h.
  void begin_section(trace::Ticket ticket) {
    if (ticket != trace::kNoTicket) do_section(ticket, true);
  }
  void end_section(trace::Ticket ticket) {
    if (ticket != trace::kNoTicket) do_section(ticket, false);
  }
  // For communicators, whose operations are not in the op list: reports an access to the race check.
  void note(Access access, const Tensor& tensor);

 protected:
  virtual void do_submit(const Op& op) = 0;
  virtual std::shared_ptr<EventState> do_record() = 0;
  virtual void do_wait(const Event& event) = 0;
  virtual void do_trace_next(trace::Ticket ticket) = 0;
  virtual void do_section(trace::Ticket ticket, bool begins) = 0;
  virtual void do_copy_to_host(const Tensor& /*x*/) {}

 private:
  Device& device_;
  std::string name_;
  int index_;
};

// Zeroed memory of a device, freed with this object. Nothing that uses it may be in flight then.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* data() const = 0;
  virtual std::size_t size_bytes() const = 0;
};

enum class StreamKind { compute, comm };  // comm streams are scheduled first

// Receives every operation after it has run, on the thread that ran it.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void ran(const Op& op, double seconds) = 0;
};

// Memory of a device, whoever uses it; negative if unknown.
struct DeviceMemory {
  std::int64_t free_bytes = -1, total_bytes = -1;
};

// One rank's device.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view kind() const = 0;  // "cpu", "cuda", "sim"
  virtual std::unique_ptr<Stream> make_stream(std::string name, StreamKind kind) = 0;
  // Throws Error("tensor.memory") if there is not enough.
  virtual std::unique_ptr<Memory> allocate(std::size_t bytes, const std::string& what) = 0;
  // Likewise, memory that the host can access too.
  virtual std::unique_ptr<Memory> allocate_host(std::size_t bytes, const std::string& what) = 0;
  // Prepares everything that ops like these need to start without delay: in a step, a delay would stall peers. Does not
  // touch their tensors. From now on, matmuls use the algorithms in `choices`. If `timed`, every other matmul is
  // autotuned and its algorithm is added to `choices`; otherwise the library chooses. Blocks; nothing may be in flight.
  // Returns the bytes of device memory that ops need while they run, beside their tensors.
  virtual std::int64_t prepare(std::span<const Op> /*ops*/, MatmulChoices& /*choices*/, bool /*timed*/) { return 0; }
  // A GPU's name as its driver reports it, "NVIDIA H100 80GB HBM3"; of a CPU the instruction set in use, "avx2"; empty
  // if unknown.
  virtual std::string name() { return {}; }
  virtual DeviceMemory memory() { return {}; }
  // Returns the seconds spent in ops so far, by class, for timing tables. Call between steps.
  virtual std::vector<double> op_seconds() = 0;

  // Fault injection: from now on every op takes `factor` times as long as it needs.
  void slow_down(double factor) { slowness_.store(factor, std::memory_order_relaxed); }
  double slowness() const { return slowness_.load(std::memory_order_relaxed); }

  RaceChecker& races() { return races_; }
  // The recorder of this rank's trace, or nullptr. Set it before making streams; it must outlive them.
  trace::Recorder* recorder() const { return recorder_; }
  void set_recorder(trace::Recorder* recorder) { recorder_ = recorder; }
  // The observer of ops, or nullptr. Set it while no op is in flight; it must outlive the device.
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

// Allocates tensors from a block of memory, one after the other, each aligned. A measuring arena has no memory: it
// returns addresses that must not be accessed and counts bytes, so that a plan and a run allocate with the same code.
class Arena {
 public:
  static constexpr std::int64_t kAlignment = 256;

  explicit Arena(Memory& memory) : base_(memory.data()), capacity_(static_cast<std::int64_t>(memory.size_bytes())) {}
  static Arena measuring() { return Arena(); }

  Tensor take(DType dtype, std::int64_t rows, std::int64_t cols);
  // Takes a block for an inner arena.
  Arena take_arena(std::int64_t bytes);
  std::int64_t used_bytes() const { return used_; }
  bool is_measuring() const { return measuring_; }
  // Makes all of the memory available again. The caller must have ordered the streams that used it.
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
