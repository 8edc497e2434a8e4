// What a recorder writes is what the reader reads: events in all states, steps, sums, probes, rings that have gone
// round, files that are damaged, cut off or written while somebody reads.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "trace/recorder.h"
#include "tracepp/read/trace_reader.h"

namespace ms::tracepp {
namespace {

using trace::Level;
using trace::Recorder;
using trace::Ticket;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMegabyte = 1 << 20;
const std::vector<int> kPair{1, 3};

class TraceFileTest : public ::testing::Test {
 protected:
  TraceFileTest() {
    dir_ = ::testing::TempDir() + "trace_file_test." + std::to_string(getpid());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~TraceFileTest() override { std::filesystem::remove_all(dir_); }

  trace::Identity identity(int rank = 3) const {
    return {.rank = rank,
            .world = 8,
            .dp = 2,
            .pp = 2,
            .tp = 2,
            .host = "n07",
            .run = "job-1",
            .device = "cpu",
            .microbatches = 4,
            .chunks = 1,
            .flops_per_step = 2e12,
            .peak_flops = 1e12};
  }
  std::string path(int rank = 3) const { return dir_ + "/" + trace::trace_file_name(rank); }
  RunTrace read(int rank = 3) const {
    RunTrace run;
    TraceFileReader(run).read(path(rank));
    return run;
  }
  static Ticket message(Recorder& recorder, int group, std::uint64_t sequence) {
    return recorder.issue_comm(
        {.kind = Kind::all_gather, .group = group, .type = "bf16", .size_bytes = 4096, .sequence = sequence});
  }

  std::string dir_;
};

TEST_F(TraceFileTest, ReadsBackTheRecordedEvents) {
  const std::int64_t now = trace::now_ns();
  Recorder recorder(dir_, identity(), kMegabyte, Level::messages);
  const int group = recorder.group("dp[pp 0 tp 1]", 5, kPair);
  EXPECT_EQ(recorder.group("dp[pp 0 tp 1]", 5, kPair), group);
  recorder.begin_step(40, now);
  {
    const trace::Scope scope(&recorder, {.purpose = Purpose::forward, .chunk = 1, .microbatch = 2});
    const Ticket forward = recorder.issue(Kind::forward);
    recorder.begin(forward, now);
    recorder.end_section(forward, now + 500'000, 300'000);
  }
  const Ticket done = message(recorder, group, 17), begun = message(recorder, group, 18);
  message(recorder, group, 19);
  recorder.begin(done, now);
  recorder.end(done, now + 12'345);
  recorder.begin(begun, now + 7);
  recorder.probe(
      {.peer = 7, .round = 2, .asked_ns = 1, .answered_ns = 9, .peer_heard_ns = 100, .peer_replied_ns = 101});
  recorder.end_step(40, now + 1000, std::vector<double>{0.25, 0.5});
  recorder.close(trace::format::Ending::failed, "comm.deadline: rank 1 is late", 1);

  const RunTrace run = read();
  EXPECT_EQ(run.source, &kOwnSource);
  EXPECT_EQ(run.run, "job-1");
  EXPECT_EQ(run.mesh, (mesh::Mesh{.dp = 2, .pp = 2, .tp = 2}));
  EXPECT_EQ(run.microbatches, 4);
  EXPECT_EQ(run.flops_per_step, 2e12);
  EXPECT_TRUE(run.problems.empty());
  ASSERT_EQ(run.ranks.size(), 1U);
  const RankTrace& rank = run.ranks.front();
  EXPECT_EQ(rank.rank, 3);
  EXPECT_EQ(rank.at, (mesh::Coord{.dp = 1, .pp = 0, .tp = 1}));
  EXPECT_EQ(rank.host, "n07");
  EXPECT_EQ(rank.device, "cpu");
  EXPECT_EQ(rank.pid, getpid());
  EXPECT_EQ(rank.ending, Ending::failed);
  EXPECT_EQ(rank.ending_text, "comm.deadline: rank 1 is late");
  EXPECT_EQ(rank.ending_rank, 1);
  ASSERT_EQ(rank.events.size(), 5U);
  EXPECT_EQ(run.info(rank.events[0]).kind, Kind::step);
  EXPECT_EQ(rank.events[0].state, State::ended);
  for (const Event& event : rank.events) EXPECT_EQ(event.step, 40);
  const Event& forward = rank.events[1];
  EXPECT_EQ(run.info(forward), (EventInfo{.kind = Kind::forward, .purpose = Purpose::forward, .chunk = 1}));
  EXPECT_EQ(forward.microbatch, 2);
  EXPECT_EQ(forward.begin_ns, now);
  EXPECT_EQ(forward.duration_ns, 500'000);
  EXPECT_EQ(forward.detail, 300U);
  const EventInfo& info = run.info(rank.events[2]);
  EXPECT_EQ(info.kind, Kind::all_gather);
  EXPECT_EQ(info.size_bytes, 4096);
  EXPECT_EQ(run.strings.text(info.type), "bf16");
  EXPECT_EQ(run.groups[static_cast<std::size_t>(info.group)].ranks, kPair);
  EXPECT_EQ(run.groups[static_cast<std::size_t>(info.group)].axis, GroupAxis::dp);
  EXPECT_EQ(rank.events[2].detail, 17U);
  EXPECT_EQ(rank.events[2].duration_ns, 12'345);
  EXPECT_EQ(rank.events[3].state, State::begun);
  EXPECT_EQ(rank.events[3].begin_ns, now + 7);
  EXPECT_EQ(rank.events[4].state, State::issued);
  ASSERT_EQ(rank.probes.size(), 1U);
  EXPECT_EQ(rank.probes[0].peer_replied_ns, 101);
  ASSERT_EQ(rank.sums.size(), 1U);
  using trace::format::SumOf;
  const auto sum = [&](SumOf of) { return rank.sums[0].seconds[static_cast<std::size_t>(of)]; };
  EXPECT_FLOAT_EQ(sum(SumOf::forward), 5e-4F);
  EXPECT_FLOAT_EQ(sum(SumOf::busy), 3e-4F);
  EXPECT_FLOAT_EQ(sum(SumOf::stalled), 2e-4F);
  EXPECT_FLOAT_EQ(sum(SumOf::other_comm), 12'345e-9F);
  EXPECT_FLOAT_EQ(sum(SumOf::matmul), 0.25F);
  EXPECT_FLOAT_EQ(sum(SumOf::attention), 0.5F);
  EXPECT_EQ(rank.sums[0].unfinished, 2U);
}

// Starts that do nothing, because nothing is left to do or because they are refused, do not lose what the last run did.
TEST_F(TraceFileTest, StartsWithoutEventsKeepTheRunBefore) {
  {
    Recorder recorder(dir_, identity(), kMegabyte, Level::messages);
    recorder.begin_step(1, trace::now_ns());
    recorder.end(message(recorder, recorder.group("dp", 5, kPair), 0), trace::now_ns());
    recorder.close(trace::format::Ending::done);
  }
  for (int i = 0; i < 2; ++i) {
    Recorder(dir_, identity(), kMegabyte, Level::messages).close(trace::format::Ending::done);
    EXPECT_EQ(read().event_count(), 2U);
  }
  for (int i = 0; i < 3; ++i) {
    Recorder(dir_, identity(), kMegabyte, Level::messages).close(trace::format::Ending::failed, "refused");
    EXPECT_EQ(read().ranks.at(0).ending_text, "refused");
  }
  RunTrace before;
  TraceFileReader(before).read(path() + ".previous");
  EXPECT_EQ(before.event_count(), 2U);
}

TEST_F(TraceFileTest, LevelSelectsTheEventsWritten) {
  Recorder recorder(dir_, identity(), kMegabyte, Level::sections);
  const int tp = recorder.group("tp[dp 0 pp 1]", 1, kPair), dp = recorder.group("dp[pp 0 tp 1]", 2, kPair);
  EXPECT_EQ(message(recorder, tp, 0), trace::kNoTicket);
  EXPECT_NE(message(recorder, dp, 0), trace::kNoTicket);
  EXPECT_EQ(recorder.dropped(), 0U);
}

TEST_F(TraceFileTest, KeepsNewestStepsWholeAndOlderOnesAsSums) {
  Recorder recorder(dir_, identity(), kMegabyte, Level::messages);
  const int group = recorder.group("world", 0, kPair);
  constexpr std::int64_t kSteps = 3000;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    recorder.begin_step(step, kSecond + step * 1'000'000);
    for (std::uint64_t i = 0; i < 50; ++i) {
      const Ticket ticket = message(recorder, group, static_cast<std::uint64_t>(step) * 50 + i);
      const std::int64_t begin = kSecond + step * 1'000'000 + static_cast<std::int64_t>(i) * 10'000;
      recorder.begin(ticket, begin);
      recorder.end(ticket, begin + 7'000);
    }
    recorder.end_step(step, kSecond + step * 1'000'000 + 900'000, {});
  }
  recorder.close(trace::format::Ending::done);
  EXPECT_LE(std::filesystem::file_size(path()), static_cast<std::uintmax_t>(kMegabyte));
  const RunTrace run = read();
  EXPECT_TRUE(run.problems.empty());
  const RankTrace& rank = run.ranks.front();
  EXPECT_EQ(rank.dropped, 0U);
  EXPECT_EQ(rank.ending, Ending::done);
  const std::size_t sums_room = kMegabyte / 8 / sizeof(trace::format::Sum);
  ASSERT_EQ(rank.sums.size(), sums_room);
  EXPECT_EQ(rank.sums.back().step, kSteps - 1);
  EXPECT_EQ(rank.sums.front().step, kSteps - static_cast<std::int64_t>(sums_room));
  // Without a gap from some step on, each with what it had.
  std::map<std::int64_t, std::size_t> counts;
  for (const Event& event : rank.events) ++counts[event.step];
  ASSERT_GT(counts.size(), 500U);
  EXPECT_LT(counts.size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(counts.rbegin()->first, kSteps - 1);
  counts.erase(counts.begin());
  for (const auto& [step, count] : counts) EXPECT_EQ(count, 51U) << step;
  EXPECT_EQ(rank.events.back().detail, kSteps * 50 - 1);
  EXPECT_EQ(rank.events.back().duration_ns, 7'000);
}

TEST_F(TraceFileTest, HoldsHoursOfSumsInAPage) {
  Recorder recorder(dir_, identity(), kMegabyte, Level::messages);
  const Ticket first = recorder.issue(Kind::save), last = recorder.issue(Kind::save);
  recorder.begin(first, kSecond);
  recorder.end(first, kSecond + 5);
  recorder.begin(last, 7200 * kSecond);
  recorder.end(last, 10'000 * kSecond);
  recorder.flush();
  const RunTrace run = read();
  const std::vector<Event>& events = run.ranks.front().events;
  EXPECT_EQ(events[0].begin_ns, kSecond);
  EXPECT_NEAR(static_cast<double>(events[1].begin_ns), 7200e9, 4096);
  EXPECT_NEAR(static_cast<double>(events[1].end_ns()), 10'000e9, 8192);
}

TEST_F(TraceFileTest, CountsEventsDroppedByAFullBuffer) {
  Recorder recorder(dir_, identity(), kMegabyte, Level::messages, 1024);
  const Ticket stuck = recorder.issue(Kind::forward);
  recorder.begin(stuck, kSecond);
  std::uint64_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const Ticket ticket = recorder.issue(Kind::matmul);
    if (ticket == trace::kNoTicket) ++refused;
    recorder.begin(ticket, 2 * kSecond + i);
    recorder.end(ticket, 2 * kSecond + i);
  }
  EXPECT_GT(refused, 1500U);
  EXPECT_EQ(recorder.dropped(), refused);
  recorder.end(stuck, 3 * kSecond);
  recorder.flush();
  EXPECT_NE(recorder.issue(Kind::forward), trace::kNoTicket);
  recorder.flush();
  const RunTrace run = read();
  EXPECT_EQ(run.ranks.front().dropped, refused);
  EXPECT_EQ(run.event_count(), 3001 - refused + 1);
}

TEST_F(TraceFileTest, KeepsThePreviousRun) {
  {
    Recorder recorder(dir_, identity(), kMegabyte, Level::messages);
    recorder.issue(Kind::save);
    recorder.flush();
  }
  Recorder recorder(dir_, identity(), kMegabyte, Level::messages);
  EXPECT_EQ(read().event_count(), 0U);
  RunTrace before;
  TraceFileReader(before).read(path() + ".previous");
  EXPECT_EQ(before.event_count(), 1U);
  EXPECT_EQ(before.ranks.front().ending, Ending::running);
}

// Whoever stamps, whoever flushes and whoever reads, at once: every event that is read is whole.
TEST_F(TraceFileTest, ReadsAFileThatIsBeingWritten) {
  Recorder recorder(dir_, identity(), kMegabyte, Level::messages);
  const int group = recorder.group("world", 0, kPair);
  std::atomic<std::uint64_t> issued = 0;
  std::atomic<bool> stop = false;
  std::jthread worker([&] {
    for (std::uint64_t next = 0; !stop;) {
      if (next == issued) continue;
      recorder.begin(next, kSecond + static_cast<std::int64_t>(next) * 1000);
      recorder.end(next, kSecond + static_cast<std::int64_t>(next) * 1000 + 400);
      ++next;
    }
  });
  std::jthread flusher([&] {
    while (!stop) recorder.flush();
  });
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    while (message(recorder, group, i) == trace::kNoTicket) {}
    issued = i + 1;
    if (i % 5000 != 0) continue;
    RunTrace run;
    TraceFileReader(run).read(path());
    for (const auto& [problem, count] : run.problems) {
      EXPECT_TRUE(problem == "page of events damaged" || problem == "page of events of another time") << problem;
    }
    for (const Event& event : run.ranks.front().events) {
      if (event.state == State::issued) continue;
      ASSERT_EQ(event.begin_ns, kSecond + std::int64_t{event.detail} * 1000);
      if (event.state == State::ended) { ASSERT_EQ(event.duration_ns, 400); }
    }
  }
  stop = true;
}

TEST_F(TraceFileTest, CountsDamageWithoutFailing) {
  {
    Recorder recorder(dir_, identity(), kMegabyte, Level::messages);
    const int group = recorder.group("world", 0, kPair);
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const Ticket ticket = message(recorder, group, i);
      recorder.begin(ticket, kSecond);
      recorder.end(ticket, kSecond + 1);
    }
    recorder.close(trace::format::Ending::done);
  }
  const std::string sound = read_file(path());
  const auto read_damaged = [&](const std::string& bytes) -> std::optional<std::size_t> {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
    RunTrace run;
    try {
      TraceFileReader(run).read(path());
    } catch (const Error& error) {
      EXPECT_EQ(error.blame(), Blame::user) << error.what();
      return std::nullopt;
    }
    std::size_t problems = 0;
    for (const auto& [problem, count] : run.problems) problems += count;
    EXPECT_TRUE(problems > 0 || run.event_count() == 1000) << run.event_count();
    return run.event_count();
  };
  EXPECT_EQ(read_damaged(sound), 1000U);
  // One header is enough, none is too few.
  std::string bytes = sound;
  bytes[40] ^= 1;
  EXPECT_TRUE(read_damaged(bytes).has_value());
  bytes[4096 + 40] ^= 1;
  EXPECT_EQ(read_damaged(bytes), std::nullopt);
  // A page that is damaged is left out.
  const std::size_t pages = sound.size() - 4 * 4096;
  for (std::size_t page = 0; page < 4; ++page) {
    bytes = sound;
    bytes[pages + page * 4096 + 100] ^= 1;
    EXPECT_EQ(read_damaged(bytes), page < 3 ? 748U : 756U) << page;
  }
  // Cut off anywhere, and any byte wrong, in the parts that are not holes.
  for (std::size_t size = 0; size < sound.size(); size += 997) read_damaged(sound.substr(0, size));
  for (std::size_t i = 0; i < sound.size(); i += i < 16384 ? 61 : 4001) {
    bytes = sound;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x55);
    read_damaged(bytes);
  }
}

TEST_F(TraceFileTest, RefusesOtherFiles) {
  const auto refusal = [&](const std::string& bytes) {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
    RunTrace run;
    try {
      TraceFileReader(run).read(path());
    } catch (const Error& error) { return error.kind(); }
    return std::string("read");
  };
  EXPECT_EQ(refusal(""), "trace.file");
  EXPECT_EQ(refusal("{\"traceEvents\":[]}"), "trace.file");
  { const Recorder recorder(dir_, identity(), kMegabyte, Level::messages); }
  std::string bytes = read_file(path());
  bytes[8] = 9;
  bytes[4096 + 8] = 9;
  EXPECT_EQ(refusal(bytes), "trace.version");
  { const Recorder one(dir_, identity(3), kMegabyte, Level::messages); }
  trace::Identity other = identity(4);
  other.run = "job-2";
  { const Recorder two(dir_, other, kMegabyte, Level::messages); }
  RunTrace run;
  TraceFileReader reader(run);
  reader.read(path(3));
  EXPECT_THROW(reader.read(path(4)), Error);
  EXPECT_THROW(reader.read(dir_ + "/absent.mst"), Error);
}

TEST(RanksText, RoundTripsRankLists) {
  const auto text = [](const std::vector<int>& ranks) { return trace::ranks_text(ranks); };
  EXPECT_EQ(text({5}), "5");
  EXPECT_EQ(text({0, 3}), "0,3");
  EXPECT_EQ(text({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(text({0, 8, 16, 24}), "0-24:8");
  EXPECT_EQ(text({3, 1}), "3,1");
  EXPECT_EQ(text({0, 1, 2, 9, 7}), "0-2,9,7");
  EXPECT_EQ(text({}), "");
}

}  // namespace
}  // namespace ms::tracepp
