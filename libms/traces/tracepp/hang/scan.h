// Collects the newest operations of every rank, and how long such operations usually take, in one pass over the events.
// The other files of this folder use only what is found here.
#pragma once

#include <array>
#include <compare>
#include <optional>
#include <vector>

#include "tracepp/hang/hang.h"

namespace ms::tracepp {

inline constexpr std::uint32_t kNoEvent = 0xffffffff;

// The state of a rank in one of its groups.
struct Seat {
  std::int32_t group = 0;
  std::int64_t newest = -1;        // number of the newest operation it issued there
  std::int64_t newest_ended = -1;  // of those that ended
  std::uint32_t open = kNoEvent;   // the first that did not end
};

// An operation that a rank issued, ordered by group, number, issue: a rank may have a million that did not end.
struct Issued {
  std::int32_t group = 0;
  std::uint32_t sequence = 0, event = 0;
  auto operator<=>(const Issued&) const = default;
};

// Returns the ranks of the mesh, or members of a group, without a trace that shows what they did last, rising.
std::vector<int> missing_ranks(const RunTrace& trace);

enum class Life : std::uint8_t { alive, silent, failed, left };

struct RankScan {
  std::vector<Seat> seats;
  std::vector<std::uint32_t> seats_by_group;
  std::vector<std::uint32_t> open;        // communication that did not end, in order of issue
  std::vector<Issued> open_by_group;      // the same, if their groups are known
  std::uint32_t section = kNoEvent;       // of the device: the first that began and did not end
  std::uint32_t next_section = kNoEvent;  // the first that was only issued
  std::uint32_t host = kNoEvent;          // data_wait or save that did not end
  std::uint32_t last = kNoEvent;          // the newest event that ended: communication, section or host
  Life life = Life::alive;
  double silent_s = 0;  // how long before the others it stopped writing

  const Seat* seat(std::int32_t group) const;
};

class HangScan {
 public:
  explicit HangScan(const RunTrace& trace);

  const RunTrace& trace() const { return trace_; }
  std::size_t count() const { return ranks_.size(); }
  const RankScan& rank(std::size_t at) const { return ranks_[at]; }
  const RankTrace& file(std::size_t at) const { return trace_.ranks[at]; }
  // Returns its index here; nullopt: it has no trace, or one that is cut off, which does not tell what it did last.
  std::optional<std::size_t> find(int rank) const;

  const EventInfo& info(std::size_t at, std::uint32_t event) const { return trace_.info(file(at).events[event]); }
  bool is_ready(std::size_t at, std::uint32_t event) const;  // has begun; only for events that did not end
  // Returns the time since the begin of an event that did not end, by the rank's own clock; -1: not known.
  double since_s(std::size_t at, std::uint32_t event) const;
  // Converts a time of the rank's clock to its wall clock; unchanged if that is not known.
  std::int64_t wall_ns(std::size_t at, std::int64_t time_ns) const;
  // Returns how long such an event may last before it is past its deadline: longer than it ever took, and far longer
  // than usual; if ranks gave up, half as long as they waited before they did.
  double patience_s(std::size_t at, std::uint32_t event) const { return patience_s_[key(info(at, event))]; }
  // Returns whether an event is past its deadline; false if times are not known.
  bool is_late(std::size_t at, std::uint32_t event) const { return since_s(at, event) > patience_s(at, event); }
  // Returns the longest time that a rank waited until its deadline; 0: none did.
  double deadline_s() const { return deadline_s_; }
  // Returns when a rank last wrote something, by its wall clock.
  std::int64_t last_sign_ns(std::size_t at) const { return wall_ns(at, file(at).last_flush_ns); }
  Progress progress(std::size_t at, std::int32_t group, std::uint32_t sequence) const;
  // Returns whether the file tells what the rank issued in a group: a dump that lacks entries may lack all of them.
  bool knows(std::size_t at, std::int32_t group) const {
    return !file(at).is_partial || ranks_[at].seat(group) != nullptr;
  }
  // Returns the event of an operation; kNoEvent: never issued, or no longer kept.
  std::uint32_t find_event(std::size_t at, std::int32_t group, std::uint32_t sequence) const;

 private:
  static constexpr int kBuckets = 256;  // of durations: four to every factor of two
  struct Usual {
    std::uint64_t count = 0;
    std::int64_t longest_ns = 0;
    std::array<std::uint32_t, kBuckets> buckets{};
  };
  struct Usuals {
    std::vector<std::int32_t> place;  // by key, in `of`
    std::vector<Usual> of;
    Usual& at(std::size_t key);
  };
  // Scratch memory that a thread reuses for all its ranks.
  struct Desk {
    Usuals usuals;
    std::vector<std::uint32_t> places;  // by group: the rank's seat there, counted from 1; all 0 between ranks
  };
  std::size_t key(const EventInfo& info) const;
  void scan(std::size_t at, const std::vector<std::uint16_t>& keys, Desk& desk);
  void find_usual(const std::vector<Usuals>& parts);
  double longest_wait_s() const;  // of those that gave up
  void find_silent();
  void find_life();
  std::optional<std::int64_t> clock_difference_ns(std::size_t at, const std::vector<char>& is_candidate) const;

  const std::vector<Issued>& issued(std::size_t at) const;

  const RunTrace& trace_;
  std::vector<RankScan> ranks_;
  mutable std::vector<std::vector<Issued>> issued_;  // by rank; filled when an operation of long ago is asked for
  std::vector<double> patience_s_;                   // by key
  double deadline_s_ = 0;
};

// Returns whether anything takes longer than it ever did.
bool anything_late(const HangScan& scan);

}  // namespace ms::tracepp
