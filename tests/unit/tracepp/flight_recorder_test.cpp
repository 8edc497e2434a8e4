// Flight Recorder dumps: states, groups, sends, sizes.
#include "tracepp/read/flight_recorder_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "foreign_files.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

const char kDump[] = R"({"entries": [
 {"record_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1,
  "profiling_name": "nccl:all_reduce", "time_created_ns": 1724779239936775119, "input_sizes": [[3, 4]], "input_dtypes": ["Float"],
  "output_sizes": [[3, 4]], "output_dtypes": ["Float"], "state": "completed", "time_discovered_started_ns": 1724779239936775200,
  "time_discovered_completed_ns": 1724779239975811724, "retired": true, "timeout_ms": 600000, "is_p2p": false, "frames": [{"name": "f", "filename": "x.py", "line": 3}]},
 {"record_id": 1, "pg_id": 1, "process_group": ["2", "PIPELINE"], "collective_seq_id": 0, "p2p_seq_id": 1, "op_id": 1,
  "profiling_name": "nccl:send 0->1", "time_created_ns": 1724779239976000000, "input_sizes": [[10], [2, 3]], "input_dtypes": ["BFloat16", "BFloat16"],
  "output_sizes": [[10]], "output_dtypes": ["BFloat16"], "state": "started", "time_discovered_started_ns": 1724779239977000000,
  "time_discovered_completed_ns": null, "retired": false, "is_p2p": true},
 {"record_id": 2, "pg_id": 1, "process_group": ["2", "PIPELINE"], "collective_seq_id": 0, "p2p_seq_id": 2, "op_id": 2,
  "profiling_name": "nccl:recv 0<-1", "time_created_ns": 1724779239978000000, "input_sizes": [], "input_dtypes": [], "output_sizes": [[7]],
  "output_dtypes": ["Float"], "state": "scheduled", "time_discovered_started_ns": null, "time_discovered_completed_ns": null, "is_p2p": true},
 {"record_id": 3, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 2, "profiling_name": "nccl:_reduce_scatter_base",
  "time_created_ns": 1724779239979000000, "input_sizes": [[16]], "input_dtypes": ["Half"], "state": "scheduled"},
 {"record_id": 4, "profiling_name": "nccl:barrier", "process_group": ["0", "default_pg"], "collective_seq_id": 3,
  "state": "strange"},
 17],
 "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}, "2": {"name": "2", "desc": "PIPELINE", "ranks": "[1, 3]"}},
 "pg_status": {"0": {"last_enqueued_collective": 2, "last_started_collective": 1, "last_completed_collective": 1}},
 "nccl_version": "2.21.5", "version": "2.9"})";

TEST(FlightRecorder, ReadsADump) {
  const ForeignFiles files;
  const RunTrace trace = read_run({files.put("nccl_trace_rank_1", kDump)});
  EXPECT_EQ(trace.source, &kFlightRecorder);
  ASSERT_EQ(trace.ranks.size(), 1U);
  EXPECT_EQ(trace.ranks[0].rank, 1);
  const auto& events = trace.ranks[0].events;
  ASSERT_EQ(events.size(), 5U);
  const auto group = [&](const Event& event) {
    return trace.groups.at(static_cast<std::size_t>(trace.info(event).group));
  };

  EXPECT_EQ(trace.info(events[0]).kind, Kind::all_reduce);
  EXPECT_EQ(trace.info(events[0]).size_bytes, 48);
  EXPECT_EQ(trace.strings.text(trace.info(events[0]).type), "Float");
  EXPECT_EQ(trace.strings.text(trace.info(events[0]).name), "nccl:all_reduce");
  EXPECT_EQ(events[0].state, State::ended);
  EXPECT_EQ(events[0].detail, 1U);
  EXPECT_EQ(events[0].begin_ns, 1724779239936775200);
  EXPECT_EQ(events[0].end_ns(), 1724779239975811724);
  EXPECT_EQ(group(events[0]).name, "default_pg 0");
  EXPECT_THAT(group(events[0]).ranks, testing::ElementsAre(0, 1, 2, 3));

  EXPECT_EQ(trace.info(events[1]).kind, Kind::send);
  EXPECT_EQ(events[1].state, State::begun);
  EXPECT_EQ(trace.info(events[1]).size_bytes, 32);
  EXPECT_THAT(group(events[1]).ranks, testing::ElementsAre(1, 3));
  EXPECT_EQ(events[1].detail, 0U);
  EXPECT_EQ(trace.info(events[2]).kind, Kind::recv);
  EXPECT_EQ(events[2].state, State::issued);
  EXPECT_EQ(trace.info(events[2]).size_bytes, 28);
  EXPECT_THAT(group(events[2]).ranks, testing::ElementsAre(3, 1));
  EXPECT_EQ(trace.info(events[3]).kind, Kind::reduce_scatter);
  EXPECT_EQ(events[3].state, State::issued);
  EXPECT_EQ(events[3].detail, 2U);
  EXPECT_EQ(trace.ranks[0].last_flush_ns, 1724779239979000000);
  EXPECT_EQ(events[4].state, State::issued);
  EXPECT_EQ(problem(trace, "operation in no known state"), 1U);
  EXPECT_EQ(problem(trace, "record that is no sound JSON object"), 1U);
}

