// What one rank does, written down as it happens. The rank's host thread issues events in the order of its program;
// whoever runs them says when they begin and end: a worker of the device, or later, when a GPU's clock is known. They
// stand in a ring until they have ended and are in the file. Nothing here waits for the file, but where something is
// met for the first time, and nothing here fails: an event that finds no room is counted.
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
Level level_of(std::string_view name);  // one of TraceConfig's choices

// The place of an event, for begin() and end().
using Ticket = std::uint64_t;
inline constexpr Ticket kNoTicket = ~Ticket{0};

// What the events that are issued now belong to.
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
  // Throws what TraceFile throws. `slots`: events that are under way or not yet in the file, 24 bytes each; a power of
  // two.
  Recorder(const std::string& dir, const Identity& identity, std::int64_t max_bytes, Level level, std::size_t slots);
  Recorder(const std::string& dir, const Identity& identity, std::int64_t max_bytes, Level level)
      : Recorder(dir, identity, max_bytes, level, level == Level::ops ? 1 << 18 : 1 << 14) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Level level() const { return level_; }

  // -- The host thread.

  // Events belong to this from now on; returns what they belonged to before.
  Context enter(const Context& context) { return std::exchange(context_, context); }
  // By id; a group that is known keeps its place.
  int group(std::string_view name, int id, std::span<const int> ranks);
  struct Message {
    Kind kind = Kind::other_message;
    int group = -1;         // of group()
    std::string_view type;  // of a constant: what all members must agree on besides kind and size: "f32 sum"
    int root = -1;
    std::int64_t size_bytes = 0;
    std::uint64_t sequence = 0;
  };
  Ticket message(const Message& message);
  // A section of a stream, an op, something that the host does. `name` where the kind does not say it.
  Ticket issue(Kind kind, std::string_view name = {});
  // Events from here on belong to this step. Two may be under way.
  void begin_step(std::int64_t step, std::int64_t time_ns);
  // Its result is there. op_seconds: of the device so far, by class in the order of Kind::matmul and on.
  void end_step(std::int64_t step, std::int64_t time_ns, std::span<const double> op_seconds);
  void probe(const format::Probe& probe);

  // -- Whoever runs it. kNoTicket is no event.
  void begin(Ticket ticket, std::int64_t time_ns);
  void end(Ticket ticket, std::int64_t time_ns);
  void end_section(Ticket ticket, std::int64_t time_ns, std::int64_t busy_ns);

  // -- Any thread.
  void flush();
  // The last word: the error, and the rank that it blames, or -1. Events may still begin and end, but nothing is
  // written any more.
  void close(format::Ending ending, std::string_view text = {}, int blamed_rank = -1);
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    std::atomic<std::int64_t> begin_ns = 0, end_ns = 0;  // 0: not yet
    std::atomic<std::uint32_t> detail = 0;
    std::uint16_t what = 0, microbatch = 0;
  };
  struct WhatHash {
    std::size_t operator()(const format::What& what) const;
  };
  struct WhatEqual {
    bool operator()(const format::What& a, const format::What& b) const;
  };
  struct StepMark {
    std::int64_t step;
    Ticket first;
  };

  Ticket issue(const format::What& what, std::uint32_t detail);
  std::uint16_t what_id(const format::What& what);
  std::uint16_t string_id(std::string_view text);
  std::uint16_t type_id(std::string_view type);
  Slot& slot(Ticket ticket) { return slots_[ticket & (slots_.size() - 1)]; }
  std::int64_t encode(std::uint64_t number, std::uint64_t head, format::Page& page);  // the newest time in it
  void flush_locked();

  const Level level_;
  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> head_ = 0;     // next ticket
  std::atomic<std::uint64_t> written_ = 0;  // all before it have ended and are in the file; begins a page
  std::atomic<std::uint64_t> dropped_ = 0;
  // Of the host thread.
  Context context_;
  std::unordered_map<format::What, std::uint16_t, WhatHash, WhatEqual> whats_;
  struct Counted {
    Kind kind;
    format::SumOf column;  // of the step's sums
  };
  std::vector<Counted> counted_;  // [what]
  std::map<int, int> groups_;     // by id
  std::vector<GroupAxis> group_axes_;
  std::map<std::string, std::uint16_t, std::less<>> strings_;
  std::vector<std::pair<const char*, std::uint16_t>> types_;  // those that were met, by address
  std::deque<StepMark> marks_;
  std::vector<double> op_seconds_;

  std::mutex queue_mutex_;  // guards what the next flush writes; never held while something is written
  std::vector<format::Sum> sums_;
  std::vector<format::Probe> probes_;

  std::timed_mutex mutex_;  // guards the file and what follows
  TraceFile file_;
  std::int64_t step_at_written_ = -1;  // that the slot at written_ belongs to
  std::vector<format::Page> pages_;
  bool closed_ = false;
};

// Events that are issued while it lives belong to `context`. No recorder: nothing.
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

// The host does something while it lives.
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
