// Chrome traces of Kineto and of other programs: exact times, communication, steps, lanes; and damaged or hostile
// files.
#include "tracepp/read/chrome_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "foreign_files.h"

namespace ms::tracepp {
namespace {

RunTrace read(const std::string& text, const std::string& name = "trace.json") {
  const ForeignFiles files;
  return read_run({files.put(name, text)});
}

std::string object(const std::string& events, const std::string& before = "") {
  return "{" + before + "\"traceEvents\":[" + events + "]}";
}

std::string x(const std::string& name, const std::string& ts, const std::string& dur, const std::string& rest = "") {
  return R"({"ph":"X","cat":"c","name":")" + name + R"(","pid":1,"tid":2,"ts":)" + ts + R"(,"dur":)" + dur + rest + "}";
}

// clang-format off
const char kKineto[] = R"json({
  "schemaVersion": 1,
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 2,
    "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 8,
                   "ranks": [0, 1, 2, 3, 4, 5, 6, 7]},
                  {"pg_name": "5", "pg_desc": "PIPELINE_MODEL_PARALLEL_GROUP", "pg_size": 2, "ranks": [3, 7]}]},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1727971194000000000,
  "traceEvents": [
  {"ph": "M", "name": "process_name", "pid": 4711, "tid": 0, "ts": 1.000, "args": {"name": "python"}},
  {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": 1.000, "args": {"name": "stream 7"}},
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 4711, "tid": 4711, "ts": 1000.001, "dur": 99.999},
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#6", "pid": 4711, "tid": 4711, "ts": 1100.000, "dur": 100.000},
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4711, "tid": 4711, "ts": 1050.123, "dur": 3.456,
   "args": {"External id": 1, "step": 77}},
  {"ph": "X", "cat": "kernel", "name": "ampere_bf16_s16816gemm_bf16_128x128", "pid": 0, "tid": 7,
   "ts": 9007199254740.993, "dur": 12.345, "args": {"device": 0, "stream": 7, "grid": [1, 2, 3]}},
  {"ph": "X", "cat": "kernel", "name": "void pytorch_flash::flash_fwd_kernel<bf16>(Params)", "pid": 0, "tid": 7,
   "ts": 1150.000, "dur": 1, "args": {}},
  {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "pid": 0,
   "tid": 20, "ts": 1160.000, "dur": 30.5,
   "args": {"Collective name": "_allgather_base", "In msg nelems": 1024, "Out msg nelems": 8192, "Group size": 8,
            "dtype": "BFloat16", "In split size": "[]", "Process Group Name": "0",
            "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1, 2, ...]", "Seq": 41}},
  {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv(x)", "pid": 0, "tid": 20, "ts": 1170.000, "dur": 30.5,
   "args": {"Collective name": "send", "In msg nelems": 10, "Group size": 2, "dtype": "Float",
            "Process Group Name": "5", "Dst Rank": 1, "Seq": 9}},
  {"ph": "s", "id": 1, "pid": 4711, "tid": 4711, "ts": 1050.123, "cat": "ac2g", "name": "ac2g"},
  {"ph": "f", "id": 1, "pid": 0, "tid": 7, "ts": 1150.000, "cat": "ac2g", "name": "ac2g", "bp": "e"},
  {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 1300.000}
  ],
  "traceName": "x.json"
})json";
// clang-format on

