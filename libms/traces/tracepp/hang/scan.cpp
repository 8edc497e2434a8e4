#include "tracepp/hang/scan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>

#include "tracepp/parallel.h"

namespace ms::tracepp {
namespace {

constexpr double kFarLonger = 10;  // times the usual
constexpr double kBeyond_s = 5;    // more than the longest that was ever seen
// The patience for the first operation of its kind, in which libraries load and connections open.
constexpr double kFirst_s = 30;
constexpr double kFirstSave_s = 600;
// Writers flush every second; a loaded machine may be late.
constexpr double kSilent_s = 5, kSilentAtLeast_s = 2.5;
constexpr std::size_t kKeys =
    static_cast<std::size_t>(trace::kKinds) * static_cast<std::size_t>(trace::kPurposes) * trace::kGroupAxes;

int bucket_of(std::int64_t duration_ns) {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(duration_ns, 4));
  const int octave = static_cast<int>(std::bit_width(value)) - 1;
  return octave * 4 + static_cast<int>(value >> (octave - 2) & 3);
}

double bucket_s(int bucket) {
  return static_cast<double>((4ULL + static_cast<unsigned>(bucket % 4)) << (bucket / 4 - 2)) * 1e-9;
}

// Returns whether a rank has a trace that shows what it did last.
bool has_trace(const RunTrace& trace, int rank) {
  const RankTrace* const found = trace.rank(rank);
  return found != nullptr && !found->is_cut_off;
}

}  // namespace

std::vector<int> missing_ranks(const RunTrace& trace) {
  constexpr int kMost = 1 << 22;  // no run is larger: beyond it the mesh is a mistake in the file
  std::vector<int> missing;
  if (trace.records_mesh() && trace.mesh.size() <= kMost) {
    for (int rank = 0; rank < trace.mesh.size(); ++rank)
      if (!has_trace(trace, rank)) missing.push_back(rank);
  }
  for (const ProcessGroup& group : trace.groups) {
    if (trace.records_mesh()) break;
    for (const int rank : group.ranks)
      if (!has_trace(trace, rank)) missing.push_back(rank);
  }
  std::ranges::sort(missing);
  missing.erase(std::ranges::unique(missing).begin(), missing.end());
  return missing;
}

bool anything_late(const HangScan& scan) {
  for (std::size_t at = 0; at < scan.count(); ++at) {
    const RankScan& rank = scan.rank(at);
    if (rank.life == Life::silent || rank.life == Life::failed) continue;
    const auto late = [&](std::uint32_t event) { return event != kNoEvent && scan.is_late(at, event); };
    if (late(rank.section) || late(rank.host) || std::ranges::any_of(rank.open, late)) return true;
  }
  return false;
}

const Seat* RankScan::seat(std::int32_t group) const {
  const auto group_of = [&](std::uint32_t place) { return seats[place].group; };
  const auto found = std::ranges::lower_bound(seats_by_group, group, {}, group_of);
  return found == seats_by_group.end() || group_of(*found) != group ? nullptr : &seats[*found];
}

HangScan::Usual& HangScan::Usuals::at(std::size_t key) {
  if (place.empty()) place.assign(kKeys, -1);
  if (place[key] < 0) {
    place[key] = static_cast<std::int32_t>(of.size());
    of.emplace_back();
  }
  return of[static_cast<std::size_t>(place[key])];
}

// Returns the index of the kind, purpose and axis. Operations with the same index take about equally long.
std::size_t HangScan::key(const EventInfo& info) const {
  const std::size_t groups = trace_.groups.size();
  const auto group = static_cast<std::size_t>(info.group);
  const auto axis = info.group >= 0 && group < groups ? trace_.groups[group].axis : GroupAxis::other;
  const auto kind = std::min<std::size_t>(static_cast<std::size_t>(info.kind), trace::kKinds - 1);
  const auto purpose = std::min<std::size_t>(static_cast<std::size_t>(info.purpose), trace::kPurposes - 1);
  return (kind * trace::kPurposes + purpose) * trace::kGroupAxes + static_cast<std::size_t>(axis);
}

