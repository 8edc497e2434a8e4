// Exports: JSON that a parser takes and whose slices nest, lines of a table, and packets decoded by the protobuf rules.
#include "tracepp/export/export.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "foreign_files.h"
#include "tracepp/read/read.h"

namespace ms::tracepp {
namespace {

constexpr std::int64_t kOrigin = 1'700'000'000'000'000'123;
const char kHostile[] = "</script>\"%s\\,\n";

// Two ranks, three steps: a section with a message that only overlaps it, a send to its receive, and at the end one
// that hangs and one that never began.
RunTrace made() {
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

struct Slice {
  std::string track, name;
  std::int64_t begin = 0, end = 0;
};

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

TEST(ExportChrome, HasTheWallClockAndIsNotReadBack) {
  const ForeignFiles files;
  RunTrace trace = made();
  trace.ranks.front().clock_ns = kOrigin - 7;
  trace.ranks.front().realtime_ns = 1'800'000'000'000'000'000;
  export_chrome(trace, files / "x.json");
  EXPECT_EQ(nlohmann::json::parse(bytes_of(files / "x.json"))["baseTimeNanoseconds"], 1'800'000'000'000'000'007);
  try {
    read_run({files / "x.json"});
    FAIL() << "it was read";
  } catch (const Error& error) { EXPECT_THAT(error.what(), testing::HasSubstr("made by ms-tracepp export")); }
}

TEST(ExportChrome, IsValidJson) {
  const ForeignFiles files;
  const RunTrace trace = made();
  export_chrome(trace, files / "x.json");
  const std::string text = bytes_of(files / "x.json");
  EXPECT_EQ(text.find("</script>"), std::string::npos);
  const nlohmann::json document = nlohmann::json::parse(text);
  EXPECT_EQ(document["baseTimeNanoseconds"], kOrigin);
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  std::vector<Slice> slices;
  std::map<std::string, int> phases;
  std::map<std::string, std::vector<nlohmann::json>> arrows;
  for (const nlohmann::json& event : document["traceEvents"]) {
    ++phases[event["ph"]];
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
    if (event["name"] == "thread_name") threads[{event["pid"], event["tid"]}] = event["args"]["name"];
    if (event["ph"] == "X") {
      const auto ns = [](const nlohmann::json& us) { return static_cast<std::int64_t>(us.get<double>() * 1000 + 0.5); };
      slices.push_back({.track = event["pid"].dump() + "/" + event["tid"].dump(),
                        .name = event["name"],
                        .begin = ns(event["ts"]),
                        .end = ns(event["ts"]) + ns(event["dur"])});
    }
    if (event["ph"] == "s" || event["ph"] == "f") arrows[event["id"]].push_back(event);
  }
  EXPECT_EQ(processes[0], "rank 0 (dp 0 pp 0 tp 0) node0");
  EXPECT_EQ(processes[1], std::string("rank 1 (dp 0 pp 1 tp 0) ") + kHostile);
  EXPECT_EQ(phases["X"], 2 * 3 * 5);
  EXPECT_EQ(phases["B"], 2);
  EXPECT_EQ(phases["i"], 2);
  EXPECT_EQ(phases["s"], 3);
  EXPECT_EQ(phases["f"], 3);
  expect_nested(slices);
  std::vector<std::string> names;
  for (const auto& [place, name] : threads) {
    if (place.first == 0) names.push_back(name);
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("host", "compute", "tp", "tp 2", "pp"));
  for (const auto& [id, ends] : arrows) {
    ASSERT_EQ(ends.size(), 2U);
    EXPECT_EQ(ends[0]["pid"], 0);
    EXPECT_EQ(ends[1]["pid"], 1);
    EXPECT_EQ(ends[1]["bp"], "e");
  }
  EXPECT_EQ(std::ranges::count(slices, "forward c0", &Slice::name), 6);
  EXPECT_EQ(std::ranges::find(slices, "forward c0", &Slice::name)->begin, 1);
}

// As a reader would take it who knows nothing of who wrote it.
TEST(ExportChrome, IsReadByChromeReaders) {
  const ForeignFiles files;
  const RunTrace trace = made();
  export_chrome(trace, files / "x.json.gz");
  EXPECT_TRUE(bytes_of(files / "x.json.gz").starts_with("\x1f\x8b"));
  export_chrome(trace, files / "x.json");
  std::string text = bytes_of(files / "x.json");
  text.replace(text.find("ms-tracepp"), 10, "another");
  const RunTrace again = read_run({files.put("another.json", text)});
  ASSERT_EQ(again.ranks.size(), 2U);
  EXPECT_EQ(again.ranks[1].rank, 1);
  EXPECT_EQ(again.ranks[0].events.size(), 16U);
  EXPECT_EQ(event_named(again, "forward c0").begin_ns, kOrigin + 1);
  EXPECT_EQ(event_named(again, "forward c0").step, 0);
}

TEST(ExportCsv, HasOneLineAnEvent) {
  const ForeignFiles files;
  export_csv(made(), files / "x.csv");
  const std::string text = bytes_of(files / "x.csv");
  EXPECT_TRUE(
      text.starts_with("rank,dp,pp,tp,host,step,kind,purpose,chunk,microbatch,group,sequence,bytes,state,begin_ns,"
                       "duration_ns,name\r\n"));
  EXPECT_THAT(text, testing::HasSubstr("0,0,0,0,node0,1,forward,,0,4,,,,ended,1700000000001000124,500000,\r\n"));
  EXPECT_THAT(text, testing::HasSubstr(
                        "0,0,0,0,node0,2,all_reduce,forward,,,tp[dp 0 pp 0],2,64,ended,1700000000002000223,300,\r\n"));
  EXPECT_THAT(text, testing::HasSubstr(",other,,,,,,,begun,1700000000004000123,,\"</script>\"\"%s\\,\n\"\r\n"));
  EXPECT_THAT(text, testing::HasSubstr("issued,,,\"nul" + std::string(1, '\0')));
  RunTrace formula = made();
  formula.ranks[0].host = "=cmd()";
  export_csv(formula, files / "y.csv");
  EXPECT_THAT(bytes_of(files / "y.csv"), testing::HasSubstr(",'=cmd(),"));
}

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

struct Decoded {
  std::vector<Slice> slices;
  std::vector<std::string> open, instants;
  std::map<std::uint64_t, std::vector<unsigned>> flows;  // by id: the fields that told of it
  std::map<std::string, std::string> parents;            // tracks by name
};

Decoded decode_perfetto(const std::string& text) {
  struct Sequence {
    std::uint64_t track = 0;
    std::int64_t time = 0;
    std::map<std::uint64_t, std::string> names;
    std::vector<Slice> stack;
  };
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
      EXPECT_EQ(find(packet, 13)->value, 1U);  // whatever was interned before is gone
      EXPECT_EQ(find(decode(defaults->bytes), 58)->value, 64U);
      sequence.track = find(decode(find(decode(defaults->bytes), 11)->bytes), 11)->value;
      for (const Field& clock_field : decode(find(packet, 6)->bytes)) {
        if (clock_field.number != 1) continue;
        const std::vector<Field> clock = decode(clock_field.bytes);
        EXPECT_EQ(find(clock, 3) != nullptr, find(clock, 1)->value == 64);
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
    switch (find(event, 9)->value) {
      case 1:
        sequence.stack.push_back(
            {.track = track, .name = sequence.names.at(find(event, 10)->value), .begin = sequence.time});
        break;
      case 2:
        sequence.stack.back().end = sequence.time;
        decoded.slices.push_back(sequence.stack.back());
        sequence.stack.pop_back();
        break;
      default:
        decoded.instants.push_back(sequence.names.at(find(event, 10)->value));
    }
  }
  for (const auto& [id, sequence] : sequences) {
    for (const Slice& slice : sequence.stack) decoded.open.push_back(slice.name);
  }
  return decoded;
}

TEST(ExportPerfetto, DecodesToTheSameEvents) {
  const ForeignFiles files;
  export_perfetto(made(), files / "x.perfetto");
  const Decoded decoded = decode_perfetto(bytes_of(files / "x.perfetto"));
  EXPECT_EQ(decoded.slices.size(), 2U * 3 * 5);
  expect_nested(decoded.slices);
  EXPECT_THAT(decoded.open, testing::ElementsAre(kHostile, kHostile));
  EXPECT_EQ(decoded.instants.size(), 2U);
  EXPECT_EQ(decoded.flows.size(), 3U);
  for (const auto& [id, fields] : decoded.flows) EXPECT_THAT(fields, testing::ElementsAre(47, 48));
  EXPECT_EQ(decoded.parents.at("tp 2"), std::string("rank 1 (dp 0 pp 1 tp 0) ") + kHostile);
  int forwards = 0;
  for (const Slice& slice : decoded.slices) {
    if (slice.name != "forward c0 m4") continue;
    EXPECT_EQ(slice.begin % 1'000'000, 1);
    EXPECT_EQ(slice.end - slice.begin, 500'000);
    ++forwards;
  }
  EXPECT_EQ(forwards, 6);
}

TEST(ExportPerfetto, TakesFewBytes) {
  const ForeignFiles files;
  RunTrace trace = made();
  Tables tables(trace);
  const std::uint32_t forward = tables.info({.kind = Kind::forward, .chunk = 1});
  constexpr int kEvents = 20'000;
  for (RankTrace& rank : trace.ranks) {
    rank.events.clear();
    for (int i = 0; i < kEvents; ++i) {
      Event& event = rank.events.emplace_back();
      event.info = forward;
      event.microbatch = static_cast<std::uint16_t>(i % 32);
      event.begin_ns = kOrigin + std::int64_t{1'250'000} * i;
      event.duration_ns = 900'000;
    }
  }
  export_perfetto(trace, files / "x.perfetto");
  const std::string text = bytes_of(files / "x.perfetto");
  EXPECT_LE(text.size(), 29U * 2 * kEvents);
  EXPECT_EQ(decode_perfetto(text).slices.size(), 2U * kEvents);
}

TEST(Exports, ContainOnlyTheSelection) {
  const ForeignFiles files;
  const RunTrace trace = made();
  const ExportOptions options{.ranks = {1}, .first_step = 1, .last_step = 1};
  export_csv(trace, files / "x.csv", options);
  const std::string text = bytes_of(files / "x.csv");
  EXPECT_EQ(std::ranges::count(text, '\r'), 1 + 5);
  export_chrome(trace, files / "x.json", options);
  const nlohmann::json document = nlohmann::json::parse(bytes_of(files / "x.json"));
  for (const nlohmann::json& event : document["traceEvents"]) {
    EXPECT_EQ(event["pid"], 1);
    if (event["ph"] != "X") continue;
    EXPECT_EQ(event["args"]["step"], 1);
  }
  export_perfetto(trace, files / "x.perfetto", options);
  EXPECT_EQ(decode_perfetto(bytes_of(files / "x.perfetto")).slices.size(), 5U);
  EXPECT_TRUE(decode_perfetto(bytes_of(files / "x.perfetto")).open.empty());
}

TEST(Exports, LeaveNoFileOnFailure) {
  const ForeignFiles files;
  for (auto* const exporter : {&export_chrome, &export_csv, &export_perfetto}) {
    try {
      exporter(made(), files / "absent/x", {});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "file.create");
      EXPECT_EQ(error.blame(), Blame::user);
    }
    std::filesystem::create_directories(files / "taken");
    EXPECT_THROW(exporter(made(), files / "taken", {}), Error);  // is a directory
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(files.path())) ++count;
    EXPECT_EQ(count, 1U);
  }
}

TEST(Exports, HandleEmptyTraces) {
  const ForeignFiles files;
  export_chrome({}, files / "x.json");
  EXPECT_TRUE(nlohmann::json::parse(bytes_of(files / "x.json"))["traceEvents"].empty());
  export_perfetto({}, files / "x.perfetto");
  EXPECT_EQ(bytes_of(files / "x.perfetto"), "");
  export_csv({}, files / "x.csv");
  EXPECT_EQ(std::ranges::count(bytes_of(files / "x.csv"), '\n'), 1);
}

}  // namespace
}  // namespace ms::tracepp