TEST(ChromeReader, ReadsKineto) {
  const RunTrace trace = read(kKineto, "node7_4711.1727971194000000000.pt.trace.json");
  EXPECT_EQ(trace.source->name, "kineto");
  ASSERT_EQ(trace.ranks.size(), 1U);
  const RankTrace& rank = trace.ranks[0];
  EXPECT_EQ(rank.rank, 3);
  EXPECT_EQ(rank.host, "node7");
  EXPECT_EQ(rank.clock_ns, rank.realtime_ns);
  ASSERT_EQ(rank.events.size(), 7U);
  EXPECT_TRUE(std::ranges::is_sorted(rank.events, {}, &Event::begin_ns));

  const Event& mm = event_named(trace, "aten::mm");
  EXPECT_EQ(mm.begin_ns, 1727971194001050123);
  EXPECT_EQ(mm.duration_ns, 3456);
  EXPECT_EQ(mm.step, 5);  // by when it began; what its args say is not looked at
  EXPECT_EQ(trace.info(mm).kind, Kind::other);
  const Event& gemm = event_named(trace, "ampere_bf16_s16816gemm_bf16_128x128");
  EXPECT_EQ(gemm.begin_ns, 1727971194000000000 + 9007199254740993);  // more than a double holds
  EXPECT_EQ(trace.info(gemm).kind, Kind::matmul);
  EXPECT_EQ(gemm.step, kNoStep);
  EXPECT_NE(gemm.lane, mm.lane);
  EXPECT_EQ(trace.strings.text(rank.lanes[gemm.lane]), "stream 7");
  EXPECT_EQ(trace.info(event_named(trace, "void pytorch_flash::flash_fwd_kernel<bf16>(Params)")).kind, Kind::attention);

  const Event& gather = event_named(trace, "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  const EventInfo& info = trace.info(gather);
  EXPECT_EQ(info.kind, Kind::all_gather);
  EXPECT_EQ(info.size_bytes, 16384) << "of the result, as nccl-tests counts";
  EXPECT_EQ(trace.strings.text(info.type), "BFloat16");
  EXPECT_EQ(gather.detail, 41U);
  EXPECT_EQ(gather.step, 6);
  const ProcessGroup& group = trace.groups.at(static_cast<std::size_t>(info.group));
  EXPECT_EQ(group.name, "default_pg 0");
  EXPECT_EQ(group.axis, GroupAxis::world);
  EXPECT_THAT(group.ranks, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));  // pg_config knows those left out

  const EventInfo& send = trace.info(event_named(trace, "ncclDevKernel_SendRecv(x)"));
  EXPECT_EQ(send.kind, Kind::send);
  EXPECT_THAT(trace.groups.at(static_cast<std::size_t>(send.group)).ranks, testing::ElementsAre(3, 7));
  EXPECT_EQ(trace.groups.at(static_cast<std::size_t>(send.group)).axis, GroupAxis::pp);

  int steps = 0;
  for (const Event& event : rank.events) {
    if (trace.info(event).kind != Kind::step) continue;
    EXPECT_EQ(event.detail, static_cast<std::uint32_t>(5 + steps++));
  }
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(problem(trace, "instants, counters and flow arrows that were skipped"), 3U);
}

