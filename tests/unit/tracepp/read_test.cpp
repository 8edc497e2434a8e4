// Files of a run, found, told apart and put together.
#include "tracepp/read/read.h"

#include <gmock/gmock.h>

#include <chrono>

#include "foreign_files.h"

namespace ms::tracepp {
namespace {

std::string kineto(int rank, int world, int events = 2, const std::string& name = "op") {
  std::string text = fmt::format(
      R"({{"schemaVersion":1,"distributedInfo":{{"rank":{},"world_size":{}}},"baseTimeNanoseconds":1000000000,"traceEvents":[)",
      rank, world);
  for (int i = 0; i < events; ++i) {
    text += fmt::format(R"({}{{"ph":"X","cat":"cpu_op","name":"{}{}","pid":1,"tid":1,"ts":{}.5,"dur":1}})",
                        i > 0 ? "," : "", name, (rank + i) % 3, i);
  }
  return text + "]}";
}

void expect_refused(const std::vector<std::string>& paths, const std::string& kind,
                    const std::vector<std::string>& messages) {
  try {
    read_run(paths);
    ADD_FAILURE() << "read: " << messages.at(0);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_EQ(error.blame(), Blame::user);
    for (const std::string& message : messages) EXPECT_THAT(error.what(), testing::HasSubstr(message));
  }
}

TEST(ReadRun, CombinesManyFiles) {
  const ForeignFiles files;
  constexpr int kRanks = 13;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string text = kineto(rank, kRanks, 5 + rank);
    files.put(fmt::format("node{}/r{}.json", rank % 2, rank), rank % 3 == 0   ? gzipped(text)
                                                              : rank % 3 == 1 ? zstd_packed(text)
                                                                              : text);
  }
  files.put("notes.txt", "no trace");
  files.put("config.json", "{\"steps\": 3}");
  files.put(".hidden.json", kineto(50, 99));
  files.put("r0.json.previous", kineto(0, 77));
  files.put("a/b/deep.json", kineto(60, 99));
  for (const int threads : {1, 2, 3, 40}) {
    std::int64_t done = 0, total = -1, calls = 0;
    const RunTrace trace =
        read_run({files.path()}, {.threads = threads, .progress = [&](std::int64_t now, std::int64_t all) {
                                    EXPECT_GE(now, done);
                                    done = now;
                                    total = all;
                                    ++calls;
                                  }});
    EXPECT_EQ(done, total);
    EXPECT_EQ(calls, kRanks + 2);
    ASSERT_EQ(trace.ranks.size(), static_cast<std::size_t>(kRanks));
    EXPECT_EQ(trace.source->name, "kineto");
    EXPECT_TRUE(trace.problems.empty());
    EXPECT_EQ(trace.infos.size(), 3U);  // of many files the same
    for (int rank = 0; rank < kRanks; ++rank) {
      const RankTrace* const found = trace.rank(rank);
      ASSERT_NE(found, nullptr);
      ASSERT_EQ(found->events.size(), static_cast<std::size_t>(5 + rank));
      for (std::size_t i = 0; i < found->events.size(); ++i) {
        EXPECT_EQ(trace.strings.text(trace.info(found->events[i]).name),
                  "op" + std::to_string((static_cast<std::size_t>(rank) + i) % 3));
      }
    }
  }
}

TEST(ReadRun, TakesTheNewerOfTwoFilesOfOneRank) {
  const ForeignFiles files;
  const std::string a = files.put("a.json", kineto(3, 4, 2)), b = files.put("b.json", kineto(3, 4, 7));
  const auto now = std::filesystem::file_time_type::clock::now();
  for (const bool a_is_newer : {true, false}) {
    std::filesystem::last_write_time(a, now + std::chrono::hours(a_is_newer ? 1 : -1));
    std::filesystem::last_write_time(b, now);
    const RunTrace trace = read_run({files.path()});
    ASSERT_EQ(trace.ranks.size(), 1U);
    EXPECT_EQ(trace.ranks[0].events.size(), a_is_newer ? 2U : 7U);
    EXPECT_EQ(problem(trace, "second file of a rank, the older was left out"), 1U);
  }
}

// A trace of a rank, of one step that begins so many seconds after 2024 began.
std::string profile(int rank, int step, int second) {
  return fmt::format(
      R"({{"schemaVersion": 1, "baseTimeNanoseconds": {}, "distributedInfo": {{"rank": {}, "world_size": 2}},
          "traceEvents": [{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{}", "pid": 1, "tid": 1, "ts": 0,
                            "dur": 900000}}]}})",
      (1704067200 + second) * 1'000'000'000LL, rank, step);
}

