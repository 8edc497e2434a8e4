// Files that somebody made to cost time or memory, or to be believed: what is read of them takes time and room by the
// size of the file, never by what it claims. Without the limits most of these tests do not end, or find no memory.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "base/hash.h"
#include "foreign_files.h"
#include "made_run.h"
#include "trace/recorder.h"
#include "tracepp/export/export.h"
#include "tracepp/findings/change_points.h"
#include "tracepp/findings/suspects.h"
#include "tracepp/hang/hang.h"
#include "tracepp/hang/scan.h"
#include "tracepp/read/trace_reader.h"
#include "tracepp/report/report.h"
#include "tracepp/steps/breakdown.h"
#include "tracepp/steps/effective.h"

namespace ms::tracepp {
namespace {

RunTrace read_text(const std::string& text, const std::string& name = "rank0.json") {
  const ForeignFiles files;
  return read_run({files.put(name, text)});
}

std::string numbers(int count) {
  std::string text = "0";
  for (int i = 1; i < count; ++i) text += ", " + std::to_string(i);
  return "[" + text + "]";
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

const char kEvent[] = R"({"ph":"X","name":"a","ts":1,"dur":2})";

TEST(HostileFiles, WrongValuesCostOnlyTheirSize) {
  for (const std::string wrong : {"\"\\\\\",", ":1", "7,"}) {
    constexpr int kCount = 1'000'000;
    const RunTrace trace = read_text("{\"traceEvents\":[" + repeated(wrong, kCount) + "," + kEvent + "]}");
    EXPECT_EQ(problem(trace, "record that is no sound JSON object"), kCount) << wrong;
    EXPECT_EQ(trace.event_count(), 1U);
  }
}

TEST(HostileFiles, SoundEventsAmongWrongOnesAreKept) {
  constexpr int kCount = 20'000;
  const RunTrace trace = read_text("[" + repeated(std::string("3,{\"ph\":\"X\" 1},") + kEvent + ",", kCount) + "4]");
  EXPECT_EQ(trace.event_count(), static_cast<std::size_t>(kCount));
  EXPECT_EQ(problem(trace, "record that is no sound JSON object"), 2 * kCount + 1);
}

TEST(HostileFiles, AFileOfHolesTakesNoMemory) {
  const ForeignFiles files;
  const std::string path = files.put("rank0.json", "{\"traceEvents\":[" + repeated(std::string(kEvent) + ",", 5000));
  ASSERT_EQ(truncate(path.c_str(), std::int64_t{1} << 42), 0);
  const RunTrace trace = read_run({path});
  EXPECT_EQ(trace.event_count(), 5000U);
}

TEST(HostileFiles, StopsAtDecompressionBombs) {
  const ForeignFiles files;
  const std::string events = "[" + repeated(std::string(kEvent) + ",", 5'000'000);  // 180 MB
  // One that stays below twice the ratio of traces, by a part that does not compress.
  std::mt19937 random(1);
  std::string noise = "[\"";
  for (int i = 0; i < 1'600'000; ++i) noise += static_cast<char>('0' + random() % 64);
  std::ranges::replace(noise, '\\', 'x');
  for (const auto& packed :
       {gzipped(events), zstd_packed(events), gzipped(noise + "\",") + gzipped(events.substr(1))}) {
    const RunTrace trace = read_run({files.put("rank0.json", packed)});
    EXPECT_GT(trace.event_count(), 100'000U);
    EXPECT_LT(trace.event_count(), 5'000'000U);
    EXPECT_EQ(problem(trace, "compressed data that grows beyond all measure"), 1U);
  }
}

TEST(HostileFiles, AMillionMembersAreReadOnce) {
  constexpr int kMembers = 500'000, kEntries = 20'000;
  const std::string ranks = numbers(kMembers);
  std::string dump = R"({"version":"2.4","rank":0,"entries":[)";
  std::string kineto = R"({"distributedInfo":{"rank":0,"pg_config":[{"pg_name":"7","pg_desc":"d","ranks":)" + ranks +
                       R"(}]},"traceEvents":[)";
  for (int i = 0; i < kEntries; ++i) {
    const std::string n = std::to_string(i);
    dump += (i > 0 ? "," : "") + std::string(R"({"process_group":["7",")") + n +
            R"("],"profiling_name":"nccl:all_reduce","collective_seq_id":)" + n + R"(,"state":"scheduled"})";
    kineto += (i > 0 ? "," : "") + std::string(R"({"ph":"X","cat":"kernel","name":"ncclKernel)") + n +
              R"(","ts":1,"dur":2,"args":{"Collective name":"allreduce","Process Group Name":"7","Seq":)" + n + "}}";
  }
  dump += R"(],"pg_config":{"7":{"name":"7","desc":"d","ranks":")" + ranks + R"("}}})";
  for (const std::string& text : {dump, kineto + "]}"}) {
    const RunTrace trace = read_text(text);
    EXPECT_EQ(trace.event_count(), static_cast<std::size_t>(kEntries));
    ASSERT_EQ(trace.groups.size(), 1U);
    EXPECT_EQ(trace.groups[0].ranks.size(), static_cast<std::size_t>(kMembers));
  }
}