HangScan::HangScan(const RunTrace& trace) : trace_(trace), ranks_(trace.ranks.size()), issued_(trace.ranks.size()) {
  deadline_s_ = longest_wait_s();
  std::vector<std::uint16_t> keys(trace.infos.size());
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::uint16_t>(key(trace.infos[i]));
  std::vector<Usuals> parts;
  std::mutex parts_guard;  // guards parts
  in_blocks(ranks_.size(), [&](std::size_t begin, std::size_t end) {
    Desk desk;
    desk.places.assign(trace_.groups.size(), 0);
    for (std::size_t at = begin; at < end; ++at) scan(at, keys, desk);
    const std::scoped_lock lock(parts_guard);
    parts.push_back(std::move(desk.usuals));
  });
  find_usual(parts);
  find_silent();
  find_life();
}

void HangScan::scan(std::size_t at, const std::vector<std::uint16_t>& keys, Desk& desk) {
  RankScan& rank = ranks_[at];
  const std::vector<Event>& events = file(at).events;
  const auto seat = [&](std::int32_t group) -> Seat& {
    std::uint32_t& place = desk.places[static_cast<std::size_t>(group)];
    if (place == 0) {
      rank.seats.push_back({.group = group});
      place = static_cast<std::uint32_t>(rank.seats.size());
    }
    return rank.seats[place - 1];
  };
  std::int64_t last_end = 0;
  // A rank that the stop of the world releases continues for a moment. Its events then tell nothing of the hang.
  const bool closed = deadline_s_ > 0 && has_error(file(at).ending);
  const std::int64_t to_ns = closed ? file(at).last_flush_ns - static_cast<std::int64_t>(deadline_s_ / 4 * 1e9)
                                    : std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.begin_ns > to_ns) continue;
    const EventInfo& info = trace_.infos[event.info];
    const bool ended = event.state == State::ended && event.end_ns() <= to_ns;
    const bool is_comm = trace::is_comm(info.kind);
    const bool section = trace::is_section(info.kind);
    const bool host = info.kind == Kind::data_wait || info.kind == Kind::save;
    if (!is_comm && !section && !host) continue;
    const auto index = static_cast<std::uint32_t>(i);
    if (ended) {
      Usual& usual = desk.usuals.at(keys[event.info]);
      ++usual.count;
      usual.longest_ns = std::max(usual.longest_ns, event.duration_ns);
      ++usual.buckets[static_cast<std::size_t>(bucket_of(event.duration_ns))];
      if (rank.last == kNoEvent || event.end_ns() >= last_end) {
        rank.last = index;
        last_end = event.end_ns();
      }
    } else if (section) {
      std::uint32_t& first = event.state == State::issued ? rank.next_section : rank.section;
      if (first == kNoEvent) first = index;
    } else if (host && event.state != State::issued) {
      rank.host = index;
    }
    if (!is_comm || info.group < 0 || static_cast<std::size_t>(info.group) >= trace_.groups.size()) continue;
    Seat& in = seat(info.group);
    in.newest = std::max<std::int64_t>(in.newest, event.detail);
    if (ended) {
      in.newest_ended = std::max<std::int64_t>(in.newest_ended, event.detail);
    } else {
      rank.open.push_back(index);
      rank.open_by_group.push_back({info.group, event.detail, index});
      if (in.open == kNoEvent || event.detail < events[in.open].detail) in.open = index;
    }
  }
  for (const auto& [group, number] : file(at).newest) {
    Seat& in = seat(group);
    in.newest = std::max(in.newest, number);
  }
  std::ranges::sort(rank.open_by_group);
  for (std::uint32_t i = 0; i < rank.seats.size(); ++i) {
    rank.seats_by_group.push_back(i);
    desk.places[static_cast<std::size_t>(rank.seats[i].group)] = 0;
  }
  std::ranges::sort(rank.seats_by_group, {}, [&](std::uint32_t place) { return rank.seats[place].group; });
}