// A job on the CPU: gloo's collectives name no group and have no number, and operators are the computing.
TEST(ChromeReader, ReadsCollectivesOfGloo) {
  const auto text = [](std::string_view groups, std::string_view more = "") {
    return fmt::format(R"({{"distributedInfo": {{"backend": "gloo", "rank": 0, "world_size": 2, "pg_config": [{}]}},
      "traceEvents": [{}
      {{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 1, "tid": 1, "ts": 100, "dur": 100}},
      {{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#6", "pid": 1, "tid": 1, "ts": 200, "dur": 100}},
      {{"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "pid": 1, "tid": 1, "ts": 110, "dur": 1}},
      {{"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 1, "ts": 112, "dur": 1}},
      {{"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 2, "ts": 120, "dur": 40}},
      {{"ph": "X", "cat": "user_annotation", "name": "gloo:broadcast", "pid": 1, "tid": 2, "ts": 170, "dur": 5}},
      {{"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 3, "ts": 220, "dur": 40}},
      {{"ph": "X", "cat": "user_annotation", "name": "gloo:send", "pid": 1, "tid": 3, "ts": 270, "dur": 2}}]}})",
                       groups, more);
  };
  const std::string world = R"({"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]})";
  const auto comms = [](const RunTrace& trace) {
    std::vector<std::tuple<Kind, bool, std::uint32_t>> found;
    for (const Event& event : trace.ranks.at(0).events) {
      const EventInfo& info = trace.info(event);
      if (trace::is_comm(info.kind)) found.emplace_back(info.kind, info.group >= 0, event.detail);
    }
    return found;
  };
  const RunTrace trace = read(text(world));
  using std::tuple;
  using testing::ElementsAre;
  constexpr std::uint32_t kFive = 6 << 13, kSix = 7 << 13;  // numbers begin anew with each step
  EXPECT_THAT(comms(trace), ElementsAre(tuple(Kind::all_reduce, true, kFive), tuple(Kind::broadcast, true, kFive + 1),
                                        tuple(Kind::all_reduce, true, kSix), tuple(Kind::send, false, kNoDetail)));
  EXPECT_EQ(trace.info(event_named(trace, "aten::addmm")).kind, Kind::matmul);
  EXPECT_EQ(trace.info(event_named(trace, "c10d::allreduce_")).kind, Kind::other);
  // Of two groups, nothing tells which one an operation is of.
  for (const auto& [kind, has_group, number] : comms(read(text(world + R"(, {"pg_name": "1", "ranks": [0]})"))))
    EXPECT_FALSE(has_group);
  // Where a device computes, operators of the host only launch.
  const RunTrace device =
      read(text(world, R"({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 113, "dur": 1},)"));
  EXPECT_EQ(device.info(event_named(device, "aten::addmm")).kind, Kind::other);
}

TEST(ChromeReader, AcceptsTheHeaderAnywhere) {
  const std::string events = x("a", "1.5", "2");
  const RunTrace trace = read("{\"traceEvents\":[" + events +
                              "],\"baseTimeNanoseconds\":1700000000000000000,\"distributedInfo\":{\"rank\":12}}");
  EXPECT_EQ(trace.ranks.at(0).rank, 12);
  EXPECT_EQ(trace.ranks[0].events.at(0).begin_ns, 1700000000000001500);
}

TEST(ChromeReader, ReadsNumbersExactly) {
  const auto ns = [](std::string_view token) {
    std::int64_t value = -1;
    return parse_us(token, value) ? value : std::int64_t{-999};
  };
  EXPECT_EQ(ns("0"), 0);
  EXPECT_EQ(ns("123.456"), 123456);
  EXPECT_EQ(ns("123.4"), 123400);
  EXPECT_EQ(ns("2688330.4119110107"), 2688330412);
  EXPECT_EQ(ns("0.0005"), 1);
  EXPECT_EQ(ns("0.00049"), 0);
  EXPECT_EQ(ns("-1.25"), -1250);
  EXPECT_EQ(ns("1e3"), 1000000);
  EXPECT_EQ(ns("\"1.5\""), 1500);
  EXPECT_EQ(ns("1.5E-2"), 15);
  EXPECT_EQ(ns("1727971194001050.123"), 1727971194001050123);
  for (const char* bad : {"", "-", ".", "null", "NaN", "nan", "Infinity", "-Infinity", "inf", "1e300", "1e", "0x10",
                          "99999999999999999999", "9999999999999999.0", "\"x\"", "\"1", "1 2", "1.5x", "--1"}) {
    EXPECT_EQ(ns(bad), -999) << bad;
  }
  EXPECT_EQ(parse_int("17"), 17);
  EXPECT_EQ(parse_int("17.00"), 17);
  EXPECT_EQ(parse_int("\"17\""), 17);
  for (const char* bad : {"", "x", "1.5", "1e3", "99999999999999999999", "null"}) EXPECT_FALSE(parse_int(bad)) << bad;
}

TEST(ChromeReader, PairsBeginsAndEnds) {
  const auto be = [](char phase, const std::string& name, int ts, int tid) {
    return fmt::format(R"({{"ph":"{}","name":"{}","pid":1,"tid":{},"ts":{}}})", phase, name, tid, ts);
  };
  const RunTrace trace =
      read("[" + be('B', "outer", 1, 1) + "," + be('B', "inner", 2, 1) + "," + be('B', "else", 2, 2) + "," +
           be('E', "", 5, 1) + "," + be('E', "", 9, 1) + "," + be('E', "", 9, 1) + "]");
  EXPECT_EQ(trace.source, &kChromeTrace);
  EXPECT_EQ(event_named(trace, "outer").duration_ns, 8000);
  EXPECT_EQ(event_named(trace, "inner").duration_ns, 3000);
  EXPECT_EQ(event_named(trace, "else").state, State::begun);
  EXPECT_EQ(problem(trace, "event that has no end"), 1U);
  EXPECT_EQ(problem(trace, "end of an event that did not begin"), 1U);
}

// Asynchronous events pair by category and number, on whatever thread.
TEST(ChromeReader, PairsAsynchronousEvents) {
  const RunTrace trace = read(object(R"({"ph":"b","cat":"c","id":"0x1","name":"a","pid":1,"tid":1,"ts":10},)"
                                     R"({"ph":"b","cat":"c","id":2,"name":"b","pid":1,"tid":1,"ts":20},)"
                                     R"({"ph":"e","cat":"c","id":"0x1","name":"a","pid":1,"tid":2,"ts":50},)"
                                     R"({"ph":"e","cat":"c","id":2,"name":"b","pid":1,"tid":1,"ts":60},)"
                                     R"({"ph":"b","cat":"c","id":3,"name":"c","pid":1,"tid":1,"ts":70})"));
  EXPECT_EQ(event_named(trace, "a").duration_ns, 40'000);
  EXPECT_EQ(event_named(trace, "b").duration_ns, 40'000);
  EXPECT_EQ(event_named(trace, "c").state, State::begun);
  EXPECT_EQ(problem(trace, "event that has no end"), 1U);
}

TEST(ChromeReader, ReadsNumbersInQuotes) {
  const RunTrace trace = read(object(x("a", "\"1718116800001000.123\"", "\"5.5\"")));
  EXPECT_EQ(event_named(trace, "a").begin_ns, 1718116800001000123);
  EXPECT_EQ(event_named(trace, "a").duration_ns, 5500);
}

// The exporter before Kineto: no categories, and processes that are no numbers.
TEST(ChromeReader, ReadsLegacyArrays) {
  const RunTrace trace = read(
      R"([{"name": "aten::mm", "ph": "X", "ts": 5, "dur": 10, "tid": 1, "pid": "CPU functions", "args": {}},
          {"name": "sgemm", "ph": "X", "ts": 6, "dur": 10, "tid": 0, "pid": "CUDA functions", "args": {}}])");
  EXPECT_EQ(trace.info(event_named(trace, "sgemm")).kind, Kind::matmul);
  EXPECT_EQ(trace.info(event_named(trace, "aten::mm")).kind, Kind::other);
  const RunTrace host =
      read(R"([{"name": "aten::mm", "ph": "X", "ts": 5, "dur": 10, "tid": 1, "pid": "CPU functions", "args": {}}])");
  EXPECT_EQ(host.info(event_named(host, "aten::mm")).kind, Kind::matmul);
}

TEST(ChromeReader, CountsUnusableRecords) {
  const RunTrace trace =
      read("[" + x("good", "1", "2") + "," + x("nan", "NaN", "2") + "," + x("nodur", "3", "null") + "," +
           x("negative", "4", "-5") + "," + x("huge", "1e300", "1") + "," +
           R"({"ph":"Z","name":"odd"},17,null,"text",[],{"no":"phase"},)" + x("last", "7", "1") + "]");
  EXPECT_EQ(trace.event_count(), 4U);
  EXPECT_EQ(event_named(trace, "last").begin_ns, 7000);
  EXPECT_EQ(event_named(trace, "negative").duration_ns, 0);
  EXPECT_EQ(problem(trace, "time that is no number"), 2U);
  EXPECT_EQ(problem(trace, "duration that is no number"), 1U);
  EXPECT_EQ(problem(trace, "negative duration"), 1U);
  EXPECT_EQ(problem(trace, "record that is no sound JSON object"), 4U);
  EXPECT_EQ(problem(trace, "events of another phase that were skipped"), 2U);
}

TEST(ChromeReader, SkipsBrokenRecords) {
  const RunTrace trace = read("[" + x("a", "1", "1") + R"(,{"ph":"X" "name":"b"},)" + x("c", "2", "1") +
                              R"(,{"ph":]},)" + x("d", "3", "1") + x("e", "4", "1") + "," + x("f", "5", "1") + "]");
  for (const char* name : {"a", "c", "d", "e", "f"}) EXPECT_NO_THROW(event_named(trace, name)) << name;
  EXPECT_GE(problem(trace, "record that is no sound JSON object"), 1U);
}

TEST(ChromeReader, KeepsHostileStringsAsTheyAre) {
  const auto named = [](const std::string& json) {
    return read("[" + x(json, "1", "1") + "," + x("z", "2", "1") + "]");
  };
  EXPECT_NO_THROW(event_named(named(R"(</script><b>\"%s%n{}\\)"), "</script><b>\"%s%n{}\\"));
  EXPECT_NO_THROW(event_named(named(R"(a\u0000b\u00e9\n)"), std::string_view("a\0b\xc3\xa9\n", 6)));
  EXPECT_NO_THROW(event_named(named(R"(},{\"ph\":\"X\"},{)"), "},{\"ph\":\"X\"},{"));
  EXPECT_NO_THROW(event_named(named("},{"), "},{"));                      // looks like a seam
  EXPECT_NO_THROW(event_named(named(R"(\ud800)"), R"(\ud800)"));          // half of a pair: as it stands
  EXPECT_NO_THROW(event_named(named("tab\tnewline\n"), "tab newline "));  // may not stand there
  EXPECT_EQ(problem(named("a\x01"
                          "b"),
                    "bytes that are no text"),
            1U);
  EXPECT_EQ(problem(named("\xff\xc0"), "bytes that are no text"), 2U);
  EXPECT_NO_THROW(event_named(named("\xff\xc0"), "??"));
  const std::string large(1 << 20, 'n');
  EXPECT_NO_THROW(event_named(named(large), large));
  EXPECT_NO_THROW(event_named(named(large), "z"));
}

// Pieces are cut where something looks like the end of an event; here it does where it is not one.
TEST(ChromeReader, IgnoresStringsThatLookLikeObjectBoundaries) {
  std::string text = "{\"other\":[{\"a\":1},{\"b\":2}],\"traceEvents\":[";
  constexpr int kEvents = 20'000;
  for (int i = 0; i < kEvents; ++i) {
    if (i > 0) text += i % 3 == 0 ? ",\n" : ", ";
    text += fmt::format(
        R"({{"ph":"X","name":"e{}}},{{","pid":1,"tid":1,"ts":{},"dur":1,"args":{{"list":[{{"x":1}},{{"y":"}},{{"}}]}}}})",
        i % 7, i);
  }
  text += "],\"more\":[{\"c\":1},{\"d\":\"}, {\"}]}";
  const RunTrace trace = read(text);
  ASSERT_EQ(trace.event_count(), static_cast<std::size_t>(kEvents));
  for (std::size_t i = 0; i < kEvents; ++i)
    ASSERT_EQ(trace.ranks[0].events[i].begin_ns, static_cast<std::int64_t>(1000 * i));
  EXPECT_EQ(trace.problems.size(), 1U);  // no rank is named
}

TEST(ChromeReader, SurvivesDeepNesting) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const RunTrace trace = read("[" + x("a", "1", "1", ",\"args\":{\"x\":" + deep + "}") + "," + x("b", "2", "1") + "]");
  EXPECT_EQ(trace.event_count(), 2U);
  EXPECT_NO_THROW(read("[" + x("a", "1", "1") + "," + std::string(300'000, '[')));
  EXPECT_NO_THROW(read("[" + x("a", "1", "1") + "," + std::string(300'000, '{')));
}

TEST(ChromeReader, KeepsTheEventsBeforeTheCut) {
  const std::string text = object(x("a", "1", "1") + "," + x("b", "2", "1") + "," + x("c", "3", "1"));
  const RunTrace trace = read(text.substr(0, text.size() - 20));
  EXPECT_EQ(trace.event_count(), 2U);
  EXPECT_EQ(problem(trace, "file is cut off"), 1U);
  const ForeignFiles files;
  const std::string packed = gzipped(object(x("a", "1", "1") + "," + x("b", "2", "1") + std::string(100'000, ' ')));
  const RunTrace cut = read_run({files.put("x.json.gz", packed.substr(0, packed.size() - 12))});
  EXPECT_EQ(cut.event_count(), 2U);
  EXPECT_EQ(problem(cut, "compressed data is cut off"), 1U);
}

// Whatever is cut off or turned over: nothing falls, and nothing is thrown but that there is no trace in it.
TEST(ChromeReader, SurvivesDamage) {
  const ForeignFiles files;
  const auto survive = [&](std::string_view text) {
    try {
      const RunTrace trace = read_run({files.put("rank3.json", text)}, {.threads = 1});
      for (const RankTrace& rank : trace.ranks) {
        for (const Event& event : rank.events) {
          ASSERT_LT(event.info, trace.infos.size());
          ASSERT_GE(event.duration_ns, 0);
        }
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), "trace.none") << error.what();
      ASSERT_EQ(error.blame(), Blame::user);
    }
  };
  const std::string_view text(kKineto);
  for (std::size_t size = 0; size < text.size(); ++size) survive(text.substr(0, size));
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged(text);
    for (unsigned i = 0; i <= random() % 4; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    survive(damaged);
  }
  for (int round = 0; round < 3000; ++round) {  // only with what means something
    std::string damaged(text);
    for (unsigned i = 0; i <= random() % 4; ++i) damaged[random() % damaged.size()] = "{}[]\",:\\"[random() % 8];
    survive(damaged);
  }
}

TEST(SortByBegin, MergesSortedRuns) {
  std::mt19937 random(2);
  for (const std::size_t count : {0U, 1U, 2U, 7U, 1000U}) {
    for (const std::int64_t most : {std::int64_t{3}, std::int64_t{1'000'000}}) {
      std::vector<Event> events(count);
      for (std::size_t i = 0; i < count; ++i) {
        events[i].begin_ns = random() % static_cast<std::uint64_t>(most);
        events[i].detail = static_cast<std::uint32_t>(i);
      }
      std::vector<Event> expected = events;
      std::ranges::stable_sort(expected, {}, &Event::begin_ns);
      sort_by_begin(events);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(events[i].detail, expected[i].detail);
    }
  }
}

}  // namespace
}  // namespace ms::tracepp