TEST(HostileFiles, GroupsHaveAllTheirMembersOrNone) {
  RunTrace trace;
  Tables tables(trace);
  const std::vector<int> members(Tables::kMostMembers / 4, 3);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(tables.group({.name = std::to_string(i), .ranks = members}), i);
  EXPECT_EQ(tables.group({.name = "5", .ranks = members}), 5);
  EXPECT_EQ(tables.group({.name = "1", .ranks = members}), 1);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(trace.groups[i].ranks.size(), i < 4 ? members.size() : 0U);
  EXPECT_EQ(tables.room(), 0U);
  EXPECT_EQ(problem(trace, "group with more members than there is room for"), 3U);
}

TEST(HostileFiles, MakesNoMillionGroupsForOneRank) {
  constexpr int kChunks = 20'000;
  std::string text = R"([{"ph":"M","name":"thread_name","pid":999999,"tid":0,"args":{"name":"rank[999999]"}})";
  for (int i = 0; i < kChunks; ++i) {
    text += R"(,{"ph":"X","name":"params-all-gather","pid":999999,"tid":0,"ts":1,"dur":1,"args":{"step":0,)"
            R"("model_chunk":)" +
            std::to_string(i) + "}}";
  }
  const RunTrace trace = read_text(text + "]");
  EXPECT_EQ(trace.mesh.dp, 1'000'000);
  EXPECT_EQ(trace.groups.size(), 1U);
  EXPECT_EQ(trace.infos.size(), static_cast<std::size_t>(kChunks));
}

TEST(HostileFiles, MakesNoTableOfAllDifferentOperationsAndSteps) {
  constexpr int kCount = 200'000;
  std::string text = R"([{"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"PP rank 0 TP rank 0"}})";
  for (int i = 0; i < 2 * kCount; ++i) {
    text += R"(,{"ph":"X","name":"forward-compute","pid":0,"tid":0,"ts":)" + std::to_string(i) +
            R"(,"dur":1,"args":{"step":)" + std::to_string(std::max(i - kCount, 0)) + "}}";
  }
  const RunTrace trace = read_text(text + "]");
  EXPECT_THROW(find_suspects(trace), Error);  // which asks for memory by what there is
}