TEST(FlightRecorder, NumbersBothEndsOfAChannelAlike) {
  const ForeignFiles files;
  const auto dump = [](const std::vector<std::string>& names) {
    std::string entries;
    for (const std::string& name : names) {
      entries += entries.empty() ? "" : ",";
      entries +=
          R"({"profiling_name":"nccl:)" + name +
          R"(","process_group":["1","pp"],"state":"completed","p2p_seq_id":1,"time_created_ns":5,"time_discovered_completed_ns":6})";
    }
    return R"({"pg_config":{"1":{"name":"1","desc":"pp","ranks":[4,5,6]}},"pg_status":{},"entries":[)" + entries + "]}";
  };
  files.put("dump_5", dump({"recv 1<-0", "send 1->2", "recv 1<-0", "send 1->2"}));
  files.put("dump_4", dump({"send 0->1", "send 0->1"}));
  const RunTrace trace = read_run({files.path()});
  ASSERT_EQ(trace.ranks.size(), 2U);
  std::vector<std::pair<std::int32_t, std::uint32_t>> sent, received;
  for (const Event& event : trace.ranks[0].events) sent.emplace_back(trace.info(event).group, event.detail);
  for (const Event& event : trace.ranks[1].events) {
    if (trace.info(event).kind == Kind::recv) received.emplace_back(trace.info(event).group, event.detail);
  }
  EXPECT_EQ(sent, received);
  EXPECT_EQ(trace.groups.at(static_cast<std::size_t>(sent.at(0).first)).ranks, (std::vector{4, 5}));
}

// Gloo's recorder leaves every state as it was scheduled, and lists only its newest group, without a name.
std::string gloo_dump(std::string_view entries, std::string_view status) {
  return fmt::format(R"({{"entries":[{}],"pg_config":{{"":{{"name":"","desc":"","ranks":"[0, 1]"}}}},"pg_status":{}}})",
                     entries, status);
}
std::string gloo_entry(int number, bool retired, std::string_view group = "0\", \"default_pg", int id = 0) {
  return fmt::format(
      R"({{"process_group":["{}"],"pg_id":{},"collective_seq_id":{},"profiling_name":"gloo:all_reduce","retired":{},)"
      R"("state":"scheduled","time_created_ns":{},"time_discovered_started_ns":0,"time_discovered_completed_ns":0}})",
      group, id, number, retired, 1724779239936775119 + number);
}

TEST(FlightRecorder, GlooEndsWhatItRetires) {
  const ForeignFiles files;
  const std::string none = R"({"0":{"last_enqueued_collective":"3","last_completed_collective":"1"}})";
  files.put("dump_0", gloo_dump(gloo_entry(1, true) + "," + gloo_entry(2, true) + "," + gloo_entry(3, false), none));
  files.put("dump_2", gloo_dump(gloo_entry(1, true), "{}"));
  const RunTrace trace = read_run({files.path()});
  ASSERT_EQ(trace.ranks.size(), 2U);
  EXPECT_TRUE(trace.ranks[0].hides_failures);
  EXPECT_EQ(trace.ranks[0].events[1].state, State::ended);
  EXPECT_EQ(trace.ranks[0].events[2].state, State::begun);  // the first that did not end
  EXPECT_EQ(problem(trace, "operation that was completed at no time"), 0U);
  // The group of all ranks has everyone that is known.
  EXPECT_EQ(trace.groups.at(0).ranks, (std::vector{0, 1, 2}));
}

