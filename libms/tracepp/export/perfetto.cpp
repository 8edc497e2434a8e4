// Implements perfetto.h, and export_perfetto of export.h.
#include "tracepp/export/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace ms::tracepp {
namespace {

// The fields of Perfetto's trace.proto that are used here.
namespace field {
constexpr unsigned kTracePacket = 1;
constexpr unsigned kClockSnapshot = 6, kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInternedData = 12,
                   kSequenceFlags = 13, kClockId = 58, kDefaults = 59, kTrackDescriptor = 60;  // TracePacket
constexpr unsigned kClock = 1, kPrimaryClock = 2;                                              // ClockSnapshot
constexpr unsigned kClockNumber = 1, kClockTime = 2, kIsIncremental = 3;                       // Clock
constexpr unsigned kTrackEventDefaults = 11;                                                   // TracePacketDefaults
constexpr unsigned kEventName = 2, kIid = 1, kText = 2;                                        // InternedData
constexpr unsigned kUuid = 1, kTrackName = 2, kParent = 5, kOrdering = 11, kOrder = 12;        // TrackDescriptor
constexpr unsigned kType = 9, kNameIid = 10, kTrack = 11, kFlow = 47, kFlowEnd = 48;           // TrackEvent
}  // namespace field
constexpr std::uint64_t kSliceBegin = 1, kSliceEnd = 2, kInstant = 3;
constexpr std::uint64_t kStateCleared = 1, kExplicitOrder = 3;
constexpr std::uint64_t kBoottime = 6, kIncremental = 64;  // clocks; the latter a sequence's own, told in differences

void add_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

void add_number(std::string& to, unsigned number, std::uint64_t value) {
  add_varint(to, number << 3);
  add_varint(to, value);
}

void add_fixed(std::string& to, unsigned number, std::uint64_t value) {
  add_varint(to, number << 3 | 1);
  for (int i = 0; i < 8; ++i) to += static_cast<char>(value >> (8 * i));
}

void add_bytes(std::string& to, unsigned number, std::string_view bytes) {
  add_varint(to, number << 3 | 2);
  add_varint(to, bytes.size());
  to += bytes;
}

// Numbers of tracks: of each rank itself, and of the most that its picture has.
constexpr std::uint64_t kTracksOfRank = 1 + std::uint64_t{256} * kMaxTracks;

}  // namespace

PerfettoRun::PerfettoRun(const RunTrace& of) : trace(of), arrows(of) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const RankTrace& rank : trace.ranks) {
    for (const Event& event : rank.events) {
      if (event.state != State::issued) first = std::min(first, event.begin_ns);
    }
  }
  if (first != std::numeric_limits<std::int64_t>::max()) origin_ns = first;
}

PerfettoFile::PerfettoFile(PerfettoRun& run, const std::string& path) : run_(run), file_(path) {}

void PerfettoFile::add_packet() {
  add_bytes(file_.text(), field::kTracePacket, packet_);
  packet_.clear();
  file_.flush();
}

void PerfettoFile::write_track(std::uint64_t uuid, std::uint64_t parent, std::string_view name, int order) {
  part_.clear();
  add_number(part_, field::kUuid, uuid);
  add_bytes(part_, field::kTrackName, name);
  if (parent != 0) add_number(part_, field::kParent, parent);
  add_number(part_, field::kOrdering, kExplicitOrder);
  add_number(part_, field::kOrder, static_cast<std::uint64_t>(order));
  add_bytes(packet_, field::kTrackDescriptor, part_);
  add_packet();
}

void PerfettoFile::begin_sequence(Sequence& sequence, std::uint64_t track, std::int64_t time_ns) {
  sequence.id = ++run_.sequences;
  sequence.time_ns = time_ns;
  const auto clock = [](std::uint64_t number, std::uint64_t time, bool incremental) {
    std::string text;
    add_number(text, field::kClockNumber, number);
    add_number(text, field::kClockTime, time);
    if (incremental) add_number(text, field::kIsIncremental, 1);
    return text;
  };
  const auto time = static_cast<std::uint64_t>(time_ns);
  add_number(packet_, field::kTimestamp, time);
  add_number(packet_, field::kClockId, kBoottime);
  add_number(packet_, field::kSequence, sequence.id);
  add_number(packet_, field::kSequenceFlags, kStateCleared);
  std::string part;
  add_bytes(part, field::kClock, clock(kIncremental, time, true));
  add_bytes(part, field::kClock, clock(kBoottime, time, false));
  add_number(part, field::kPrimaryClock, kBoottime);
  add_bytes(packet_, field::kClockSnapshot, part);
  std::string defaults;
  add_number(defaults, field::kTrack, track);
  part.clear();
  add_number(part, field::kClockId, kIncremental);
  add_bytes(part, field::kTrackEventDefaults, defaults);
  add_bytes(packet_, field::kDefaults, part);
  add_packet();
}

