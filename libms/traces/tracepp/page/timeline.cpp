// Implements timeline_data of page.h: the events of the shown ranks by track, and the arrows between them.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <unordered_map>

#include "base/escape.h"
#include "tracepp/export/lanes.h"
#include "tracepp/page/page.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kName = 120;  // limit for bytes of a name

std::string short_name(std::string_view text) {
  if (text.size() <= kName) return safe_line(text);
  text = text.substr(0, kName);
  return safe_line(text.substr(0, whole_utf8_bytes(text))) + "...";
}

// Collects the events of all tracks.
class TimelineData {
 public:
  TimelineData(const RunTrace& trace, const ExportOptions& shown) : trace_(trace), shown_(shown), arrows_(trace) {
    for (const RankTrace& rank : trace.ranks) {
      if (!shown.has_rank(rank.rank)) continue;
      for (const Event& event : rank.events) {
        if (!shown.has_step(event.step) || event.state == State::issued) continue;
        origin_ns_ = std::min(origin_ns_, event.begin_ns);
        last_ns_ = std::max({last_ns_, event.begin_ns, event.end_ns()});
      }
    }
  }

  Json take(Columns& columns) {
    Json tracks = Json::array();
    for (std::size_t r = 0; r < trace_.ranks.size(); ++r)
      if (shown_.has_rank(trace_.ranks[r].rank)) add_rank(r, tracks);
    columns.add("event.begin", std::span<const double>(begin_));
    columns.add("event.length", std::span<const float>(length_));
    columns.add("event.info", std::span<const std::uint32_t>(info_));
    columns.add("event.microbatch", std::span<const std::uint16_t>(microbatch_));
    columns.add("event.step", std::span<const std::int32_t>(step_));
    columns.add("event.open", std::span<const std::uint8_t>(open_));
    columns.add("launches", std::span<const std::uint32_t>(launches_));
    columns.add("arrows", std::span<const std::uint32_t>(pairs_of_arrows()));
    // As text: a number of JavaScript is not that exact.
    return {{"tracks", std::move(tracks)}, {"infos", std::move(infos_)}, {"origin_ns", std::to_string(origin_ns_)}};
  }

 private:
  void add_rank(std::size_t r, Json& tracks) {
    const RankPicture picture = picture_of(trace_, trace_.ranks[r], shown_);
    std::vector<std::vector<const Event*>> by_track(picture.tracks.size());
    for (const Placed& placed : picture.events)
      if (placed.event->state != State::issued) by_track[placed.track].push_back(placed.event);
    std::vector<std::size_t> order(by_track.size());
    for (std::size_t t = 0; t < order.size(); ++t) order[t] = t;
    std::ranges::stable_sort(order, {}, [&](std::size_t t) { return picture.tracks[t].order; });
    for (const std::size_t t : order) {
      if (by_track[t].empty()) continue;
      tracks.push_back({{"rank", r},
                        {"name", short_name(picture.tracks[t].name)},
                        {"first", begin_.size()},
                        {"count", by_track[t].size()}});
      for (const Event* event : by_track[t]) {
        places_[event] = static_cast<std::uint32_t>(begin_.size());
        add(*event);
      }
    }
    const RankTrace& rank = trace_.ranks[r];
    for (const Launch& launch : rank.launches) {
      const auto call = places_.find(&rank.events[launch.call]), work = places_.find(&rank.events[launch.event]);
      if (call != places_.end() && work != places_.end())
        launches_.insert(launches_.end(), {call->second, work->second});
    }
    places_.clear();
  }

  void add(const Event& event) {
    const EventInfo& info = trace_.info(event);
    if (const std::uint64_t arrow = arrows_.of(info, event); arrow != 0)
      (info.kind == Kind::send ? sends_ : receives_)[arrow] = static_cast<std::uint32_t>(begin_.size());
    const bool is_open = event.state == State::begun;
    const std::int64_t length_ns = is_open ? last_ns_ - event.begin_ns : event.duration_ns;
    begin_.push_back(seconds(event.begin_ns - origin_ns_));
    length_.push_back(static_cast<float>(seconds(std::max<std::int64_t>(0, length_ns))));
    info_.push_back(info_id(event.info));
    microbatch_.push_back(event.microbatch);
    step_.push_back(event.step);
    open_.push_back(is_open ? 1 : 0);
  }

  // Returns the number of an event's properties in the page: only those that occur are in it.
  std::uint32_t info_id(std::uint32_t index) {
    const auto [at, is_new] = ids_.try_emplace(index, static_cast<std::uint32_t>(infos_.size()));
    if (!is_new) return at->second;
    const EventInfo& info = trace_.infos[index];
    Json json{{"name", short_name(name_of(trace_, info, kNoMicrobatch))}, {"kind", trace::to_string(info.kind)}};
    if (info.group >= 0) {
      const ProcessGroup& group = trace_.groups[static_cast<std::size_t>(info.group)];
      json.update({{"group", short_name(group.name)}, {"axis", trace::to_string(group.axis)}});
    }
    if (info.size_bytes >= 0 && info.origin != Origin::op) json["bytes"] = info.size_bytes;
    static constexpr std::array<std::string_view, 8> kRows{"", "", "copy", "", "op", "annotation", "python", "call"};
    if (const std::string_view row = kRows[static_cast<std::size_t>(info.origin)]; !row.empty()) json["row"] = row;
    infos_.push_back(std::move(json));
    return at->second;
  }

  // Returns the events of each send and its receive.
  std::vector<std::uint32_t> pairs_of_arrows() const {
    std::vector<std::uint32_t> pairs;
    for (const auto& [arrow, send] : sends_) {
      const auto receive = receives_.find(arrow);
      if (receive != receives_.end()) pairs.insert(pairs.end(), {send, receive->second});
    }
    return pairs;
  }

  const RunTrace& trace_;
  const ExportOptions& shown_;
  Arrows arrows_;
  std::int64_t origin_ns_ = std::numeric_limits<std::int64_t>::max(), last_ns_ = 0;
  std::vector<double> begin_;
  std::vector<float> length_;
  std::vector<std::uint32_t> info_;
  std::vector<std::uint16_t> microbatch_;
  std::vector<std::int32_t> step_;
  std::vector<std::uint8_t> open_;
  std::unordered_map<const Event*, std::uint32_t> places_;  // of the rank in hand
  std::vector<std::uint32_t> launches_;                     // pairs: the call, and the kernel or copy
  std::map<std::uint64_t, std::uint32_t> sends_, receives_;
  std::unordered_map<std::uint32_t, std::uint32_t> ids_;  // by index in RunTrace::infos
  Json infos_ = Json::array();
};

}  // namespace

Json timeline_data(const RunTrace& trace, const ExportOptions& shown, Columns& columns) {
  return TimelineData(trace, shown).take(columns);
}

}  // namespace ms::tracepp