TEST(FlightRecorder, TheStatusOfAGroupCountsCompletedCollectives) {
  const auto ended = [](const std::string& entries, std::string_view status) {
    const ForeignFiles files;
    const RunTrace trace = read_run({files.put("dump_0", gloo_dump(entries, status))});
    int count = 0;
    for (const Event& event : trace.ranks.at(0).events) count += event.state == State::ended ? 1 : 0;
    return count;
  };
  const std::string three = gloo_entry(1, false) + "," + gloo_entry(2, false) + "," + gloo_entry(3, false);
  EXPECT_EQ(ended(three, R"({"0":{"last_enqueued_collective":3,"last_completed_collective":2}})"), 2);
  EXPECT_EQ(ended(three, R"({"0":{"last_enqueued_collective":"3","last_completed_collective":"3"}})"), 3);
  EXPECT_EQ(ended(three, R"({"0":{"last_enqueued_collective":"3","last_completed_collective":"-1"}})"), 0);
  EXPECT_EQ(ended(three, R"({"7":{"last_enqueued_collective":"3","last_completed_collective":"3"}})"), 0);
  // With sends among them, the numbers may be a send's.
  const std::string send = R"({"process_group":["0"],"pg_id":0,"profiling_name":"nccl:send 0->1","state":"scheduled"})";
  EXPECT_EQ(ended(three + "," + send, R"({"0":{"last_enqueued_collective":"3","last_completed_collective":"3"}})"), 0);
}

