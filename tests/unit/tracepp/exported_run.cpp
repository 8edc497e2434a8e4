#include "exported_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string_view>

namespace ms::tracepp {

RunTrace exported_run() {
  RunTrace trace;
  trace.mesh = {.dp = 1, .pp = 2, .tp = 1};
  trace.has_mesh = true;
  Tables tables(trace);
  const std::int32_t tp = tables.group({.name = "tp[dp 0 pp 0]", .ranks = {0}, .axis = GroupAxis::tp});
  const std::int32_t pp = tables.group({.name = "pp.fwd[dp 0 tp 0] 0>1", .ranks = {0, 1}, .axis = GroupAxis::pp});
  for (int rank = 0; rank < 2; ++rank) {
    RankTrace& of = trace.ranks.emplace_back();
    of.rank = rank;
    of.at = trace.mesh.coord(rank);
    of.host = rank == 0 ? "node0" : kHostile;
    const auto add = [&](const EventInfo& info, std::int64_t begin, std::int64_t duration,
                         std::int32_t step) -> Event& {
      Event& event = of.events.emplace_back();
      event.info = tables.info(info);
      event.begin_ns = kOrigin + begin;
      event.duration_ns = duration;
      event.step = step;
      event.detail = static_cast<std::uint32_t>(step);
      return event;
    };
    for (int step = 0; step < 3; ++step) {
      const std::int64_t at = 1'000'000 * step;
      add({.kind = Kind::step}, at, 900'000, step);
      Event& forward = add({.kind = Kind::forward, .chunk = 0}, at + 1, 500'000, step);
      forward.microbatch = 4;
      add({.kind = Kind::all_reduce,
           .purpose = Purpose::forward,
           .group = tp,
           .type = trace.strings.id("f32 sum"),
           .size_bytes = 64},
          at + 100, 300, step);
      add({.kind = Kind::all_reduce,
           .purpose = Purpose::forward,
           .group = tp,
           .type = trace.strings.id("f32 sum"),
           .size_bytes = 64},
          at + 250, 300, step);  // overlaps the one before, and is not inside it
      add({.kind = rank == 0 ? Kind::send : Kind::recv, .purpose = Purpose::forward, .group = pp}, at + 600'000, 1000,
          step);
    }
    of.last_flush_ns = kOrigin + 5'000'000;
    add({.kind = Kind::other, .name = trace.strings.id(kHostile)}, 4'000'000, 0, kNoStep).state = State::begun;
    add({.kind = Kind::other, .name = trace.strings.id(std::string_view("nul\0\xff!", 6))}, -7, 0, kNoStep).state =
        State::issued;
  }
  return trace;
}

void expect_nested(const std::vector<Slice>& slices) {
  std::map<std::string, std::vector<Slice>> tracks;
  for (const Slice& slice : slices) tracks[slice.track].push_back(slice);
  for (auto& [track, of] : tracks) {
    for (std::size_t i = 0; i < of.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const Slice &a = of[j], &b = of[i];
        const bool apart = a.end <= b.begin || b.end <= a.begin;
        const bool inside = (a.begin <= b.begin && b.end <= a.end) || (b.begin <= a.begin && a.end <= b.end);
        EXPECT_TRUE(apart || inside) << track << ": " << a.name << " and " << b.name;
      }
    }
  }
}

namespace {

// The fields of a protobuf message: numbers of type 0 and 1, bytes of type 2.
struct Field {
  unsigned number = 0;
  std::uint64_t value = 0;
  std::string_view bytes;
};

std::vector<Field> decode(std::string_view text) {
  std::vector<Field> fields;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (text.empty() || shift > 63) throw std::runtime_error("varint");
      const auto byte = static_cast<unsigned char>(text[0]);
      text.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (!text.empty()) {
    const std::uint64_t tag = varint();
    Field& field = fields.emplace_back();
    field.number = static_cast<unsigned>(tag >> 3);
    if ((tag & 7) == 0) {
      field.value = varint();
    } else if ((tag & 7) == 1) {
      for (int i = 0; i < 8; ++i)
        field.value |= std::uint64_t{static_cast<unsigned char>(text.at(static_cast<std::size_t>(i)))} << (8 * i);
      text.remove_prefix(8);
    } else if ((tag & 7) == 2) {
      const std::uint64_t size = varint();
      if (size > text.size()) throw std::runtime_error("length");
      field.bytes = text.substr(0, size);
      text.remove_prefix(size);
    } else {
      throw std::runtime_error("wire type");
    }
  }
  return fields;
}

const Field* find(const std::vector<Field>& fields, unsigned number) {
  const auto found = std::ranges::find(fields, number, &Field::number);
  return found == fields.end() ? nullptr : &*found;
}

}  // namespace

Decoded decode_perfetto(const std::string& text) {
  struct Sequence {
    std::uint64_t track = 0;
    std::int64_t time = 0;
    std::map<std::uint64_t, std::string> names;
    std::set<std::uint64_t> clocks;
  };
  std::map<std::uint64_t, std::vector<Slice>> stacks;  // by track
  std::map<std::uint64_t, std::string> tracks;
  std::map<std::uint64_t, Sequence> sequences;
  Decoded decoded;
  for (const Field& packet_field : decode(text)) {
    EXPECT_EQ(packet_field.number, 1U);
    const std::vector<Field> packet = decode(packet_field.bytes);
    if (const Field* const descriptor = find(packet, 60)) {
      const std::vector<Field> track = decode(descriptor->bytes);
      const std::string name(find(track, 2)->bytes);
      tracks[find(track, 1)->value] = name;
      decoded.parents[name] = find(track, 5) == nullptr ? "" : tracks.at(find(track, 5)->value);
      continue;
    }
    Sequence& sequence = sequences[find(packet, 10)->value];
    if (const Field* const defaults = find(packet, 59)) {
      // What was interned before is gone where a file begins; there every track has a clock that no other one had.
      if (find(packet, 13) != nullptr) sequence = {};
      const std::uint64_t own = find(decode(defaults->bytes), 58)->value;
      EXPECT_TRUE(own >= 64 && own < 128 && sequence.clocks.insert(own).second) << own;
      sequence.track = find(decode(find(decode(defaults->bytes), 11)->bytes), 11)->value;
      for (const Field& clock_field : decode(find(packet, 6)->bytes)) {
        const std::vector<Field> clock = decode(clock_field.bytes);
        EXPECT_EQ(find(clock, 3) != nullptr, find(clock, 1)->value == own);
        sequence.time = static_cast<std::int64_t>(find(clock, 2)->value);
      }
      continue;
    }
    sequence.time += static_cast<std::int64_t>(find(packet, 8)->value);
    if (const Field* const interned = find(packet, 12)) {
      for (const Field& entry : decode(interned->bytes)) {
        sequence.names[find(decode(entry.bytes), 1)->value] = find(decode(entry.bytes), 2)->bytes;
      }
    }
    const std::vector<Field> event = decode(find(packet, 11)->bytes);
    const std::string track = std::to_string(sequence.track) + " " + tracks.at(sequence.track);
    for (const Field& field : event) {
      if (field.number == 47 || field.number == 48) decoded.flows[field.value].push_back(field.number);
    }
    std::vector<Slice>& stack = stacks[sequence.track];
    switch (find(event, 9)->value) {
      case 1:
        stack.push_back({.track = track, .name = sequence.names.at(find(event, 10)->value), .begin = sequence.time});
        break;
      case 2:
        stack.back().end = sequence.time;
        EXPECT_TRUE(stack.back().arrived == 0 || stack.back().arrived == stack.back().end);
        decoded.slices.push_back(stack.back());
        stack.pop_back();
        break;
      default:
        decoded.instants.push_back(sequence.names.at(find(event, 10)->value));
        if (find(event, 48) == nullptr) break;
        EXPECT_EQ(decoded.instants.back(), "arrived");
        stack.back().arrived = sequence.time;
    }
  }
  for (const auto& [track, stack] : stacks) {
    for (const Slice& slice : stack) decoded.open.push_back(slice.name);
  }
  return decoded;
}

}  // namespace ms::tracepp
