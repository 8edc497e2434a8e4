#include "tracepp/export/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace ms::tracepp {
namespace {

// The lanes of a trace that ms wrote, from top to bottom of the picture.
enum class Lane : std::uint8_t { host, compute, tp, dp, pp, comms };
constexpr std::array<std::string_view, 6> kLaneNames{"host", "compute", "tp", "dp", "pp", "messages"};

Lane lane_of(const RunTrace& trace, const EventInfo& info) {
  if (trace::is_comm(info.kind)) {
    const GroupAxis axis = info.group < 0 ? GroupAxis::other : trace.groups[static_cast<std::size_t>(info.group)].axis;
    switch (axis) {
      case GroupAxis::tp: return Lane::tp;
      case GroupAxis::dp: return Lane::dp;
      case GroupAxis::pp: return Lane::pp;
      case GroupAxis::world:
      case GroupAxis::other: return Lane::comms;
    }
  }
  return trace::is_section(info.kind) || trace::is_op(info.kind) ? Lane::compute : Lane::host;
}

std::int64_t end_of(const Event& event) {
  return event.state == State::begun ? std::numeric_limits<std::int64_t>::max() : event.end_ns();
}

// Returns whether the event overlaps one of these, which begins later, without holding it.
bool crosses_later(const std::vector<std::pair<std::int64_t, std::int64_t>>& intervals, const Event& event) {
  for (auto later = intervals.rbegin(); later != intervals.rend() && later->first > event.begin_ns; ++later)
    if (later->first < end_of(event) && later->second > end_of(event)) return true;
  return false;
}

}  // namespace

bool ExportOptions::has_rank(int rank) const { return ranks.empty() || std::ranges::find(ranks, rank) != ranks.end(); }

void ChosenEvents::add(const RankTrace& rank, const ExportOptions& options) {
  const bool is_chosen = options.has_rank(rank.rank);
  for (const Event& event : rank.events) {
    const bool has_step = options.has_step(event.step);
    of_steps += has_step ? 1 : 0;
    events += has_step && is_chosen ? 1 : 0;
    if (event.step == kNoStep) continue;
    first_step = std::min(first_step, event.step);
    last_step = std::max(last_step, event.step);
  }
}

RankPicture picture_of(const RunTrace& trace, const RankTrace& rank, const ExportOptions& options) {
  RankTracks tracks;
  return picture_of(trace, rank, options, tracks);
}

RankPicture picture_of(const RunTrace& trace, const RankTrace& rank, const ExportOptions& options, RankTracks& tracks) {
  RankPicture picture;
  picture.events.reserve(rank.events.size());
  for (const Event& event : rank.events) {
    if (options.has_step(event.step)) picture.events.push_back({.event = &event});
  }
  const auto earlier = [](const Placed& a, const Placed& b) {
    if (a.event->begin_ns != b.event->begin_ns) return a.event->begin_ns < b.event->begin_ns;
    return end_of(*a.event) > end_of(*b.event);
  };
  if (!std::ranges::is_sorted(picture.events, earlier)) std::ranges::stable_sort(picture.events, earlier);

  const bool foreign = !rank.lanes.empty();
  constexpr std::size_t kMostForeign = 256;
  tracks.lanes.resize(foreign ? kMostForeign : kLaneNames.size());
  for (Placed& placed : picture.events) {
    const Event& event = *placed.event;
    const std::size_t number = foreign ? event.lane : static_cast<std::size_t>(lane_of(trace, trace.info(event)));
    RankTracks::Lane& lane = tracks.lanes[number];
    const bool has_begun = event.state != State::issued;
    std::size_t track = 0;
    for (; track < lane.ends.size(); ++track) {
      if (has_begun && (event.begin_ns < lane.begins[track] || crosses_later(lane.of_no_step[track], event))) continue;
      auto& open = lane.ends[track];
      while (!open.empty() && open.back() <= event.begin_ns) open.pop_back();
      if (open.empty() || open.back() >= end_of(event)) break;
    }
    if (track == lane.ends.size() && track < kMaxTracks) {
      const std::uint32_t shown = event.lane < rank.lanes.size() ? rank.lanes[event.lane] : 0;
      std::string name(foreign ? trace.strings.text(shown) : kLaneNames[number]);
      if (track > 0) name += fmt::format(" {}", track + 1);
      lane.ends.emplace_back();
      lane.begins.push_back(std::numeric_limits<std::int64_t>::min());
      lane.of_no_step.emplace_back();
      lane.tracks.push_back(static_cast<std::uint32_t>(tracks.tracks.size()));
      tracks.tracks.push_back({.name = std::move(name), .order = static_cast<int>(number * kMaxTracks + track)});
    }
    track = std::min(track, lane.ends.size() - 1);
    if (has_begun) {
      lane.ends[track].push_back(end_of(event));
      if (event.step == kNoStep) {
        lane.of_no_step[track].emplace_back(event.begin_ns, end_of(event));
      } else {
        lane.begins[track] = event.begin_ns;
      }
    }
    placed.track = lane.tracks[track];
  }
  picture.tracks = tracks.tracks;
  return picture;
}

std::string title_of(const RunTrace& trace, const RankTrace& rank) {
  std::string title = fmt::format("rank {}", rank.rank);
  if (trace.has_mesh) title += fmt::format(" (dp {} pp {} tp {})", rank.at.dp, rank.at.pp, rank.at.tp);
  if (!rank.host.empty()) title += " " + rank.host;
  return title;
}

std::string name_of(const RunTrace& trace, const EventInfo& info, std::uint16_t microbatch) {
  std::string name(trace.strings.text(info.name));
  if (name.empty()) {
    name = trace::to_string(info.kind);
    if (info.purpose != Purpose::none) name += fmt::format(" {}", trace::to_string(info.purpose));
  }
  if (info.chunk >= 0) name += fmt::format(" c{}", info.chunk);
  if (microbatch != kNoMicrobatch) name += fmt::format(" m{}", microbatch);
  return name;
}

std::uint64_t arrow_of(const EventInfo& info, const Event& event) {
  if (!trace::is_point_to_point(info.kind) || info.group < 0 || event.detail == kNoDetail ||
      event.state != State::ended) {
    return 0;
  }
  return static_cast<std::uint64_t>(info.group + 1) << 32 | event.detail;
}

Arrows::Arrows(const RunTrace& trace) {
  std::vector<std::uint64_t> sends, recvs;
  for (const RankTrace& rank : trace.ranks) {
    for (const Event& event : rank.events) {
      const EventInfo& info = trace.info(event);
      const std::uint64_t arrow = arrow_of(info, event);
      if (arrow != 0) (info.kind == Kind::send ? sends : recvs).push_back(arrow);
    }
  }
  std::ranges::sort(sends);
  std::ranges::sort(recvs);
  std::ranges::set_intersection(sends, recvs, std::back_inserter(matched_));
}

std::uint64_t Arrows::of(const EventInfo& info, const Event& event) const {
  const std::uint64_t arrow = arrow_of(info, event);
  return arrow != 0 && std::ranges::binary_search(matched_, arrow) ? arrow : 0;
}

}  // namespace ms::tracepp
