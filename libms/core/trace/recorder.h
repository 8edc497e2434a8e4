// Records the events of one rank. The rank's host thread issues events in program order; the thread that executes them
// (a device worker, or later, once a GPU's timestamps are known) reports when they begin and end. Events stay in a ring
// until they have ended and are written to the file. Nothing here waits for the file, except when a string, group or
// descriptor is used for the first time, and nothing here fails: events that do not fit are counted as dropped.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/kinds.h"
#include "trace/trace_file.h"

namespace ms::trace {

enum class Level : std::uint8_t { sections, messages, ops };
Level level_of(std::string_view name);  // `name` is one of TraceConfig's choices

// Identifies an event, for begin() and end().
using Ticket = std::uint64_t;
inline constexpr Ticket kNoTicket = ~Ticket{0};

// The part of the step that events issued now belong to.
struct Context {
  Purpose purpose = Purpose::none;
  int chunk = -1;
  int microbatch = -1;
};

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Recorder {
 public:
  // Throws like TraceFile. `slots`: the most events in progress or not yet in the file, 24 bytes each; a power of two.
  Recorder(const std::string& dir, const Identity& identity, std::int64_t max_bytes, Level level, std::size_t slots);
  Recorder(const std::string& dir, const Identity& identity, std::int64_t max_bytes, Level level)
      : Recorder(dir, identity, max_bytes, level, level == Level::ops ? 1 << 18 : 1 << 14) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Level level() const { return level_; }

  // -- Called by the host thread.

  // Sets the context of events issued from now on; returns the previous one.
  Context enter(const Context& context) { return std::exchange(context_, context); }
  // Registers a group by id and returns its index; a known group keeps its index.
  int group(std::string_view name, int id, std::span<const int> ranks);
  struct CommOp {
    Kind kind = Kind::other_comm;
    int group = -1;         // index from group()
    std::string_view type;  // a string literal: what members must agree on besides kind and size: "f32 sum"
    int root = -1;
    std::int64_t size_bytes = 0;
    std::uint64_t sequence = 0;
  };
  Ticket issue_comm(const CommOp& op);
  // Issues a section of a stream, an op, or a host event. `name`: only if the kind is not descriptive.
  Ticket issue(Kind kind, std::string_view name = {});
  // Events issued from now on belong to this step. Two steps may be in progress.
  void begin_step(std::int64_t step, std::int64_t time_ns);
  // The step's result is available. op_seconds: device time so far in the run, by class in the order from Kind::matmul.
  void end_step(std::int64_t step, std::int64_t time_ns, std::span<const double> op_seconds);
  void probe(const format::Probe& probe);

  // -- Called by the thread that executes the event. kNoTicket is ignored.
  void begin(Ticket ticket, std::int64_t time_ns);
  void end(Ticket ticket, std::int64_t time_ns);
  void end_section(Ticket ticket, std::int64_t time_ns, std::int64_t busy_ns);

  // -- Called by any thread.
  void flush();
  // Writes how the run ended, the error and the rank that it blames (-1: none). Later events are accepted but not
  // written.
  void close(format::Ending ending, std::string_view text = {}, int blamed_rank = -1);
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    std::atomic<std::int64_t> begin_ns = 0, end_ns = 0;  // 0: not yet
    std::atomic<std::uint32_t> detail = 0;
    std::uint16_t descriptor = 0, microbatch = 0;
  };
  struct DescriptorHash {
    std::size_t operator()(const format::EventDescriptor& descriptor) const;
  };
  struct DescriptorEqual {
    bool operator()(const format::EventDescriptor& a, const format::EventDescriptor& b) const;
  };
  struct StepMark {
    std::int64_t step;
    Ticket first;
  };

  Ticket issue(const format::EventDescriptor& descriptor, std::uint32_t detail);
  std::uint16_t descriptor_id(const format::EventDescriptor& descriptor);
  std::uint16_t string_id(std::string_view text);
  std::uint16_t type_id(std::string_view type);
  Slot& slot(Ticket ticket) { return slots_[ticket & (slots_.size() - 1)]; }
  std::int64_t encode(std::uint64_t number, std::uint64_t head, format::Page& page);  // returns the newest time in it
  void flush_locked();

  const Level level_;
  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> head_ = 0;  // next ticket
  std::atomic<std::uint64_t> written_ =
      0;  // all earlier tickets have ended and are in the file; a multiple of the page size
  std::atomic<std::uint64_t> dropped_ = 0;
  // Used by the host thread only.
  Context context_;
  std::unordered_map<format::EventDescriptor, std::uint16_t, DescriptorHash, DescriptorEqual> descriptors_;
  struct Counted {
    Kind kind;
    format::SumOf column;  // in the step's sums
  };
  std::vector<Counted> counted_;  // [descriptor]
  std::map<int, int> groups_;     // by id
  std::vector<GroupAxis> group_axes_;
  std::map<std::string, std::uint16_t, std::less<>> strings_;
  std::vector<std::pair<const char*, std::uint16_t>> types_;  // known types, by address of the literal
  std::deque<StepMark> marks_;
  std::vector<double> op_seconds_;

  std::mutex queue_mutex_;  // guards sums_ and probes_ of the next flush; never held during a write
  std::vector<format::Sum> sums_;
  std::vector<format::Probe> probes_;

  std::timed_mutex mutex_;  // guards the file and what follows
  TraceFile file_;
  std::int64_t step_at_written_ = -1;  // step of the slot at written_
  std::vector<format::Page> pages_;
  bool closed_ = false;
};

// Sets the recorder's context for its lifetime. Does nothing if there is no recorder.
class Scope {
 public:
  Scope(Recorder* recorder, const Context& context) : recorder_(recorder) {
    if (recorder_ != nullptr) before_ = recorder_->enter(context);
  }
  ~Scope() {
    if (recorder_ != nullptr) recorder_->enter(before_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Recorder* recorder_;
  Context before_;
};

// Records a host event from construction to destruction.
class HostEvent {
 public:
  HostEvent(Recorder* recorder, Kind kind) : recorder_(recorder) {
    if (recorder_ == nullptr) return;
    ticket_ = recorder_->issue(kind);
    recorder_->begin(ticket_, now_ns());
  }
  ~HostEvent() {
    if (recorder_ != nullptr) recorder_->end(ticket_, now_ns());
  }
  HostEvent(const HostEvent&) = delete;
  HostEvent& operator=(const HostEvent&) = delete;

 private:
  Recorder* recorder_;
  Ticket ticket_ = kNoTicket;
};

}  // namespace ms::trace