TEST(FlightRecorder, TheFilesTimeStampTellsHowLongOperationsWait) {
  const ForeignFiles files;
  const std::int64_t now_ns = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  const auto known = [&](std::int64_t created_ns) {
    const RunTrace trace = read_run({files.put(
        "dump_0", fmt::format(R"({{"pg_config":{{}},"pg_status":{{}},"entries":[{{"process_group":["0"],)"
                              R"("profiling_name":"nccl:barrier","state":"started","time_created_ns":{}}}]}})",
                              created_ns))});
    return trace.ranks.at(0).is_flush_time_known;
  };
  EXPECT_TRUE(known(now_ns - 60'000'000'000));
  EXPECT_FALSE(known(now_ns - 10'000'000'000'000));  // copied since
  EXPECT_FALSE(known(now_ns + 60'000'000'000));
}

// Whoever's dump is cut off may have done anything after it: no culprit, and no witness either.
TEST(FlightRecorder, ACutDumpTellsNothingOfWhatCameAfterIt) {
  const ForeignFiles files;
  const auto put = [&](int rank, bool all_end, bool is_cut) {
    std::string text =
        R"({"pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1, 2]"}},"pg_status":{},"entries":[)";
    for (int i = 1; i <= 8; ++i) {
      const bool ends = all_end || i < 8;
      text += fmt::format(
          R"({}{{"process_group":["0","default_pg"],"profiling_name":"nccl:all_reduce","collective_seq_id":{},"state":"{}",)"
          R"("time_created_ns":{},"time_discovered_started_ns":{},"time_discovered_completed_ns":{}}})",
          i > 1 ? "," : "", i, ends ? "completed" : "started", i, i, ends ? i + 1 : 0);
    }
    text += "]}";
    files.put(fmt::format("rank_{}", rank), is_cut ? text.substr(0, text.size() / 2) : text);
  };
  for (const bool is_cut : {false, true}) {
    for (int rank = 0; rank < 3; ++rank) put(rank, false, is_cut && rank == 2);
    const Hang hang = find_hang(read_run({files.path()}));
    if (!is_cut) {  // all are in one operation for a time that is not known, as those of a healthy run may be
      EXPECT_EQ(hang.state, RunState::unknown);
      EXPECT_TRUE(hang.suspects.empty());
      continue;
    }
    EXPECT_EQ(hang.state, RunState::hang);
    ASSERT_FALSE(hang.suspects.empty());
    EXPECT_LE(hang.suspects.front().confidence, 0.5);
    EXPECT_EQ(hang.suspects.front().reason, Reason::no_trace);
    EXPECT_THAT(hang.sentence, testing::StartsWith("the dump of rank 2 is cut off"));
  }
  for (int rank = 0; rank < 3; ++rank) put(rank, true, rank == 1);
  EXPECT_EQ(find_hang(read_run({files.path()})).state, RunState::unknown);
}

TEST(FlightRecorder, ReadsPicklesAndRefusesOthers) {
  const ForeignFiles files;
  // {"pg_config": {}, "pg_status": {}, "entries": [{"profiling_name": "nccl:barrier", "state": "started",
  //  "process_group": ("0", "default_pg")}]}
  const std::string pickle =
      "\x80\x04}(\x8c\x09pg_config}\x8c\x09pg_status}\x8c\x07"
      "entries](}(\x8c\x0eprofiling_name\x8c\x0cnccl:barrier"
      "\x8c\x05state\x8c\x07started\x8c\x0dprocess_group\x8c\x01"
      "0\x8c\x0a"
      "default_pg\x86u"
      "eu.";
  const RunTrace trace = read_run({files.put("nccl_trace_rank_5", pickle)});
  ASSERT_EQ(trace.ranks.size(), 1U);
  EXPECT_EQ(trace.ranks[0].rank, 5);
  ASSERT_EQ(trace.ranks[0].events.size(), 1U);
  EXPECT_EQ(trace.info(trace.ranks[0].events[0]).kind, Kind::barrier);
  EXPECT_EQ(trace.ranks[0].events[0].state, State::begun);
  const RunTrace cut = read_run({files.put("nccl_trace_rank_6", pickle.substr(0, pickle.size() - 2))});
  EXPECT_EQ(cut.event_count(), 1U);
  EXPECT_EQ(problem(cut, "file is cut off"), 1U);
  const auto refusal = [&](std::string_view bytes) {
    try {
      read_run({files.put("dump_7", bytes)});
    } catch (const Error& error) { return error.message(); }
    return std::string();
  };
  EXPECT_THAT(refusal("\x80\x02"
                      "cos\nsystem\nX"),
              testing::HasSubstr("would import os.system"));
  EXPECT_THAT(refusal("\x80\x02]."), testing::HasSubstr("no Flight Recorder dump"));
}

TEST(FlightRecorder, OfAPickleThatIsTooLargeTheBeginningIsRead) {
  const ForeignFiles files;
  const std::string pickle =
      "\x80\x04}(\x8c\x09pg_config}\x8c\x09pg_status}\x8c\x07"
      "entries](}(\x8c\x0eprofiling_name\x8c\x0cnccl:barrier"
      "\x8c\x05state\x8c\x09"
      "completed\x8c\x0dprocess_group\x8c\x01"
      "0\x8c\x0a"
      "default_pg\x86ue\x8c\x03padX";
  const std::string path = files.put("nccl_trace_rank_3", pickle + std::string("\x00\x00\x00\x40", 4));  // 1 GiB
  std::filesystem::resize_file(path, std::uintmax_t{1100} << 20);                                        // sparse
  const RunTrace trace = read_run({path});
  ASSERT_THAT(trace.ranks, testing::SizeIs(1));
  EXPECT_TRUE(trace.ranks[0].is_cut_off) << "so it accuses no rank for what it lacks";
  EXPECT_EQ(problem(trace, "file that is too large, the rest of it was left out"), 1U);
}

TEST(FlightRecorder, DumpsOfBothFormsAreOfOneRun) {
  const ForeignFiles files;
  const auto json = [](int number) {
    return fmt::format(
        R"({{"pg_config":{{}},"pg_status":{{}},"entries":[{{"process_group":["{}","default_pg"],"collective_seq_id":1,)"
        R"("profiling_name":"nccl:barrier","state":"started","time_created_ns":5}}]}})",
        number);
  };
  files.put("dump_1", json(3));
  files.put("dump_2",
            "\x80\x04}(\x8c\x09pg_config}\x8c\x09pg_status}\x8c\x07"
            "entries](}(\x8c\x0eprofiling_name\x8c\x0cnccl:barrier"
            "\x8c\x05state\x8c\x07started\x8c\x11"
            "collective_seq_idK\x01\x8c\x0dprocess_group\x8c\x01"
            "0\x8c\x0a"
            "default_pg\x86u"
            "eu.");
  files.put("dump_3", json(0));
  const RunTrace trace = read_run({files.path()}, {.threads = 1});
  EXPECT_EQ(trace.groups.size(), 2U);
  EXPECT_EQ(trace.info(trace.ranks[1].events[0]).group, trace.info(trace.ranks[2].events[0]).group);
}

TEST(FlightRecorder, TheAnswerNamesWhatWasLeftOut) {
  const ForeignFiles files;
  for (const char* name : {"a_rank_0", "b_rank_0"})
    files.put(name, R"({"pg_config":{},"pg_status":{},"entries":[{"process_group":["0","tp"],"state":"started",)"
                    R"("profiling_name":"nccl:all_reduce","time_created_ns":5}]})");
  const RunTrace trace = read_run({files.path()});
  const Hang hang = find_hang(trace);
  EXPECT_THAT(hang_text(hang, trace), testing::HasSubstr("second file of a rank, the older was left out: 1"));
  // A dump of one rank that names no members accuses nobody, and an operation without a number shows none.
  EXPECT_THAT(hang.sentence, testing::AllOf(testing::StartsWith("rank 0 is in nccl:all_reduce 0 of group tp 0 for"),
                                            testing::HasSubstr("give the dumps of all ranks")));
  EXPECT_LE(hang.suspects.at(0).confidence, 0.3);
}

TEST(FlightRecorder, EntriesGoByTheirNumbers) {
  const ForeignFiles files;
  std::string entries;
  for (const int record : {2, 0, 1})
    entries +=
        fmt::format(R"({}{{"record_id":{},"process_group":["0","tp"],"state":"completed","collective_seq_id":{},)"
                    R"("profiling_name":"nccl:all_reduce","time_created_ns":{}}})",
                    entries.empty() ? "" : ",", record, record + 1, record + 5);
  files.put("rank_0", R"({"pg_config":{},"pg_status":{},"entries":[)" + entries + "]}");
  const RunTrace trace = read_run({files.path()});
  EXPECT_EQ(trace.groups.size(), 1U);  // none was made again
  std::vector<std::uint32_t> numbers;
  for (const Event& event : trace.ranks.at(0).events) numbers.push_back(event.detail);
  EXPECT_THAT(numbers, testing::ElementsAre(1, 2, 3));
}

TEST(FlightRecorder, SurvivesDamage) {
  const ForeignFiles files;
  const auto survive = [&](std::string_view text) {
    try {
      read_run({files.put("dump_1", text)}, {.threads = 1});
    } catch (const Error& error) { ASSERT_EQ(error.kind(), "trace.none") << error.what(); }
  };
  const std::string_view text(kDump);
  for (std::size_t size = 0; size < text.size(); ++size) survive(text.substr(0, size));
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged(text);
    for (unsigned i = 0; i <= random() % 4; ++i) {
      damaged[random() % damaged.size()] = round % 2 == 0 ? static_cast<char>(random()) : "{}[]\",:9"[random() % 8];
    }
    survive(damaged);
  }
}

TEST(FlightRecorder, TreatsImpossibleSizesAsUnknown) {
  const ForeignFiles files;
  const auto size = [&](const std::string& sizes, const std::string& type) {
    const std::string entry =
        R"({"profiling_name":"nccl:all_reduce","process_group":["0",""],"state":"scheduled","time_created_ns":5,"input_sizes":)" +
        sizes + R"(,"input_dtypes":)" + type + "}";
    const RunTrace trace =
        read_run({files.put("dump_0", R"({"pg_config":{},"pg_status":{},"entries":[)" + entry + "]}")});
    return trace.infos.at(trace.ranks.at(0).events.at(0).info).size_bytes;
  };
  EXPECT_EQ(size("[[2, 3], []]", R"(["Long"])"), 48);
  EXPECT_EQ(size("[[4294967296, 4294967296]]", R"(["Float"])"), -1);
  EXPECT_EQ(size("[[-1]]", R"(["Float"])"), -1);
  EXPECT_EQ(size("[[99999999999999999999]]", R"(["Float"])"), -1);
  EXPECT_EQ(size("[[8]]", R"(["Float", "Half"])"), -1);
  EXPECT_EQ(size("[[8]]", R"(["Strange"])"), -1);
  EXPECT_EQ(size("null", "null"), -1);
}

}  // namespace
}  // namespace ms::tracepp
