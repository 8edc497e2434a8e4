// A counting sort. Numbers in a group are dense or nearly so, so an operation's slot is a subtraction away; where they
// are not, they are sorted and searched. Two threads, each with one half of the ranks and counters of its own.
#include "tracepp/matching.h"

#include <algorithm>
#include <array>
#include <thread>

namespace ms::tracepp {
namespace {

constexpr std::uint32_t kNoSlot = 0xffffffff;
constexpr std::size_t kThreads = 2;
constexpr std::size_t kEventsForThreads = 1 << 16;  // below, starting a thread costs more than it saves
// A group's slots are dense where they are at most this many times its messages, and some.
constexpr std::uint64_t kDense = 4, kDenseSlack = 16;

// The groups that a rank may speak for: a message of a group whose members are known and do not include it is a lie.
class Memberships {
 public:
  explicit Memberships(const RunTrace& trace) : open_(trace.groups.size()) {
    for (std::size_t g = 0; g < trace.groups.size(); ++g) {
      open_[g] = trace.groups[g].ranks.empty();
      for (const int rank : trace.groups[g].ranks) pairs_.push_back({rank, g});
    }
    std::ranges::sort(pairs_);
  }
  std::vector<char> open() const { return open_; }  // of groups whose members are not known
  void set(std::vector<char>& may, int rank, bool value) const {
    for (auto at = std::ranges::lower_bound(pairs_, std::pair{rank, std::size_t{0}});
         at != pairs_.end() && at->first == rank; ++at) {
      may[at->second] = static_cast<char>(value);
    }
  }

 private:
  std::vector<char> open_;
  std::vector<std::pair<int, std::size_t>> pairs_;  // rank, group
};

struct Numbers {  // of a group
  std::uint32_t low = 0xffffffff, high = 0;
  std::uint64_t count = 0;
  void add(const Numbers& other) {
    low = std::min(low, other.low);
    high = std::max(high, other.high);
    count += other.count;
  }
};

struct Slots {  // of a group
  std::uint32_t first = 0, low = 0, count = 0;
  std::vector<std::uint32_t> numbers;  // rising; empty: dense
  std::uint32_t of(std::uint32_t sequence) const {
    if (numbers.empty()) return first + (sequence - low);
    return first + static_cast<std::uint32_t>(std::ranges::lower_bound(numbers, sequence) - numbers.begin());
  }
  std::uint32_t sequence(std::uint32_t slot) const {
    return numbers.empty() ? low + (slot - first) : numbers[slot - first];
  }
};

struct Counter {
  std::uint32_t count = 0;
  std::uint32_t last_rank = 0xffffffff;
};

class Matcher {
 public:
  explicit Matcher(const RunTrace& trace) : trace_(trace), memberships_(trace), group_of_(trace.infos.size(), kNotOne) {
    for (std::size_t w = 0; w < trace.infos.size(); ++w) {
      const EventInfo& info = trace.infos[w];
      if (!trace::is_comm(info.kind)) continue;
      const bool known = info.group >= 0 && static_cast<std::size_t>(info.group) < trace.groups.size();
      group_of_[w] = known ? info.group : kNoGroup;
    }
    first_event_.push_back(0);
    for (const RankTrace& rank : trace.ranks) first_event_.push_back(first_event_.back() + rank.events.size());
    const std::size_t events = first_event_.back();
    const std::size_t middle =
        events < kEventsForThreads
            ? trace.ranks.size()
            : static_cast<std::size_t>(std::ranges::lower_bound(first_event_, events / 2) - first_event_.begin());
    bounds_ = {0, middle, trace.ranks.size()};
  }

  Matches run() {
    Matches matches;
    count_numbers();
    lay_out_slots();
    fill_slots(matches);
    place(matches);
    return matches;
  }

 private:
  static constexpr std::int32_t kNoGroup = -1, kNotOne = -2;

  // f(thread, index of a rank of the thread's half)
  template <class F>
  void each_rank(F&& f) const {
    const auto half = [&](std::size_t thread) {
      for (std::size_t r = bounds_[thread]; r < bounds_[thread + 1]; ++r) f(thread, r);
    };
    if (bounds_[1] == bounds_[2]) return half(0);
    const std::jthread other([&] { half(1); });
    half(0);
  }
  std::int32_t group_of(const Event& event) const {
    return event.info < group_of_.size() ? group_of_[event.info] : kNotOne;
  }

  void count_numbers() {
    for (auto& numbers : numbers_) numbers.resize(trace_.groups.size());
    each_rank([&](std::size_t thread, std::size_t r) {
      std::vector<Numbers>& numbers = numbers_[thread];
      for (const Event& event : trace_.ranks[r].events) {
        const std::int32_t group = group_of(event);
        if (group < 0 || event.detail == kNoDetail) continue;
        Numbers& of = numbers[static_cast<std::size_t>(group)];
        of.low = std::min(of.low, event.detail);
        of.high = std::max(of.high, event.detail);
        ++of.count;
      }
    });
    for (std::size_t g = 0; g < numbers_[0].size(); ++g) numbers_[0][g].add(numbers_[1][g]);
  }