void PerfettoFile::add_event(Sequence& sequence, std::int64_t time_ns, std::uint64_t type) {
  add_number(packet_, field::kTimestamp, static_cast<std::uint64_t>(time_ns - sequence.time_ns));
  sequence.time_ns = time_ns;
  add_number(packet_, field::kSequence, sequence.id);
  add_number(part_, field::kType, type);
  add_bytes(packet_, field::kTrackEvent, part_);
  add_packet();
}

void PerfettoFile::end_until(Sequence& sequence, std::int64_t time_ns) {
  while (!sequence.open.empty() && sequence.open.back() <= time_ns) {
    part_.clear();
    add_event(sequence, sequence.open.back(), kSliceEnd);
    sequence.open.pop_back();
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
  const RankTrace& of = run_.trace.ranks[rank];
  const auto is_shown = [&](const Placed& placed) {
    return placed.event->step >= first_step && placed.event->step <= last_step;
  };
  std::vector<char> is_used(picture.tracks.size());
  for (const Placed& placed : picture.events)
    if (is_shown(placed)) is_used[placed.track] = 1;
  if (std::ranges::count(is_used, 1) == 0) return;
  const std::uint64_t root = rank * kTracksOfRank + 1, first = root + 1;
  write_track(root, 0, title_of(run_.trace, of), of.rank);
  std::vector<Sequence> sequences(picture.tracks.size());
  for (std::size_t t = 0; t < picture.tracks.size(); ++t)
    if (is_used[t] != 0) write_track(first + t, root, picture.tracks[t].name, picture.tracks[t].order);
  for (const Placed& placed : picture.events) {
    const Event& event = *placed.event;
    if (event.state == State::issued || !is_shown(placed)) continue;  // below: they come last
    const std::int64_t time_ns = event.begin_ns - run_.origin_ns;
    Sequence& sequence = sequences[placed.track];
    if (sequence.id == 0) begin_sequence(sequence, first + placed.track, time_ns);
    end_until(sequence, time_ns);
    begin_slice(sequence, event, time_ns, kSliceBegin);
    if (event.state == State::ended) sequence.open.push_back(time_ns + event.duration_ns);
    count(event, time_ns);
  }
  for (Sequence& sequence : sequences) end_until(sequence, std::numeric_limits<std::int64_t>::max());
  for (const Placed& placed : picture.events) {
    if (placed.event->state != State::issued || !is_shown(placed)) continue;
    Sequence& sequence = sequences[placed.track];
    const std::int64_t time_ns = std::max(sequence.time_ns, of.last_flush_ns - run_.origin_ns);
    if (sequence.id == 0) begin_sequence(sequence, first + placed.track, time_ns);
    begin_slice(sequence, *placed.event, time_ns, kInstant);
    count(*placed.event, time_ns);
  }
}

void PerfettoFile::begin_slice(Sequence& sequence, const Event& event, std::int64_t time_ns, std::uint64_t type) {
  const EventInfo& info = run_.trace.info(event);
  const auto [name, is_new] =
      sequence.names.try_emplace(std::uint64_t{event.info} << 16 | event.microbatch, sequence.names.size() + 1);
  if (is_new) {
    std::string text;
    add_number(text, field::kIid, name->second);
    add_bytes(text, field::kText, name_of(run_.trace, info, event.microbatch));
    std::string interned;
    add_bytes(interned, field::kEventName, text);
    add_bytes(packet_, field::kInternedData, interned);
  }
  part_.clear();
  add_number(part_, field::kNameIid, name->second);
  const std::uint64_t arrow = run_.arrows.of(info, event);
  if (arrow != 0) {
    add_fixed(part_, info.kind == Kind::send ? field::kFlow : field::kFlowEnd, arrow);
    arrow_ends_.push_back(arrow);
  }
  add_event(sequence, time_ns, type);
}

void export_perfetto(const RunTrace& trace, const std::string& path, const ExportOptions& options) {
  PerfettoRun run(trace);
  PerfettoFile file(run, path);
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    if (!options.has_rank(trace.ranks[rank].rank)) continue;
    file.add(rank, picture_of(trace, trace.ranks[rank], options), options.first_step, options.last_step);
  }
  file.commit();
}

}  // namespace ms::tracepp