TEST(HostileAnalyses, EventsMayReachOverAllSteps) {
  constexpr int kSteps = 100'000;
  MadeRun made({.dp = 1, .pp = 1, .tp = 1});
  const std::uint32_t tp = made.info(Kind::all_gather, Purpose::forward, made.group("tp[dp 0 pp 0]", {0}));
  for (made.step = 0; made.step < kSteps; ++made.step) made.step_event(0, 1000 * made.step, 1000 * (made.step + 1));
  for (int i = 0; i < kSteps; ++i) {
    made.add(0, tp, {.begin_ns = i % 1000, .end_ns = 1000LL * kSteps + i});
    made.section(0, Kind::forward, i % 1000, 1000LL * kSteps + i);
  }
  const Breakdown breakdown = break_down(made.run);
  ASSERT_EQ(breakdown.steps.size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(sum_of(breakdown.steps).busy_ns, 1000LL * kSteps);
  EXPECT_EQ(sum_of(breakdown.steps).axis(GroupAxis::tp).total_ns, 1000LL * kSteps);
}

TEST(HostileAnalyses, ASaveInEveryGapIsAddedUpOnce) {
  constexpr int kSteps = 200'000;
  MadeRun made({.dp = 1, .pp = 1, .tp = 1});
  const std::uint32_t save = made.info(Kind::save), wait = made.info(Kind::data_wait);
  for (made.step = 0; made.step < kSteps; ++made.step) {
    const std::int64_t begin_ns = 1000 * made.step;
    made.step_event(0, begin_ns, begin_ns + 500);
    made.add(0, save, {.begin_ns = begin_ns + 600, .end_ns = begin_ns + 700});
    made.add(0, save, {.begin_ns = begin_ns + 650, .end_ns = begin_ns + 660});  // which no host does
    made.add(0, wait, {.begin_ns = begin_ns + 700, .end_ns = begin_ns + 1100});
  }
  const Effective found = measure_effective(made.run, break_down(made.run));
  EXPECT_NEAR(found.save_s, 100e-9 * (kSteps - 1), 1e-6);
  EXPECT_NEAR(found.data_wait_s, 300e-9 * (kSteps - 1), 1e-6);
}

TEST(HostileAnalyses, AStepOfEachRanksOwnIsNoStepOfTheRun) {
  MadeRun made({.dp = 100, .pp = 1, .tp = 1});
  for (int rank = 0; rank < 100; ++rank) {
    for (made.step = 0; made.step < 3; ++made.step) made.step_event(rank, 1000 * made.step, 1000 * (made.step + 1));
    made.step = 10 + rank;
    made.step_event(rank, 5000, 6000);
  }
  EXPECT_THAT(find_change_points(made.run, break_down(made.run)).steps, testing::ElementsAre(0, 1, 2));
}

TEST(HostileAnalyses, FindsOldOperations) {
  constexpr int kGroups = 30'000;
  RunTrace trace;
  trace.source = &kOwnSource;
  Tables tables(trace);
  RankTrace& rank = trace.ranks.emplace_back();
  for (int i = 0; i < kGroups; ++i) {
    Event event{.duration_ns = 1, .detail = static_cast<std::uint32_t>(i)};
    event.info =
        tables.info({.kind = Kind::all_reduce, .group = tables.group({.name = std::to_string(i), .ranks = {0, 1}})});
    rank.events.push_back(event);
    event.state = State::begun;
    ++event.detail;
    rank.events.push_back(event);
  }
  const HangScan scan(trace);
  for (int i = 0; i < kGroups; ++i) {
    const auto number = static_cast<std::uint32_t>(i);
    EXPECT_EQ(scan.progress(0, i, number), Progress::ended);
    EXPECT_EQ(scan.progress(0, i, number + 1), Progress::begun);
    EXPECT_EQ(scan.progress(0, i, number + 2), Progress::not_issued);
    EXPECT_EQ(scan.find_event(0, i, number), 2 * number);
    EXPECT_EQ(scan.find_event(0, i, number + 1), 2 * number + 1);
    EXPECT_EQ(scan.find_event(0, i, number + 2), kNoEvent);
  }
}

TEST(HostileAnalyses, TimesMayBeAnything) {
  constexpr std::int64_t kFar = std::int64_t{1} << 61;
  PipelineSpec spec;
  spec.mesh = {.dp = 2, .pp = 2, .tp = 2};
  spec.tp_collectives = spec.ranks_on_host = 2;
  RunTrace trace = play_pipeline(spec);
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    std::vector<Event>& events = trace.ranks[r].events;
    for (std::size_t i = r; i < events.size(); i += 5) {
      events[i].begin_ns = i % 2 == 0 ? -kFar : kFar;
      events[i].duration_ns = i % 3 == 0 ? kFar : 0;
    }
    trace.ranks[r].realtime_ns = r % 2 == 0 ? kFar : -kFar;
    trace.ranks[r].last_flush_ns = -kFar;
  }
  const Analysis analysis = analyse(trace);
  EXPECT_TRUE(nlohmann::json::accept(report_json(trace, analysis).dump()));
}