void HangScan::find_usual(const std::vector<Usuals>& parts) {
  patience_s_.assign(kKeys, kFirst_s);
  for (std::size_t key = 0; key < kKeys; ++key) {
    const bool save =
        key / (static_cast<std::size_t>(trace::kPurposes) * trace::kGroupAxes) == static_cast<std::size_t>(Kind::save);
    if (save) patience_s_[key] = kFirstSave_s;
    Usual sum;
    for (const Usuals& part : parts) {
      if (part.place.empty() || part.place[key] < 0) continue;
      const Usual& one = part.of[static_cast<std::size_t>(part.place[key])];
      sum.count += one.count;
      sum.longest_ns = std::max(sum.longest_ns, one.longest_ns);
      for (std::size_t i = 0; i < sum.buckets.size(); ++i) sum.buckets[i] += one.buckets[i];
    }
    if (sum.count == 0) continue;
    int median = 0;
    for (std::uint64_t below = 0; median + 1 < kBuckets; ++median) {
      below += sum.buckets[static_cast<std::size_t>(median)];
      if (below * 2 >= sum.count) break;
    }
    const double seen_s =
        std::max(kFarLonger * bucket_s(median), static_cast<double>(sum.longest_ns) * 1e-9 + kBeyond_s);
    patience_s_[key] = save ? std::max(seen_s, kFirstSave_s) : seen_s;
  }
  // A rank that gave up at its deadline was patient enough: what it waited for lasted about as long.
  if (deadline_s_ > 0)
    for (double& patience_s : patience_s_) patience_s = std::min(patience_s, deadline_s_ / 2);
}

double HangScan::longest_wait_s() const {
  double longest_s = 0;
  for (std::size_t at = 0; at < count(); ++at) {
    if (file(at).ending != Ending::timed_out) continue;
    for (const Event& event : file(at).events)
      if (event.state == State::begun && trace::is_comm(trace_.info(event).kind))
        longest_s = std::max(longest_s, static_cast<double>(file(at).last_flush_ns - event.begin_ns) * 1e-9);
  }
  return longest_s;
}

std::int64_t HangScan::wall_ns(std::size_t at, std::int64_t time_ns) const {
  const RankTrace& rank = file(at);
  return rank.realtime_ns == 0 ? time_ns : rank.realtime_ns + (time_ns - rank.clock_ns);
}

// Returns how far this rank's wall clock is ahead of a peer's at the end of an operation that both took part in;
// nothing if there is none. Skips peers that are candidates, too.
std::optional<std::int64_t> HangScan::clock_difference_ns(std::size_t at, const std::vector<char>& is_candidate) const {
  constexpr std::size_t kPeersAsked = 8;
  for (const Seat& seat : ranks_[at].seats) {
    if (seat.newest_ended < 0) continue;
    const auto sequence = static_cast<std::uint32_t>(seat.newest_ended);
    const std::uint32_t mine = find_event(at, seat.group, sequence);
    std::size_t asked = 0;
    for (const int peer : trace_.groups[static_cast<std::size_t>(seat.group)].ranks) {
      const std::optional<std::size_t> other = find(peer);
      if (mine == kNoEvent || !other || is_candidate[*other] != 0) continue;
      const std::uint32_t theirs = find_event(*other, seat.group, sequence);
      if (theirs != kNoEvent && file(*other).events[theirs].state == State::ended)
        return wall_ns(at, file(at).events[mine].end_ns()) - wall_ns(*other, file(*other).events[theirs].end_ns());
      if (++asked == kPeersAsked) break;
    }
  }
  return std::nullopt;
}

// Finds the silent ranks. Only the writer of ms records a sign of life at regular intervals. Whoever wrote how it ended
// was not silent, even if one that was stalled wrote long after it.
void HangScan::find_silent() {
  if (!trace_.source->signs_life || ranks_.empty()) return;
  const double patience_s = deadline_s_ > 0 ? std::clamp(deadline_s_ / 2, kSilentAtLeast_s, kSilent_s) : kSilent_s;
  std::vector<std::int64_t> newest(count());
  for (std::size_t at = 0; at < count(); ++at) newest[at] = last_sign_ns(at);
  // Not the newest of all: a few clocks may be ahead. A quarter of the ranks suffices to show that the run went on.
  std::vector<std::int64_t> sorted = newest;
  const auto reference = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() * 3 / 4);
  std::ranges::nth_element(sorted, reference);
  std::vector<char> is_candidate(count(), 0);
  for (std::size_t at = 0; at < count(); ++at) {
    const bool has_ended = has_error(file(at).ending) || file(at).ending == Ending::done;
    is_candidate[at] = !has_ended && static_cast<double>(*reference - newest[at]) > patience_s * 1e9 ? 1 : 0;
  }
  for (std::size_t at = 0; at < count(); ++at) {
    if (is_candidate[at] == 0) continue;
    const std::optional<std::int64_t> difference = clock_difference_ns(at, is_candidate);
    if (!difference && file(at).realtime_ns == 0) continue;
    const double silent_s = static_cast<double>(*reference - newest[at] + difference.value_or(0)) * 1e-9;
    if (silent_s <= patience_s) continue;
    ranks_[at].life = Life::silent;
    ranks_[at].silent_s = silent_s;
  }
}

