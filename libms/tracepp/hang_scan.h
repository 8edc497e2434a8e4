// The newest operations of every rank, and how long such operations usually take: one pass over the events, before
// hang.cpp asks who waits for whom. Everything else there looks only at what is found here.
#pragma once

#include <array>
#include <compare>
#include <optional>
#include <vector>

#include "tracepp/hang.h"

namespace ms::tracepp {

inline constexpr std::uint32_t kNoEvent = 0xffffffff;

// A rank in one of its groups.
struct Seat {
  std::int32_t group = 0;
  std::int64_t newest = -1;        // number of the newest operation it issued there
  std::int64_t newest_ended = -1;  // of those that ended
  std::uint32_t open = kNoEvent;   // the first that did not end
};

// An operation that a rank issued. In order of group, number, issue: a rank may have a million that did not end.
struct Issued {
  std::int32_t group = 0;
  std::uint32_t sequence = 0, event = 0;
  auto operator<=>(const Issued&) const = default;
};

enum class Life : std::uint8_t { alive, silent, failed, left };

struct RankScan {
  std::vector<Seat> seats;
  std::vector<std::uint32_t> seats_by_group;
  std::vector<std::uint32_t> open;        // messages that did not end, in order of issue
  std::vector<Issued> open_by_group;      // the same, as far as their groups are known
  std::uint32_t section = kNoEvent;       // of the device: the first that began and did not end
  std::uint32_t next_section = kNoEvent;  // the first that was only issued
  std::uint32_t host = kNoEvent;          // data_wait or save that did not end
  std::uint32_t last = kNoEvent;          // the newest that ended, of messages, sections and the host
  std::uint32_t ready = kNoEvent;         // a message that counts as begun though nothing says when anything began
  Life life = Life::alive;
  double silent_s = 0;  // how long before the others it fell silent

  const Seat* seat(std::int32_t group) const;
};

class HangScan {
 public:
  explicit HangScan(const RunTrace& trace);

  const RunTrace& trace() const { return trace_; }
  std::size_t count() const { return ranks_.size(); }
  const RankScan& rank(std::size_t at) const { return ranks_[at]; }
  const RankTrace& file(std::size_t at) const { return trace_.ranks[at]; }
  std::optional<std::size_t> find(int rank) const;  // its place here; nullopt: it left no trace

  const What& what(std::size_t at, std::uint32_t event) const { return trace_.what(file(at).events[event]); }
  bool is_ready(std::size_t at, std::uint32_t event) const;  // has begun; asked of what did not end
  // By the rank's own clock, of what began and did not end; -1: not known. Of what only counts as begun: since its
  // issue.
  double since_s(std::size_t at, std::uint32_t event) const;
  // Of the rank's clock, as its wall clock shows it; the same where that is not known.
  std::int64_t wall_ns(std::size_t at, std::int64_t time_ns) const;
  // How long such an event may last before it is overdue: longer than it ever took, and far longer than it usually
  // does; where ranks gave up, half as long as they waited before they did.
  double patience_s(std::size_t at, std::uint32_t event) const { return patience_s_[key(what(at, event))]; }
  // False where times are not known.
  bool is_overdue(std::size_t at, std::uint32_t event) const { return since_s(at, event) > patience_s(at, event); }
  // The longest that a rank waited until its deadline; 0: none did.
  double deadline_s() const { return deadline_s_; }
  // When a rank last showed a sign of life, by its wall clock.
  std::int64_t last_sign_ns(std::size_t at) const { return wall_ns(at, file(at).last_flush_ns); }
  Progress progress(std::size_t at, std::int32_t group, std::uint32_t sequence) const;
  // The event of an operation; kNoEvent: never issued, or no longer kept.
  std::uint32_t message(std::size_t at, std::int32_t group, std::uint32_t sequence) const;

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
  // What a thread keeps from rank to rank.
  struct Desk {
    Usuals usuals;
    std::vector<std::uint32_t> places;  // by group, of the rank's seat there, from 1; all 0 between ranks
  };
  std::size_t key(const What& what) const;
  void scan(std::size_t at, const std::vector<std::uint16_t>& keys, Desk& desk);
  void find_usual(const std::vector<Usuals>& parts);
  double longest_wait_s() const;  // of those that gave up
  void find_silent();
  void find_life();
  std::optional<std::int64_t> clock_difference_ns(std::size_t at, const std::vector<char>& is_candidate) const;

  const std::vector<Issued>& issued(std::size_t at) const;

  const RunTrace& trace_;
  std::vector<RankScan> ranks_;
  mutable std::vector<std::vector<Issued>> issued_;  // by rank, of those that were asked about what is long ago
  std::vector<double> patience_s_;                   // by key
  double deadline_s_ = 0;
};

}  // namespace ms::tracepp