  void lay_out_slots() {
    slots_.resize(trace_.groups.size());
    bool any_sparse = false;
    std::vector<char> sparse(slots_.size());
    for (std::size_t g = 0; g < slots_.size(); ++g) {
      const Numbers& numbers = numbers_[0][g];
      if (numbers.count == 0) continue;
      const std::uint64_t span = std::uint64_t{numbers.high} - numbers.low + 1;
      sparse[g] = static_cast<char>(span > kDense * numbers.count + kDenseSlack);
      any_sparse |= sparse[g] != 0;
      slots_[g].low = numbers.low;
      slots_[g].count = static_cast<std::uint32_t>(span);
    }
    if (any_sparse) {
      for (const RankTrace& rank : trace_.ranks) {
        for (const Event& event : rank.events) {
          const std::int32_t group = group_of(event);
          if (group < 0 || event.detail == kNoDetail || !sparse[static_cast<std::size_t>(group)]) continue;
          slots_[static_cast<std::size_t>(group)].numbers.push_back(event.detail);
        }
      }
    }
    for (Slots& slots : slots_) {
      if (!slots.numbers.empty()) {
        std::ranges::sort(slots.numbers);
        slots.numbers.erase(std::ranges::unique(slots.numbers).begin(), slots.numbers.end());
        slots.count = static_cast<std::uint32_t>(slots.numbers.size());
      }
      slots.first = slot_count_;
      slot_count_ += slots.count;
    }
  }

  void fill_slots(Matches& matches) {
    slot_of_.resize(first_event_.back());
    struct Odd {
      std::uint64_t unnamed = 0, strange = 0, twice = 0;
    };
    std::array<Odd, kThreads> odd;
    std::array<std::vector<char>, kThreads> may{memberships_.open(), memberships_.open()};
    for (std::size_t t = 0; t < kThreads; ++t) counters_[t].resize(bounds_[t] == bounds_[t + 1] ? 0 : slot_count_);
    each_rank([&](std::size_t thread, std::size_t r) {
      std::vector<Counter>& counters = counters_[thread];
      memberships_.set(may[thread], trace_.ranks[r].rank, true);
      std::uint32_t* slot_of = slot_of_.data() + first_event_[r];
      for (const Event& event : trace_.ranks[r].events) {
        std::uint32_t& slot = *slot_of++;
        slot = kNoSlot;
        const std::int32_t group = group_of(event);
        if (group == kNotOne) continue;
        if (group < 0 || event.detail == kNoDetail) {
          ++odd[thread].unnamed;
        } else if (!may[thread][static_cast<std::size_t>(group)]) {
          ++odd[thread].strange;
        } else {
          const std::uint32_t at = slots_[static_cast<std::size_t>(group)].of(event.detail);
          Counter& counter = counters[at];
          if (counter.last_rank == r) {
            ++odd[thread].twice;
            continue;
          }
          counter.last_rank = static_cast<std::uint32_t>(r);
          ++counter.count;
          slot = at;
        }
      }
      // Only what set() set: groups whose members are not known stay open.
      memberships_.set(may[thread], trace_.ranks[r].rank, false);
    });
    const auto note = [&](const char* problem, std::uint64_t Odd::*which) {
      if (const std::uint64_t count = odd[0].*which + odd[1].*which; count > 0) matches.problems[problem] = count;
    };
    note("message without a group or a number", &Odd::unnamed);
    note("message of a rank that is not in its group", &Odd::strange);
    note("message with a number that its rank had before", &Odd::twice);
  }

  // Counters become places; slots that are empty vanish.
  void place(Matches& matches) {
    std::uint32_t next = 0;
    for (std::size_t g = 0; g < slots_.size(); ++g) {
      const Slots& slots = slots_[g];
      matches.first_of.push_back(static_cast<std::uint32_t>(matches.operations.size()));
      for (std::uint32_t slot = slots.first; slot < slots.first + slots.count; ++slot) {
        const std::uint32_t first = next;
        for (std::vector<Counter>& counters : counters_) {
          if (counters.empty()) continue;
          const std::uint32_t count = counters[slot].count;
          counters[slot].count = next;
          next += count;
        }
        if (next > first) matches.operations.push_back({static_cast<std::int32_t>(g), slots.sequence(slot), first});
      }
    }
    matches.first_of.push_back(static_cast<std::uint32_t>(matches.operations.size()));
    matches.members.resize(next);
    each_rank([&](std::size_t thread, std::size_t r) {
      std::vector<Counter>& counters = counters_[thread];
      for (std::size_t e = first_event_[r]; e < first_event_[r + 1]; ++e) {
        if (slot_of_[e] == kNoSlot) continue;
        matches.members[counters[slot_of_[e]].count++] = {static_cast<std::uint32_t>(r),
                                                          static_cast<std::uint32_t>(e - first_event_[r])};
      }
    });
  }

  const RunTrace& trace_;
  Memberships memberships_;
  std::vector<std::int32_t> group_of_;    // by what
  std::vector<std::size_t> first_event_;  // of each rank among all events, and one more
  std::array<std::size_t, kThreads + 1> bounds_{};
  std::array<std::vector<Numbers>, kThreads> numbers_;  // by group
  std::vector<Slots> slots_;                            // by group
  std::uint32_t slot_count_ = 0;
  std::array<std::vector<Counter>, kThreads> counters_;  // by slot
  std::vector<std::uint32_t> slot_of_;                   // by event
};

}  // namespace

std::uint32_t Matches::find(std::int32_t group, std::uint32_t sequence) const {
  const Range range = of_group(group);
  const auto begin = operations.begin() + range.first, end = operations.begin() + range.end;
  const auto found = std::ranges::lower_bound(begin, end, sequence, {}, &Operation::sequence);
  return found != end && found->sequence == sequence ? static_cast<std::uint32_t>(found - operations.begin()) : kNone;
}

Matches match_operations(const RunTrace& trace) { return Matcher(trace).run(); }

}  // namespace ms::tracepp