TEST(HostileAnalyses, NoFileTakesThePlaceOfADevice) {
  const ForeignFiles files;
  const std::string pipe = files / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const UniqueFd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  export_csv(MadeRun({.dp = 1, .pp = 1, .tp = 1}).run, pipe, {});
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::string text(4, '\0');
  ASSERT_EQ(::read(reader.get(), text.data(), text.size()), 4);
  EXPECT_EQ(text, "rank");
}

// A file of our own format, changed with sound checksums.
class HostileTrace : public ::testing::Test {
 protected:
  using Header = trace::format::Header;
  using Page = trace::format::Page;

  HostileTrace() {
    trace::Recorder recorder(
        files_.path(), {.rank = 1, .world = 4, .dp = 2, .pp = 2, .host = "n\xff\x1b[2Jx", .run = "", .device = "cpu"},
        1 << 20, trace::Level::messages);
    const std::vector<int> pair{1, 3};
    const int group = recorder.group("dp[pp 0 tp 0]", 5, pair);
    recorder.begin_step(1, 1000);
    for (std::uint64_t i = 0; i < 3; ++i) {
      const trace::Ticket ticket = recorder.issue_comm(
          {.kind = Kind::all_gather, .group = group, .type = "bf16", .size_bytes = 4096, .sequence = i});
      recorder.begin(ticket, 2000);
      recorder.end(ticket, 3000);
    }
    recorder.probe({.peer = 2, .round = 2, .asked_ns = 1, .answered_ns = 9, .peer_heard_ns = 3, .peer_replied_ns = 4});
    recorder.end_step(1, 5000, {});
    recorder.close(trace::format::Ending::done, "");
    bytes_ = bytes_of(path());
  }

  std::string path() const { return files_ / trace::trace_file_name(1); }
  Header header() const {
    Header first, second;
    std::memcpy(&first, bytes_.data(), sizeof first);
    std::memcpy(&second, bytes_.data() + trace::format::kPageBytes, sizeof second);
    return first.flushes > second.flushes ? first : second;
  }
  template <class T>
  T& at(std::uint64_t offset) {
    return *reinterpret_cast<T*>(bytes_.data() + offset);  // areas are aligned, and so is the string
  }
  void change_page(const std::function<void(Page&)>& change) {
    Page& page = at<Page>(header().pages.offset);
    change(page);
    page.header.checksum = 0;
    page.header.checksum = xxh64(std::as_bytes(std::span(&page, 1))
                                     .first(sizeof page.header + page.header.count * sizeof(trace::format::Record)));
  }
  RunTrace read(const std::function<void(Header&)>& change = [](Header&) {}) {
    Header changed = header();
    change(changed);
    changed.checksum = 0;
    changed.checksum = xxh64(std::as_bytes(std::span(&changed, 1)));
    std::memcpy(bytes_.data(), &changed, sizeof changed);
    std::memcpy(bytes_.data() + trace::format::kPageBytes, &changed, sizeof changed);
    RunTrace run;
    TraceFileReader(run).read(files_.put("changed.mst", bytes_));
    return run;
  }

  ForeignFiles files_;
  std::string bytes_;
};

