// Shards of a run in files: read one after the other, and together the whole run.
#include "tracepp/export/sharded_files.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <tuple>

#include "exported_run.h"
#include "foreign_files.h"
#include "trace/recorder.h"
#include "tracepp/read/read.h"

namespace ms::tracepp {
namespace {

constexpr std::int64_t kMilli = 1'000'000;
constexpr int kShardedSteps = 40, kMessagesOfStep = 30;

// Two ranks on two hosts, the second one's clock ahead: messages of both in every step, and one that goes on into the
// next step.
void write_rank(const std::string& directory, int rank, std::int64_t ahead_ns) {
  const std::int64_t begin_ns = 1'000'000 * kMilli + ahead_ns;
  trace::Recorder recorder(directory,
                           {.rank = rank,
                            .world = 2,
                            .dp = 2,
                            .pp = 1,
                            .tp = 1,
                            .host = rank == 0 ? "n0" : "n1",
                            .run = "job",
                            .device = "cpu",
                            .clock_ns = begin_ns,
                            .realtime_ns = 1'700'000'000'000 * kMilli,
                            .microbatches = 1,
                            .chunks = 1},
                           1 << 20, trace::Level::messages);
  const std::vector<int> both{0, 1};
  const int group = recorder.group("dp[pp 0 tp 0]", 5, both);
  std::uint64_t number = 0;
  for (int step = 0; step < kShardedSteps; ++step) {
    const std::int64_t at = begin_ns + 100 * kMilli * step;
    recorder.begin_step(step, at);
    for (int i = 0; i < kMessagesOfStep; ++i) {
      const trace::Ticket ticket = recorder.issue_comm(
          {.kind = Kind::all_reduce, .group = group, .type = "f32 sum", .size_bytes = 4, .sequence = number++});
      recorder.begin(ticket, at + (3 * i + 1) * kMilli);
      recorder.end(ticket, at + (3 * i + (i + 1 < kMessagesOfStep ? 3 : 20)) * kMilli);
    }
    recorder.end_step(step, at + 100 * kMilli, {});
    recorder.flush();
  }
  recorder.close(trace::format::Ending::done);
}

std::vector<std::tuple<std::string, std::string, std::int64_t, std::int64_t>> listed(const std::vector<Slice>& slices) {
  std::vector<std::tuple<std::string, std::string, std::int64_t, std::int64_t>> list;
  for (const Slice& slice : slices) list.emplace_back(slice.track, slice.name, slice.begin, slice.end);
  std::ranges::sort(list);
  return list;
}

TEST(ShardedFiles, TogetherAreTheWholeRun) {
  const ForeignFiles files;
  std::filesystem::create_directories(files / "trace");
  write_rank(files / "trace", 0, 0);
  write_rank(files / "trace", 1, 5000 * kMilli);
  RunTrace trace = read_run({files / "trace"});
  align(trace, match_operations(trace));
  export_perfetto(trace, files / "whole.perfetto");
  const Decoded whole = decode_perfetto(bytes_of(files / "whole.perfetto"));
  ASSERT_EQ(whole.slices.size(), 2U * kShardedSteps * (kMessagesOfStep + 1));

  ShardedFiles sharded({files / "trace"}, {});
  EXPECT_EQ(sharded.counted().events, whole.slices.size());
  EXPECT_EQ(sharded.outline().event_count(), 0U) << "no event stays in memory";
  for (const Sharding sharding : {Sharding{.steps = 8}, Sharding{.dp = 1}, Sharding{.steps = 16, .dp = 1}}) {
    const std::string to = files / ("shards" + std::to_string(sharding.steps) + std::to_string(sharding.dp));
    const ShardsWritten written = export_perfetto_shards(sharded.run(), to, sharding);
    EXPECT_EQ(written.events, whole.slices.size());
    std::string joined;
    for (const auto& entry : std::filesystem::directory_iterator(to))
      if (entry.path().extension() == ".perfetto") joined += bytes_of(entry.path());
    const Decoded together = decode_perfetto(joined);
    std::vector<Slice> slices = together.slices, all = whole.slices;
    expect_nested(slices);
    // An event that goes on into the next shard may have moved that shard's to another track.
    for (std::vector<Slice>* list : {&slices, &all})
      for (Slice& slice : *list) slice.track.clear();
    EXPECT_EQ(listed(slices), listed(all)) << sharding.steps << " steps, dp " << sharding.dp;
  }
}

TEST(ShardedFiles, HoldWhatIsChosen) {
  const ForeignFiles files;
  std::filesystem::create_directories(files / "trace");
  for (const int rank : {0, 1}) write_rank(files / "trace", rank, 0);
  ShardedFiles sharded({files / "trace"}, {.ranks = {1}, .first_step = 3, .last_step = 6});
  EXPECT_EQ(sharded.counted().events, 4U * (kMessagesOfStep + 1));
  const ShardsWritten written = export_perfetto_shards(sharded.run(), files / "chosen", {.steps = 2});
  EXPECT_EQ(written.files, 2U);
  EXPECT_EQ(written.events, 4U * (kMessagesOfStep + 1));
}

}  // namespace
}  // namespace ms::tracepp
