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
      case GroupAxis::tp:
        return Lane::tp;
      case GroupAxis::dp:
        return Lane::dp;
      case GroupAxis::pp:
        return Lane::pp;
      case GroupAxis::world:
      case GroupAxis::other:
        return Lane::comms;
    }
  }
  return trace::is_section(info.kind) || trace::is_op(info.kind) ? Lane::compute : Lane::host;
}

std::int64_t end_of(const Event& event) {
  return event.state == State::begun ? std::numeric_limits<std::int64_t>::max() : event.end_ns();
}

// The tracks of one lane: what is open on each.
struct Stacks {
  std::vector<std::vector<std::int64_t>> ends;
  std::vector<std::uint32_t> tracks;
};

}  // namespace

bool ExportOptions::has_rank(int rank) const { return ranks.empty() || std::ranges::find(ranks, rank) != ranks.end(); }

RankPicture picture_of(const RunTrace& trace, const RankTrace& rank, const ExportOptions& options) {
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

  std::vector<Stacks> lanes(256);
  const bool foreign = !rank.lanes.empty();
  for (Placed& placed : picture.events) {
    const Event& event = *placed.event;
    const std::size_t lane = foreign ? event.lane : static_cast<std::size_t>(lane_of(trace, trace.info(event)));
    Stacks& stacks = lanes[lane];
    std::size_t track = 0;
    for (; track < stacks.ends.size(); ++track) {
      auto& open = stacks.ends[track];
      while (!open.empty() && open.back() <= event.begin_ns) open.pop_back();
      if (open.empty() || open.back() >= end_of(event)) break;
    }
    if (track == stacks.ends.size() && track < kMaxTracks) {
      const std::uint32_t shown = event.lane < rank.lanes.size() ? rank.lanes[event.lane] : 0;
      std::string name(foreign ? trace.strings.text(shown) : kLaneNames[lane]);
      if (track > 0) name += fmt::format(" {}", track + 1);
      stacks.ends.emplace_back();
      stacks.tracks.push_back(static_cast<std::uint32_t>(picture.tracks.size()));
      picture.tracks.push_back({.name = std::move(name), .order = static_cast<int>(lane * kMaxTracks + track)});
    }
    track = std::min(track, stacks.ends.size() - 1);
    if (event.state != State::issued) stacks.ends[track].push_back(end_of(event));
    placed.track = stacks.tracks[track];
  }
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

namespace {

std::uint64_t arrow_of(const EventInfo& info, const Event& event) {
  if (!trace::is_point_to_point(info.kind) || info.group < 0 || event.detail == kNoDetail ||
      event.state != State::ended) {
    return 0;
  }
  return static_cast<std::uint64_t>(info.group + 1) << 32 | event.detail;
}

}  // namespace

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