TEST_F(HostileTrace, StringsAreUtf8) {
  const RunTrace run = read();
  EXPECT_EQ(run.ranks[0].host, "n?\x1b[2Jx");
  EXPECT_EQ(run.ranks[0].events.size(), 4U);
  EXPECT_TRUE(run.problems.empty());
}

TEST_F(HostileTrace, AMeshWhoseSizeOverflowsIsRefused) {
  const auto overflow = [](Header& header) {  // the product is 2^64 + 4
    header.world = 4;
    header.dp = 769546;
    header.pp = 494770;
    header.tp = 48448661;
  };
  EXPECT_THROW(read(overflow), Error);
  EXPECT_THROW(read([](Header& header) { header.world = header.dp = header.pp = header.tp = 0; }), Error);
  EXPECT_THROW(read([](Header& header) { header.pp = 0; }), Error);
}

TEST_F(HostileTrace, TimesAndNumbersOfTheHeaderAreChecked) {
  const RunTrace run = read([](Header& header) {
    header.clock_ns = std::numeric_limits<std::int64_t>::min();
    header.flushed_ns = std::numeric_limits<std::int64_t>::max();
    header.flops_per_step = std::numeric_limits<double>::quiet_NaN();
    header.peak_flops = -std::numeric_limits<double>::infinity();
    header.microbatches = header.chunks = 0xffffffff;
  });
  EXPECT_EQ(problem(run, "header with a time that cannot be"), 2U);
  EXPECT_EQ(run.ranks[0].clock_ns, 0);
  EXPECT_EQ(run.flops_per_step, 0);
  EXPECT_EQ(run.peak_flops, 0);
  EXPECT_GT(run.microbatches, 0);
  EXPECT_GT(run.chunks, 0);
}

TEST_F(HostileTrace, EventsAtTimesThatCannotBeAreCounted) {
  change_page([](Page& page) {
    page.header.shift = 31;
    page.records[1].begin = 0xfffffffe;
    page.records[2].duration = 0xfffffffe;
    page.records[0].detail = 0xffffffff;  // the number of a step
  });
  RunTrace run = read();
  EXPECT_EQ(problem(run, "event that cannot be"), 3U);
  EXPECT_EQ(run.ranks[0].events.size(), 1U);
  for (const std::int64_t base_ns :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    change_page([&](Page& page) { page.header.base_ns = base_ns; });
    EXPECT_EQ(problem(read(), "page of events that cannot be"), 1U);
  }
  change_page([&](Page& page) { page.header = {.count = 4, .step = std::int64_t{1} << 40}; });
  EXPECT_EQ(problem(read(), "page of events that cannot be"), 1U);
}

TEST_F(HostileTrace, SumsAndProbesThatCannotBeAreCounted) {
  at<trace::format::Sum>(header().sums.offset).step = std::uint64_t{1} << 40;
  at<trace::format::Probe>(header().probes.offset).peer = 0xffffffff;
  RunTrace run = read();
  EXPECT_EQ(problem(run, "sums of a step that cannot be"), 1U);
  EXPECT_EQ(problem(run, "clock probe that cannot be"), 1U);
  at<trace::format::Sum>(header().sums.offset).step = 1;
  at<trace::format::Sum>(header().sums.offset).seconds[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(problem(read(), "sums of a step that cannot be"), 1U);
}

TEST_F(HostileTrace, AreasOfATerabyteAreNotLoaded) {
  const RunTrace run = read([](Header& header) {
    for (trace::format::Area* const area :
         {&header.strings, &header.descriptors, &header.groups, &header.probes, &header.sums, &header.pages})
      area->used = area->capacity = std::uint64_t{1} << 33;
  });
  EXPECT_GT(problem(run, "page of events cut off"), 0U);
  EXPECT_EQ(run.ranks[0].events.size(), 4U);
  EXPECT_GT(problem(run, "sums of steps cut off"), 0U);
}

}  // namespace
}  // namespace ms::tracepp
