// Implements perfetto.h, and export_perfetto of export.h.
#include "tracepp/export/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "trace/protobuf.h"

namespace ms::tracepp {
namespace {

// The fields of Perfetto's trace.proto that are used here.
namespace field {
constexpr unsigned kTracePacket = 1;
constexpr unsigned kClockSnapshot = 6, kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInternedData = 12,
                   kSequenceFlags = 13, kClockId = 58, kDefaults = 59, kTrackDescriptor = 60;  // TracePacket
constexpr unsigned kClock = 1;                                                                 // ClockSnapshot
constexpr unsigned kClockNumber = 1, kClockTime = 2, kIsIncremental = 3;                       // Clock
constexpr unsigned kTrackEventDefaults = 11;                                                   // TracePacketDefaults
constexpr unsigned kEventName = 2, kIid = 1, kText = 2;                                        // InternedData
constexpr unsigned kUuid = 1, kTrackName = 2, kParent = 5, kOrdering = 11, kOrder = 12;        // TrackDescriptor
constexpr unsigned kType = 9, kNameIid = 10, kTrack = 11, kFlow = 47, kFlowEnd = 48;           // TrackEvent
}  // namespace field
constexpr std::uint64_t kSliceBegin = 1, kSliceEnd = 2, kInstant = 3;
constexpr std::uint64_t kStateCleared = 1, kExplicitOrder = 3;
// The clock of the trace, and the first of as many that a sequence has of its own, told in differences.
constexpr std::uint64_t kBoottime = 6, kIncremental = 64, kIncrementals = 64;

using trace::protobuf::add_bytes;
using trace::protobuf::add_fixed;
using trace::protobuf::add_number;

}  // namespace

std::uint64_t PerfettoRun::track_of(int rank, std::size_t track) {
  return tracks_.try_emplace({rank, track}, tracks_.size() + 1).first->second;
}

PerfettoRun::Place PerfettoRun::place_of(std::uint64_t track, int lane) {
  const auto [place, is_new] = places_.try_emplace(track);
  if (is_new) {
    Place& newest = newest_[lane];
    const bool is_full = newest.sequence == 0 || newest.clock + 1 == kIncrementals;
    newest = is_full ? Place{.sequence = ++sequences_, .clock = 0}
                     : Place{.sequence = newest.sequence, .clock = newest.clock + 1};
    place->second = newest;
  }
  return place->second;
}

std::uint64_t PerfettoRun::channel_of(const ProcessGroup& group) {
  return channels_.try_emplace({group.name, group.ranks}, channels_.size() + 1).first->second;
}

PerfettoFile::PerfettoFile(PerfettoRun& run, const RunTrace& trace, const Arrows* arrows, const std::string& path)
    : run_(run), trace_(trace), arrows_(arrows), channels_(trace.groups.size()), file_(path) {}

void PerfettoFile::add_packet() {
  add_bytes(file_.text(), field::kTracePacket, packet_);
  packet_.clear();
  file_.flush();
}

void PerfettoFile::write_track(std::uint64_t uuid, std::uint64_t parent, std::string_view name, int order) {
  part_.clear();
  add_number(part_, field::kUuid, uuid);
  add_bytes(part_, field::kTrackName, name);
  if (parent != 0) {
    add_number(part_, field::kParent, parent);
  } else {
    add_number(part_, field::kOrdering, kExplicitOrder);  // of its children
  }
  add_number(part_, field::kOrder, static_cast<std::uint64_t>(order));
  add_bytes(packet_, field::kTrackDescriptor, part_);
  add_packet();
}

void PerfettoFile::begin_track(std::uint64_t track, int lane, std::int64_t time_ns) {
  const PerfettoRun::Place place = run_.place_of(track, lane);
  const auto [sequence, is_new] = sequences_.try_emplace(place.sequence);
  sequence_ = &sequence->second;
  sequence_->id = place.sequence;
  const std::uint64_t own = kIncremental + place.clock;
  time_ns_ = time_ns;
  const auto clock = [time_ns](std::uint64_t number, bool incremental) {
    std::string text;
    add_number(text, field::kClockNumber, number);
    add_number(text, field::kClockTime, static_cast<std::uint64_t>(time_ns));
    if (incremental) add_number(text, field::kIsIncremental, 1);
    return text;
  };
  add_number(packet_, field::kSequence, sequence_->id);
  if (is_new) add_number(packet_, field::kSequenceFlags, kStateCleared);
  std::string part;
  add_bytes(part, field::kClock, clock(own, true));
  add_bytes(part, field::kClock, clock(kBoottime, false));
  add_bytes(packet_, field::kClockSnapshot, part);
  std::string defaults;
  add_number(defaults, field::kTrack, track);
  part.clear();
  add_number(part, field::kClockId, own);
  add_bytes(part, field::kTrackEventDefaults, defaults);
  add_bytes(packet_, field::kDefaults, part);
  add_packet();
}

void PerfettoFile::add_event(std::int64_t time_ns, std::uint64_t type) {
  add_number(packet_, field::kTimestamp, static_cast<std::uint64_t>(time_ns - time_ns_));
  time_ns_ = time_ns;
  add_number(packet_, field::kSequence, sequence_->id);
  add_number(part_, field::kType, type);
  add_bytes(packet_, field::kTrackEvent, part_);
  add_packet();
}

// An arrow leads to an instant at the end of the receive. Perfetto takes the slice that begins first for the source of
// an arrow, and drops an arrow that ends before it begins: most receives begin before their send.
void PerfettoFile::end_until(std::int64_t time_ns) {
  while (!open_.empty() && open_.back().end_ns <= time_ns) {
    const auto [end_ns, arrow] = open_.back();
    part_.clear();
    if (arrow != 0) {
      add_number(part_, field::kNameIid, intern("arrived"));
      add_fixed(part_, field::kFlowEnd, arrow);
      arrow_ends_.push_back(arrow);
      add_event(end_ns, kInstant);
      part_.clear();
    }
    add_event(end_ns, kSliceEnd);
    open_.pop_back();
  }
}

void PerfettoFile::count(const Event& event, std::int64_t time_ns) {
  begin_ns_ = events_ == 0 ? time_ns : std::min(begin_ns_, time_ns);
  end_ns_ = std::max(end_ns_, time_ns + event.duration_ns);
  ++events_;
}

std::uint64_t PerfettoFile::cut_arrows() {
  std::ranges::sort(arrow_ends_);
  std::uint64_t cut = 0;
  for (auto at = arrow_ends_.begin(); at != arrow_ends_.end();) {
    const auto next = std::upper_bound(at, arrow_ends_.end(), *at);
    cut += next - at == 1 ? 1 : 0;
    at = next;
  }
  return cut;
}

void PerfettoFile::add(std::size_t rank, const RankPicture& picture, std::int32_t first_step, std::int32_t last_step) {
  const RankTrace& of = trace_.ranks[rank];
  std::vector<std::vector<const Event*>> by_track(picture.tracks.size());
  bool has_any = false;
  for (const Placed& placed : picture.events) {
    if (placed.event->step < first_step || placed.event->step > last_step) continue;
    by_track[placed.track].push_back(placed.event);
    has_any = true;
  }
  if (!has_any) return;
  const std::uint64_t root = run_.track_of(of.rank, 0);
  write_track(root, 0, title_of(trace_, of), of.rank);
  for (std::size_t t = 0; t < by_track.size(); ++t) {
    if (by_track[t].empty()) continue;
    const std::uint64_t track = run_.track_of(of.rank, 1 + t);
    const int order = picture.tracks[t].order;
    write_track(track, root, picture.tracks[t].name, order);
    write_events(by_track[t], track, order / static_cast<int>(kMaxTracks), of.last_flush_ns);
  }
}

void PerfettoFile::write_events(const std::vector<const Event*>& events, std::uint64_t track, int lane,
                                std::int64_t last_flush_ns) {
  bool has_begun = false;
  const auto begin = [&](std::int64_t time_ns) {
    if (!has_begun) begin_track(track, lane, time_ns);
    has_begun = true;
  };
  for (const Event* const event : events) {
    if (event->state == State::issued) continue;  // below: they come last
    const std::int64_t time_ns = event->begin_ns - run_.origin_ns;
    begin(time_ns);
    end_until(time_ns);
    const std::uint64_t arrow = begin_slice(*event, time_ns, kSliceBegin);
    if (event->state == State::ended) open_.push_back({.end_ns = time_ns + event->duration_ns, .arrow = arrow});
    count(*event, time_ns);
  }
  end_until(std::numeric_limits<std::int64_t>::max());
  for (const Event* const event : events) {
    if (event->state != State::issued) continue;
    const std::int64_t flushed_ns = last_flush_ns - run_.origin_ns;
    const std::int64_t time_ns = has_begun ? std::max(time_ns_, flushed_ns) : std::max(flushed_ns, std::int64_t{0});
    begin(time_ns);
    begin_slice(*event, time_ns, kInstant);
    count(*event, time_ns);
  }
}

std::uint64_t PerfettoFile::flow_of(const Event& event, const EventInfo& info) {
  if ((arrows_ == nullptr ? arrow_of(info, event) : arrows_->of(info, event)) == 0) return 0;
  const auto group = static_cast<std::size_t>(info.group);
  if (channels_[group] == 0) channels_[group] = run_.channel_of(trace_.groups[group]);
  return channels_[group] << 32 | event.detail;
}

std::uint64_t PerfettoFile::name_iid(const Event& event, const EventInfo& info) {
  const auto [known, is_new] = sequence_->known.try_emplace(std::uint64_t{event.info} << 16 | event.microbatch, 0);
  // Groups of different ranks have events of the same name.
  if (is_new) known->second = intern(name_of(trace_, info, event.microbatch));
  return known->second;
}

std::uint64_t PerfettoFile::intern(std::string text) {
  const auto [name, is_new] = sequence_->names.try_emplace(std::move(text), sequence_->names.size() + 1);
  if (is_new) {
    std::string entry;
    add_number(entry, field::kIid, name->second);
    add_bytes(entry, field::kText, name->first);
    std::string interned;
    add_bytes(interned, field::kEventName, entry);
    add_bytes(packet_, field::kInternedData, interned);
  }
  return name->second;
}

std::uint64_t PerfettoFile::begin_slice(const Event& event, std::int64_t time_ns, std::uint64_t type) {
  const EventInfo& info = trace_.info(event);
  part_.clear();
  add_number(part_, field::kNameIid, name_iid(event, info));
  const std::uint64_t arrow = flow_of(event, info);
  const bool is_source = arrow != 0 && info.kind == Kind::send;
  if (is_source) {
    add_fixed(part_, field::kFlow, arrow);
    arrow_ends_.push_back(arrow);
  }
  add_event(time_ns, type);
  return is_source ? 0 : arrow;
}

std::int64_t first_begin_ns(const RunTrace& trace) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const RankTrace& rank : trace.ranks) {
    for (const Event& event : rank.events) {
      if (event.state != State::issued) first = std::min(first, event.begin_ns);
    }
  }
  return first == std::numeric_limits<std::int64_t>::max() ? 0 : first;
}

void export_perfetto(const RunTrace& trace, const std::string& path, const ExportOptions& options) {
  const Arrows arrows(trace);
  PerfettoRun run;
  run.origin_ns = first_begin_ns(trace);
  PerfettoFile file(run, trace, &arrows, path);
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    if (!options.has_rank(trace.ranks[rank].rank)) continue;
    file.add(rank, picture_of(trace, trace.ranks[rank], options), options.first_step, options.last_step);
  }
  file.commit();
}

}  // namespace ms::tracepp