// Finds out how each rank ended. A rank that failed after a long wait only gave up first: it counts as waiting.
void HangScan::find_life() {
  for (std::size_t at = 0; at < count(); ++at) {
    RankScan& rank = ranks_[at];
    if (file(at).ending == Ending::done) rank.life = Life::left;
    if (file(at).ending != Ending::failed) continue;
    const bool gave_up = std::ranges::any_of(rank.open, [&](std::uint32_t event) { return is_late(at, event); });
    rank.life = gave_up ? Life::alive : Life::failed;
  }
}

std::optional<std::size_t> HangScan::find(int rank) const {
  const RankTrace* const found = trace_.rank(rank);
  if (found == nullptr || found->is_cut_off) return std::nullopt;
  return static_cast<std::size_t>(found - trace_.ranks.data());
}

bool HangScan::is_ready(std::size_t at, std::uint32_t event) const {
  return file(at).events[event].state != State::issued;
}

double HangScan::since_s(std::size_t at, std::uint32_t event) const {
  const Event& it = file(at).events[event];
  if (!is_ready(at, event)) return -1;
  const double since_s = std::max(0.0, static_cast<double>(file(at).last_flush_ns - it.begin_ns) * 1e-9);
  constexpr double kAtLeast_s = 1;  // less of a lower bound tells nothing
  return file(at).is_flush_time_known || since_s >= kAtLeast_s ? since_s : -1;
}

const std::vector<Issued>& HangScan::issued(std::size_t at) const {
  std::vector<Issued>& all = issued_[at];
  if (!all.empty()) return all;
  const std::vector<Event>& events = file(at).events;
  for (std::uint32_t i = 0; i < events.size(); ++i) {
    const EventInfo& info = trace_.infos[events[i].info];
    if (trace::is_comm(info.kind)) all.push_back({info.group, events[i].detail, i});
  }
  std::ranges::sort(all);
  return all;
}

std::uint32_t HangScan::find_event(std::size_t at, std::int32_t group, std::uint32_t sequence) const {
  constexpr std::size_t kNear = 4096;  // events; asked about are nearly always some of the newest
  const std::vector<Event>& events = file(at).events;
  const std::size_t far = events.size() - std::min(events.size(), kNear);
  for (std::size_t i = events.size(); i-- > far;) {
    const EventInfo& info = trace_.infos[events[i].info];
    if (info.group != group || !trace::is_comm(info.kind)) continue;
    if (events[i].detail == sequence) return static_cast<std::uint32_t>(i);
    if (events[i].detail < sequence) return kNoEvent;  // a rank numbers them as it issues them
  }
  if (far == 0) return kNoEvent;
  const std::vector<Issued>& all = issued(at);
  const auto behind = std::ranges::upper_bound(all, Issued{group, sequence, kNoEvent});
  if (behind == all.begin() || (behind - 1)->group != group || (behind - 1)->sequence != sequence) return kNoEvent;
  return (behind - 1)->event;
}

Progress HangScan::progress(std::size_t at, std::int32_t group, std::uint32_t sequence) const {
  const Seat* const seat = ranks_[at].seat(group);
  if (seat == nullptr || seat->newest < static_cast<std::int64_t>(sequence)) return Progress::not_issued;
  const std::vector<Issued>& open = ranks_[at].open_by_group;
  const auto found = std::ranges::lower_bound(open, Issued{group, sequence, 0});
  if (found == open.end() || found->group != group || found->sequence != sequence) return Progress::ended;
  return is_ready(at, found->event) ? Progress::begun : Progress::issued;
}

}  // namespace ms::tracepp