TEST(ReadRun, TellsRecordingsApart) {
  const ForeignFiles files;
  for (const int rank : {0, 1}) {
    files.put(fmt::format("out/profile_trace/iteration_10/rank{}_trace.json", rank), profile(rank, 10, 100));
    files.put(fmt::format("out/profile_trace/iteration_20/rank{}_trace.json", rank), profile(rank, 20, 200 + rank / 2));
  }
  const RunTrace trace = read_run({files.path()});  // far below
  ASSERT_EQ(trace.ranks.size(), 2U);
  EXPECT_EQ(trace.ranks[1].events.at(0).step, 20);
  EXPECT_THAT(trace.recording, testing::EndsWith("iteration_20"));
  ASSERT_EQ(trace.other_recordings.size(), 1U);
  EXPECT_THAT(trace.other_recordings[0], testing::HasSubstr("iteration_10"));
  EXPECT_TRUE(trace.problems.empty());
}

TEST(ReadRun, SplitsADirectoryThatWasProfiledTwice) {
  const ForeignFiles files;
  for (const int rank : {0, 1}) {
    for (const int second : {100, 200})
      files.put(fmt::format("n0_{}.{}.pt.trace.json", 4711 + rank, second), profile(rank, second, second));
  }
  const RunTrace trace = read_run({files.path()});
  ASSERT_EQ(trace.ranks.size(), 2U);
  for (const RankTrace& rank : trace.ranks) EXPECT_EQ(rank.events.at(0).step, 200);
  EXPECT_EQ(trace.other_recordings.size(), 1U);
}

TEST(ReadRun, JoinsTheDirectoriesOfNodes) {
  const ForeignFiles files;
  files.put("n0/rank0.json", profile(0, 3, 100));
  files.put("n1/rank1.json", profile(1, 3, 100));
  EXPECT_EQ(read_run({files.path()}).ranks.size(), 2U);
  // Each node was profiled twice.
  files.put("n0/rank0_again.json", profile(0, 8, 200));
  files.put("n1/rank1_again.json", profile(1, 8, 200));
  const RunTrace trace = read_run({files.path()});
  ASSERT_EQ(trace.ranks.size(), 2U);
  for (const RankTrace& rank : trace.ranks) EXPECT_EQ(rank.events.at(0).step, 8);
  EXPECT_EQ(trace.other_recordings.size(), 2U);
}

TEST(ReadRun, RefusesTwoRunsAtOneTime) {
  const ForeignFiles files;
  for (const char* run : {"a", "b"})
    for (const int rank : {0, 1}) files.put(fmt::format("{}/rank{}.json", run, rank), profile(rank, 3, 100));
  expect_refused({files.path()}, "trace.run", {files / "a", files / "b"});
}

TEST(ReadRun, NamesAnEmptyFileAmongMany) {
  const ForeignFiles files;
  files.put("rank0.json", profile(0, 3, 100));
  files.put("rank1.json", "");
  files.put("notes", "");
  const RunTrace trace = read_run({files.path()});
  EXPECT_EQ(trace.ranks.size(), 1U);
  ASSERT_EQ(trace.unusable.size(), 1U);
  EXPECT_THAT(trace.unusable[0], testing::HasSubstr("rank1.json"));
}

TEST(ReadRun, NumbersRanksByFileNames) {
  const ForeignFiles files;
  const std::string text = R"([{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}])";
  files.put("worker-rank-12.trace.json", text);
  files.put("trace_7.json.gz", gzipped(text));
  files.put("x.json", text);
  const RunTrace trace = read_run({files.path()});
  std::vector<int> ranks;
  for (const RankTrace& rank : trace.ranks) ranks.push_back(rank.rank);
  EXPECT_THAT(ranks, testing::ElementsAre(0, 7, 12));
  EXPECT_EQ(problem(trace, "rank whose number nothing tells"), 1U);
}

// The profiler ends names by a process and a time.
TEST(ReadRun, ATimeIsNoRank) {
  const ForeignFiles files;
  const std::string text = R"([{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}])";
  for (const char* name : {"node0_4711.1760000000001.pt.trace.json", "node0_4712.1760000000002.pt.trace.json"})
    files.put(name, text);
  const RunTrace trace = read_run({files.path()});
  ASSERT_EQ(trace.ranks.size(), 2U);
  EXPECT_EQ(trace.ranks[1].rank, 1);
}

