#include "tracepp/read/collective_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

// The collectives of one rank in one group.
struct Sequence {
  std::uint64_t hash = 0;
  std::uint32_t count = 0;
  void add(const EventInfo& info) {
    const std::int64_t size = info.kind == Kind::all_reduce ? info.size_bytes : 0;  // others may differ between ranks
    for (const auto value : {static_cast<std::uint64_t>(info.kind), static_cast<std::uint64_t>(size)}) {
      hash = (hash ^ value) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 32;
    }
    ++count;
  }
  bool operator==(const Sequence&) const = default;
};

struct Steps {  // that a rank's trace holds
  std::int32_t first = kNoStep, last = kNoStep;
  bool operator==(const Steps&) const = default;
};

constexpr const char* kCutOff = "collective without a number (Seq), of a trace that is cut off";

class Numbering {
 public:
  explicit Numbering(RunTrace& trace) : trace_(trace), has_numbers_(trace.groups.size()) {}

  void run() {
    for (const RankTrace& rank : trace_.ranks) scan(rank);
    std::vector<const char*> obstacles;
    for (std::size_t g = 0; g < trace_.groups.size(); ++g) obstacles.push_back(obstacle(g));
    for (RankTrace& rank : trace_.ranks) {
      std::vector<std::uint32_t> next(trace_.groups.size());
      for (Event& event : rank.events) {
        const std::optional<std::size_t> group = group_of(event);
        if (!group || event.detail != kNoDetail) continue;
        const char* const obstacle = rank.is_cut_off ? kCutOff : obstacles[*group];
        if (obstacle == nullptr) {
          event.detail = next[*group]++;
        } else {
          ++trace_.problems[obstacle];
        }
      }
    }
  }

 private:
  std::optional<std::size_t> group_of(const Event& event) const {
    const EventInfo& info = trace_.info(event);
    const bool is_one = trace::is_comm(info.kind) && !trace::is_point_to_point(info.kind) && info.group >= 0;
    return is_one ? std::optional(static_cast<std::size_t>(info.group)) : std::nullopt;
  }

  void scan(const RankTrace& rank) {
    std::unordered_map<std::size_t, Sequence>& sequences = sequences_.emplace_back();
    Steps& steps = steps_.emplace_back();
    for (const Event& event : rank.events) {
      if (trace_.info(event).kind == Kind::step) {
        steps.first = steps.first == kNoStep ? event.step : std::min(steps.first, event.step);
        steps.last = std::max(steps.last, event.step);
      } else if (const std::optional<std::size_t> group = group_of(event)) {
        if (event.detail == kNoDetail) {
          sequences[*group].add(trace_.info(event));
        } else {
          has_numbers_[*group] = 1;
        }
      }
    }
  }

  // Returns why the group's collectives cannot be numbered; nullptr: they can.
  const char* obstacle(std::size_t group) const {
    if (has_numbers_[group] != 0) return "collective without a number (Seq), which others of its group have";
    if (trace_.groups[group].ranks.empty()) {  // it may be several groups of one name
      return "collective without a number (Seq), of a group whose ranks are not known";
    }
    std::optional<std::size_t> first;
    for (const int member : trace_.groups[group].ranks) {
      const RankTrace* const rank = trace_.rank(member);
      if (rank == nullptr || rank->is_cut_off) continue;
      const auto r = static_cast<std::size_t>(rank - trace_.ranks.data());
      if (!first) first = r;
      if (sequence(r, group) != sequence(*first, group) || steps_[r] != steps_[*first])
        return "collective without a number (Seq), and other ranks hold other ones or other steps";
    }
    return nullptr;
  }

  Sequence sequence(std::size_t rank, std::size_t group) const {
    const auto found = sequences_[rank].find(group);
    return found == sequences_[rank].end() ? Sequence{} : found->second;
  }

  RunTrace& trace_;
  std::vector<char> has_numbers_;                                     // by group
  std::vector<std::unordered_map<std::size_t, Sequence>> sequences_;  // by index of rank, then by group
  std::vector<Steps> steps_;                                          // by index of rank
};

bool is_collective(const EventInfo& info) { return trace::is_comm(info.kind) && !trace::is_point_to_point(info.kind); }

// Returns whether ends of two ranks' collectives, in order, lie at one distance: members of a collective leave it
// together, whenever they came. Clocks may differ.
bool end_together(const std::vector<const Event*>& a, const std::vector<const Event*>& b) {
  constexpr double kTogetherNs = 100'000, kPart = 0.9;
  std::vector<double> distances;
  for (std::size_t i = 0; i < a.size(); ++i)
    distances.push_back(static_cast<double>(a[i]->end_ns()) - static_cast<double>(b[i]->end_ns()));
  std::vector<double> sorted = distances;
  const double middle = median(sorted);
  const auto near = std::ranges::count_if(distances, [&](double at) { return std::abs(at - middle) <= kTogetherNs; });
  return static_cast<double>(near) >= kPart * static_cast<double>(distances.size());
}

}  // namespace

void number_collectives(RunTrace& trace) { Numbering(trace).run(); }

void group_by_order(RunTrace& trace) {
  constexpr std::size_t kLeast = 8;
  if (trace.ranks.size() < 2 || std::ranges::any_of(trace.infos, [](const EventInfo& info) {
        return trace::is_comm(info.kind) && info.group >= 0;
      })) {
    return;
  }
  std::vector<const Event*> first, other;
  ProcessGroup all{.name = "all ranks, by the order of collectives", .ranks = {}, .axis = GroupAxis::world};
  for (const RankTrace& rank : trace.ranks) {
    if (rank.is_cut_off) continue;
    std::vector<const Event*>& events = all.ranks.empty() ? first : other;
    events.clear();
    for (const Event& event : rank.events)
      if (is_collective(trace.info(event))) events.push_back(&event);
    const auto kind = [&](const Event* event) { return trace.info(*event).kind; };
    if (events.size() < kLeast ||
        (&events == &other && (!std::ranges::equal(first, other, {}, kind, kind) || !end_together(first, other)))) {
      return;
    }
    all.ranks.push_back(rank.rank);
  }
  if (all.ranks.size() < 2) return;
  const std::int32_t group = Tables(trace).group(all);
  trace.groups[static_cast<std::size_t>(group)].is_guessed = true;
  for (EventInfo& info : trace.infos)
    if (is_collective(info)) info.group = group;
}

}  // namespace ms::tracepp
