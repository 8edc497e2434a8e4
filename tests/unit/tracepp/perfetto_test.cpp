// Perfetto's files, decoded: whole ones and shards.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "exported_run.h"
#include "foreign_files.h"
#include "tracepp/export/export.h"

namespace ms::tracepp {
namespace {

TEST(ExportPerfetto, DecodesToTheSameEvents) {
  const ForeignFiles files;
  export_perfetto(exported_run(), files / "x.perfetto");
  const Decoded decoded = decode_perfetto(bytes_of(files / "x.perfetto"));
  EXPECT_EQ(decoded.slices.size(), 2U * 3 * 5);
  expect_nested(decoded.slices);
  EXPECT_THAT(decoded.open, testing::ElementsAre(kHostile, kHostile));
  EXPECT_EQ(decoded.instants.size(), 2U + 3) << "two were issued, three messages arrived";
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
  RunTrace trace = exported_run();
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

// The files of a directory in the order of its index, joined; and the index.
struct Shards {
  std::string joined;
  std::vector<std::string> files;
  nlohmann::json index;
};
Shards shards_in(const std::string& directory) {
  Shards shards;
  shards.index = nlohmann::json::parse(bytes_of(directory + "/index.json"));
  for (const nlohmann::json& file : shards.index["files"]) {
    const std::string text = bytes_of(directory + "/" + file["file"].get<std::string>());
    EXPECT_EQ(file["bytes"], text.size());
    shards.files.push_back(text);
    shards.joined += text;
  }
  return shards;
}

std::vector<std::tuple<std::string, std::string, std::int64_t, std::int64_t>> sorted(const std::vector<Slice>& slices) {
  std::vector<std::tuple<std::string, std::string, std::int64_t, std::int64_t>> list;
  for (const Slice& slice : slices) list.emplace_back(slice.track, slice.name, slice.begin, slice.end);
  std::ranges::sort(list);
  return list;
}

void expect_same(const Decoded& a, const Decoded& b) {
  EXPECT_EQ(sorted(a.slices), sorted(b.slices));
  EXPECT_THAT(a.open, testing::UnorderedElementsAreArray(b.open));
  EXPECT_THAT(a.instants, testing::UnorderedElementsAreArray(b.instants));
  ASSERT_EQ(a.flows.size(), b.flows.size());
  for (const auto& [id, ends] : a.flows) EXPECT_THAT(ends, testing::UnorderedElementsAreArray(b.flows.at(id)));
  EXPECT_EQ(a.parents, b.parents);
}

TEST(PerfettoShards, TogetherAreTheWholeTrace) {
  const ForeignFiles files;
  const RunTrace trace = exported_run();
  export_perfetto(trace, files / "x.perfetto");
  const Decoded whole = decode_perfetto(bytes_of(files / "x.perfetto"));
  const ShardsWritten written = export_perfetto_shards(sharded(trace, {}), files / "by_step", {.steps = 2});
  EXPECT_EQ(written.files, 2U);
  EXPECT_EQ(written.events, trace.event_count());
  EXPECT_EQ(written.arrow_ends, 0U);
  const Shards shards = shards_in(files / "by_step");
  expect_same(decode_perfetto(shards.joined), whole);
  EXPECT_EQ(shards.index["files"][0]["file"], "steps-0-1.dp-0-0.perfetto");
  EXPECT_EQ(shards.index["files"][1]["first_step"], 2);
  EXPECT_EQ(shards.index["files"][1]["ranks"], "0,1");
  EXPECT_EQ(shards.index["files"][1]["events"], 2 * 5);
  const Decoded last = decode_perfetto(shards.files[1]);  // one opens alone
  EXPECT_EQ(last.slices.size(), 2U * 5);
  expect_nested(last.slices);
  EXPECT_EQ(last.flows.size(), 1U);
  EXPECT_EQ(last.parents.at("compute"), std::string("rank 1 (dp 0 pp 1 tp 0) ") + kHostile);
}

TEST(PerfettoShards, SayWhichArrowsAreCut) {
  const ForeignFiles files;
  RunTrace trace = exported_run();
  trace.has_mesh = false;  // so that a replica is one rank
  export_perfetto(trace, files / "x.perfetto");
  const ShardsWritten written = export_perfetto_shards(sharded(trace, {}), files / "by_rank", {.steps = 1, .dp = 1});
  EXPECT_EQ(written.files, 2U * 3);
  EXPECT_EQ(written.arrow_ends, 2U * 3);
  const Shards shards = shards_in(files / "by_rank");
  expect_same(decode_perfetto(shards.joined), decode_perfetto(bytes_of(files / "x.perfetto")));
  EXPECT_EQ(shards.index["files"][0]["cut_arrows"], 1);
  EXPECT_EQ(shards.index["files"][3]["file"], "steps-0-0.rank-1-1.perfetto");
}

TEST(PerfettoShards, HoldWholeReplicas) {
  const ForeignFiles files;
  RunTrace trace = exported_run();
  trace.mesh = {.dp = 2, .pp = 1, .tp = 1};
  for (RankTrace& rank : trace.ranks) rank.at = trace.mesh.coord(rank.rank);
  EXPECT_EQ(export_perfetto_shards(sharded(trace, {}), files / "one", {.dp = 2}).files, 1U);
  EXPECT_EQ(export_perfetto_shards(sharded(trace, {}), files / "two", {.dp = 1}).files, 2U);
  EXPECT_EQ(export_perfetto_shards(sharded(trace, {.ranks = {1}, .first_step = 1}), files / "chosen", {.dp = 1}).events,
            2U * 5);
}

TEST(PerfettoShards, RefuseADirectoryThatHoldsSomething) {
  const ForeignFiles files;
  files.put("kept", "x");
  const RunTrace trace = exported_run();
  try {
    export_perfetto_shards(sharded(trace, {}), files.path(), {.steps = 1});
    FAIL();
  } catch (const Error& error) { EXPECT_EQ(error.kind(), "cli.value"); }
  EXPECT_EQ(bytes_of(files / "kept"), "x");
  RunTrace empty;
  EXPECT_EQ(export_perfetto_shards(sharded(empty, {}), files / "empty", {.steps = 1}).files, 0U);
}

}  // namespace
}  // namespace ms::tracepp