TEST(ReadRun, RefusesFilesOfDifferentRuns) {
  const ForeignFiles files;
  const std::string a = files.put("a.json", kineto(0, 8)), b = files.put("b.json", kineto(1, 16));
  expect_refused({a, b}, "trace.run", {a, b, "is of 8 ranks", "of 16"});
  const std::string dump = files.put(
      "dump_1",
      R"({"pg_config":{},"pg_status":{},"entries":[{"profiling_name":"nccl:barrier","state":"scheduled","process_group":["0",""],"time_created_ns":1}]})");
  expect_refused({a, dump}, "trace.run", {"kineto", "flight recorder", dump});
}

TEST(ReadRun, ListsTheFilesIfNoneIsATrace) {
  const ForeignFiles files;
  expect_refused({files / "absent.json"}, "file.open", {"absent.json", "No such file"});
  expect_refused({files.path()}, "trace.none", {"no files in"});
  files.put("a.txt", "hello");
  files.put("b.pickle", "\x80\x04\x95");
  files.put("c.json", "{\"traceEvents\":[]}");
  files.put("d.mst", "MSTRACE\n but cut");
  files.put("e.json", "");
  files.put("g.log", " [2025-11-26 10:00:00] iteration 10/ 100 | lm loss: 3.1E+00 |\n");
  files.put("h.json", R"({"traceEvents":[{"ph":"X","name":"a","pid":0,"tid":0,"ts":1e300,"dur":1}]})");
  expect_refused({files / "g.log"}, "trace.none", {"g.log: not a trace"});
  expect_refused({files / "h.json"}, "trace.none", {"h.json: JSON without events; time that is no number"});
  expect_refused({files.path()}, "trace.none",
                 {"a.txt: not a trace", "b.pickle: a Python pickle", "c.json: JSON without events", "d.mst"});
  expect_refused({files / "a.txt"}, "trace.none", {"not a trace"});
  for (int i = 0; i < 9; ++i) files.put(fmt::format("f{}", i), "x");
  expect_refused({files.path()}, "trace.none", {"and 11 more"});
}

TEST(ReadRun, SkipsAFileThatCannotBeRead) {
  const ForeignFiles files;
  files.put("a.json", kineto(0, 2));
  files.put("b.mst", "MSTRACE\n but cut");
  const RunTrace trace = read_run({files.path()});
  EXPECT_EQ(trace.ranks.size(), 1U);
  EXPECT_EQ(problem(trace, "file without a trace that could be read"), 1U);
}

TEST(ReadRun, StopsAtTheLimit) {
  const ForeignFiles files;
  const std::string path = files.put("a.json", kineto(0, 2, 1000));
  const RunTrace trace = read_run({path}, {.max_text_bytes = 20'000});
  EXPECT_GT(trace.event_count(), 100U);
  EXPECT_LT(trace.event_count(), 500U);
  EXPECT_EQ(problem(trace, "file is larger than the limit"), 1U);
}

TEST(Merge, RemapsEventsToTheTargetsTables) {
  RunTrace a, b;
  const auto fill = [](RunTrace& trace, int rank, std::vector<std::string> names) {
    Tables tables(trace);
    RankTrace& of = trace.ranks.emplace_back();
    of.rank = rank;
    for (const std::string& name : names) {
      EventInfo info{.kind = Kind::all_reduce, .name = trace.strings.id(name), .type = trace.strings.id("f32")};
      info.group = tables.group({.name = name + " group", .ranks = {0, 1}});
      Event event;
      event.info = tables.info(info);
      of.events.push_back(event);
    }
    of.lanes = {trace.strings.id("lane of " + names[0])};
    trace.problems["x"] = 2;
  };
  fill(a, 0, {"one", "two"});
  fill(b, 1, {"three", "two", "one"});
  merge(a, std::move(b));
  ASSERT_EQ(a.ranks.size(), 2U);
  EXPECT_EQ(a.infos.size(), 3U);
  EXPECT_EQ(a.groups.size(), 3U);
  EXPECT_EQ(a.problems.at("x"), 4U);
  std::vector<std::string> names;
  for (const Event& event : a.ranks[1].events) {
    const EventInfo& info = a.info(event);
    names.emplace_back(a.strings.text(info.name));
    EXPECT_EQ(a.groups.at(static_cast<std::size_t>(info.group)).name, names.back() + " group");
    EXPECT_EQ(a.strings.text(info.type), "f32");
  }
  EXPECT_THAT(names, testing::ElementsAre("three", "two", "one"));
  EXPECT_EQ(a.strings.text(a.ranks[1].lanes.at(0)), "lane of three");
}

}  // namespace
}  // namespace ms::tracepp
