// Sources beside dumps: NCCL's RAS, stacks, lines of logs, each alone and joined.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/json.h"
#include "foreign_files.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr std::string_view kSummary =
    "NCCL version 2.26.2 compiled with CUDA 12.6\n\nJob summary\n===========\n\n"
    "  Nodes  Processes         GPUs  Processes     GPUs\n(total)   per node  per process    (total)  (total)\n"
    "      2          4            1          8        8\n\nCommunicators... (0.00s)\n=============\n\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    #  in group  per comm  per node  per comm  in group\n"
    "    0         1         2         4         8         8   RUNNING  MISMATCH\n\nErrors\n======\n\n";

std::string ras_rank(int rank, int calls, int gathers = 0) {
  return fmt::format(
      R"({{"rank":{0},"host":"10.0.0.{1}","pid":{2},"cuda_dev":{3},"nvml_dev":{3},"status":{{"init_state":0,)"
      R"("async_error":0,"finalize_called":false,"destroy_flag":false,"abort_flag":false}},)"
      R"("collective_counts":{{"AllGather":{5},"AllReduce":{4}}}}})",
      rank, 1 + rank / 4, 4000 + rank, rank % 4, calls, gathers);
}

std::string ras_json(const std::vector<std::string>& ranks, const std::string& missing = "") {
  return fmt::format(
      R"({{"nccl_version":"2.28.7","communicators_count":1,"communicators":[{{"hash":"0xfa","size":8,"ranks":[{}],)"
      R"("missing_ranks":[{}]}}],"ras":{{"timeouts_count":0}}}})",
      fmt::join(ranks, ","), missing);
}

std::string py_spy(int rank, const std::string& frames) {
  return fmt::format("Process {0}: python train.py\nPython v3.12.4\n\nThread {0} (idle): \"MainThread\"\n{1}",
                     4000 + rank, frames);
}

constexpr std::string_view kWaits = "    wait (torch/distributed/distributed_c10d.py:2501)\n    step (train.py:88)\n";
constexpr std::string_view kLoads =
    "    poll (selectors.py:415)\n    _get_data (/x/site-packages/torch/utils/data/dataloader.py:1133)\n"
    "    epoch (train.py:71)\n";

class HangSources : public testing::Test {
 protected:
  Hang found() const {
    trace_ = read_run({files_.path()}, {.witnesses_suffice = true});
    return find_hang(trace_);
  }
  // Counts of eight ranks, of which one is behind.
  void put_ras(const std::string& name, int behind, int calls) const {
    std::vector<std::string> ranks;
    for (int rank = 0; rank < 8; ++rank) ranks.push_back(ras_rank(rank, rank == behind ? calls - 1 : calls));
    files_.put(name, ras_json(ranks));
  }
  void put_stacks(int odd, std::string_view frames) const {
    for (int rank = 0; rank < 8; ++rank)
      files_.put(fmt::format("stack_rank{}", rank), py_spy(rank, std::string(rank == odd ? frames : kWaits)));
  }
  // Dumps of eight ranks, of which one did not issue the last call.
  void put_dumps(int behind) const {
    for (int rank = 0; rank < 8; ++rank) {
      std::string entries;
      for (int call = 1; call <= (rank == behind ? 4 : 5); ++call)
        entries += fmt::format(
            R"({}{{"record_id":{},"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":{},)"
            R"("profiling_name":"nccl:all_reduce","input_sizes":[[8]],"input_dtypes":["Float"],"time_created_ns":{},)"
            R"("time_discovered_started_ns":{},"time_discovered_completed_ns":{},"state":"{}"}})",
            call > 1 ? "," : "", call - 1, call, call * 1000, call * 1000 + 10, call < 5 ? call * 1000 + 90 : 0,
            call < 5 ? "completed" : "started");
      files_.put(
          fmt::format("rank_{}", rank),
          R"({"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1, 2, 3, 4, 5, 6, 7]"}},)"
          R"("pg_status":{},"entries":[)" +
              entries + "]}");
    }
  }

  ForeignFiles files_;
  mutable RunTrace trace_;
};

TEST_F(HangSources, RasTextListsWhoIsBehind) {
  files_.put("ras.txt",
             std::string(kSummary) +
                 "Warnings\n========\n\n#0-0 (fa00000000000001) MISMATCH\n"
                 "  Communicator ranks have different AllReduce operation counts\n"
                 "  7 ranks have launched up to operation 640\n  Rank 5 has launched up to operation 630 -- GPU 1 "
                 "managed by process 4005 on node 10.0.0.2\r\n\n");
  const Hang hang = found();
  ASSERT_THAT(hang.suspects, SizeIs(1));
  EXPECT_EQ(hang.suspects[0].rank, 5);
  EXPECT_EQ(hang.suspects[0].host, "10.0.0.2");
  EXPECT_EQ(hang.suspects[0].pid, 4005);
  EXPECT_EQ(hang.suspects[0].reason, Reason::not_issuing);
  EXPECT_LT(hang.suspects[0].confidence, 0.8) << "of one sample";
}

// The many are behind the few that are listed: these are no culprits.
TEST_F(HangSources, RasTextDoesNotAccuseWhoIsAhead) {
  files_.put("ras.txt", std::string(kSummary) +
                            "Warnings\n========\n\n#0-0 (fa00000000000001) MISMATCH\n"
                            "  Communicator ranks have different AllGather operation counts\n"
                            "  6 ranks have launched up to operation 640\n  2 ranks have launched up to operation 641\n"
                            "  Rank 2 -- GPU 2 managed by process 4002 on node 10.0.0.1\n"
                            "  Rank 3 -- GPU 3 managed by process 4003 on node 10.0.0.1\n\n");
  const Hang hang = found();
  EXPECT_TRUE(hang.suspects.empty());
  EXPECT_EQ(hang.state, RunState::unknown);
  EXPECT_THAT(hang.sentence, HasSubstr("6 ranks are behind"));
}

TEST_F(HangSources, RasTextNamesTheDead) {
  files_.put("ras.txt",
             std::string(kSummary) +
                 "DEAD\n  2 job processes are considered dead (unreachable via the RAS network)\n"
                 "  Process 4004 on node 10.0.0.2 managing GPU 0\n  Process 4005 on node 10.0.0.2 managing GPU 1\n\n"
                 "#0-0 (fa00000000000001) INCOMPLETE\n  Missing communicator data from 2 ranks\n"
                 "  Rank 4 -- GPU 0 managed by process 4004 on node 10.0.0.2\n"
                 "  Rank 5 -- GPU 1 managed by process 4005 on node 10.0.0.2\n\n");
  const Hang hang = found();
  ASSERT_THAT(hang.suspects, SizeIs(2));
  EXPECT_EQ(hang.suspects[0].rank, 4);
  EXPECT_EQ(hang.suspects[1].rank, 5);
  EXPECT_EQ(hang.suspects[0].reason, Reason::silent);
  EXPECT_THAT(hang.sentence, HasSubstr("node 10.0.0.2"));
}

TEST_F(HangSources, RasTextOfErrors) {
  files_.put("ras.txt",
             std::string(kSummary) +
                 "#0-0 (fa00000000000001) ERROR\n  Asynchronous errors on 3 ranks\n"
                 "  2 ranks reported Remote process error\n"
                 "  Rank 0 -- GPU 0 managed by process 4000 on node 10.0.0.1\n"
                 "  Rank 1 -- GPU 1 managed by process 4001 on node 10.0.0.1\n"
                 "  Rank 6 reported Unhandled CUDA error -- GPU 2 managed by process 4006 on node 10.0.0.2\n\n");
  const Hang hang = found();
  ASSERT_THAT(hang.suspects, SizeIs(1));
  EXPECT_EQ(hang.suspects[0].rank, 6);
  EXPECT_EQ(hang.suspects[0].reason, Reason::failed);
}

TEST_F(HangSources, TwoSamplesOfRasAreSurerThanOne) {
  put_ras("a.json", 3, 77);
  const double once = found().suspects.at(0).confidence;
  put_ras("b.json", 3, 77);
  const Hang hang = found();
  EXPECT_EQ(hang.state, RunState::hang);
  EXPECT_EQ(hang.suspects.at(0).rank, 3);
  EXPECT_LE(once, 0.5);
  EXPECT_GE(hang.suspects[0].confidence, 0.9);
}

TEST_F(HangSources, RasThatMovesIsNoHang) {
  put_ras("a.json", 3, 77);
  put_ras("b.json", 4, 90);
  const Hang hang = found();
  EXPECT_NE(hang.state, RunState::hang);
  EXPECT_LE(hang.suspects.at(0).confidence, 0.5);
}

TEST_F(HangSources, RasShowsWhoCalledSomethingElse) {
  std::vector<std::string> ranks;
  for (int rank = 0; rank < 8; ++rank) ranks.push_back(rank == 6 ? ras_rank(6, 9, 4) : ras_rank(rank, 10, 3));
  for (const char* name : {"a.json", "b.json"}) files_.put(name, ras_json(ranks));
  const Hang hang = found();
  EXPECT_EQ(hang.suspects.at(0).rank, 6);
  EXPECT_EQ(hang.suspects[0].reason, Reason::wrong_kind);
}

TEST_F(HangSources, RasFromTheSmallerSideOfACutNetworkAccusesNoOne) {
  std::string missing;
  for (int rank = 3; rank < 8; ++rank)
    missing += fmt::format(R"({}{{"rank":{},"host":"10.0.0.2","pid":{},"cuda_dev":{},"nvml_dev":0,)"
                           R"("status":{{"unresponsive":true,"considered_dead":true}}}})",
                           rank > 3 ? "," : "", rank, 4000 + rank, rank % 4);
  files_.put("ras.json", ras_json({ras_rank(0, 5), ras_rank(1, 5), ras_rank(2, 5)}, missing));
  EXPECT_TRUE(found().suspects.empty());
}

TEST_F(HangSources, EqualCountsTellNothing) {
  put_ras("a.json", -1, 5);
  const Hang hang = found();
  EXPECT_EQ(hang.state, RunState::unknown);
  EXPECT_TRUE(hang.suspects.empty());
  EXPECT_FALSE(hang.collect.empty());
}

TEST_F(HangSources, StacksNameWhoDoesNotWait) {
  put_stacks(2, kLoads);
  const Hang hang = found();
  ASSERT_THAT(hang.suspects, SizeIs(1));
  EXPECT_EQ(hang.suspects[0].rank, 2);
  EXPECT_EQ(hang.suspects[0].reason, Reason::data_wait);
  EXPECT_THAT(hang.suspects[0].doing, HasSubstr("train.py:71"));
  EXPECT_LT(hang.suspects[0].confidence, 0.8) << "of one moment";
}

TEST_F(HangSources, StacksOfFaulthandlerAndGdb) {
  for (int rank = 0; rank < 4; ++rank)
    files_.put(
        fmt::format("dump_rank{}.txt", rank),
        "Thread 0x00007f0000000700 (most recent call first):\n  File \"threading.py\", line 320 in wait\n\n"
        "Thread 0x00007f0000000740 (most recent call first):\n" +
            std::string(rank == 1 ? "  File \"train.py\", line 12 in load\n"
                                  : "  File \"/x/torch/distributed/distributed_c10d.py\", line 9 in all_reduce\n"));
  EXPECT_EQ(found().suspects.at(0).rank, 1);
  for (int rank = 0; rank < 4; ++rank)
    files_.put(fmt::format("dump_rank{}.txt", rank),
               "[New LWP 12]\n\nThread 2 (Thread 0x7f (LWP 12)):\n#0  0x00007f in poll () from libc.so\n\nThread 1 "
               "(LWP 11):\n" +
                   std::string(rank == 2 ? "#0  0x00007f in read () from /lib/libc.so.6\n#1  main () at train.cc:10\n"
                                         : "#0  0x00007f in cudaStreamSynchronize () from libcudart.so\n"));
  EXPECT_EQ(found().suspects.at(0).rank, 2);
}

TEST_F(HangSources, StacksOfMsDriverTellWhoIsStopped) {
  std::string text;
  for (int rank = 0; rank < 4; ++rank)
    text += fmt::format("process {}, rank {}, state {}, 0.00 processors, waits in x: train\nthread {} 'train' S\n\n",
                        100 + rank, rank, rank == 3 ? 'T' : 'S', 100 + rank) +
            fmt::format("process {}, of rank {}, state T, 0.00 processors, waits in x: helper\n\n", 200 + rank, rank);
  files_.put("attempt-1.node7.stacks", text);
  const Hang hang = found();
  ASSERT_THAT(hang.suspects, SizeIs(1));
  EXPECT_EQ(hang.suspects[0].rank, 3);
  EXPECT_EQ(hang.suspects[0].host, "node7");
}

TEST_F(HangSources, StacksOfMsDriverHoldThoseOfPySpy) {
  std::string text;
  for (int rank = 0; rank < 4; ++rank)
    text += fmt::format("process {}, rank {}, state S, 0.00 processors, waits in x: python\n", 4000 + rank, rank) +
            py_spy(rank, std::string(rank == 1 ? kLoads : kWaits)) +
            fmt::format(
                "\nprocess {0}, of rank {1}, state S, 0.00 processors, waits in x: python\nProcess {0}: python\n"
                "Thread {0} (idle): \"MainThread\"\n    get (queues.py:1)\n\n",
                200 + rank, rank);
  files_.put("attempt-1.n7.example.org.stacks", text);
  const Hang hang = found();
  EXPECT_THAT(trace_.witnesses.stacks, SizeIs(4));
  EXPECT_EQ(hang.suspects.at(0).rank, 1);
  EXPECT_EQ(hang.suspects[0].host, "n7.example.org");
}

TEST_F(HangSources, WorkersOfADataLoaderAreNoRanks) {
  put_stacks(-1, kWaits);
  for (int i = 0; i < 3; ++i)
    files_.put(fmt::format("worker{}", i),
               py_spy(90 + i, "    get (queues.py:1)\n    _worker_loop (torch/utils/data/x.py:9)\n"));
  EXPECT_TRUE(found().suspects.empty());
}

TEST_F(HangSources, OneThatWaitsElsewhereIsNamedWithItsCall) {
  constexpr std::string_view kReceives =
      "    wait (torch/distributed/distributed_c10d.py:9)\n    recv (torch/distributed/distributed_c10d.py:3697)\n"
      "    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)\n    get (train.py:12)\n";
  constexpr std::string_view kSame = "    wait (torch/distributed/distributed_c10d.py:9)\n    get (train.py:12)\n";
  const auto judged = [&](std::string_view frames, std::string_view last) {
    files_.put("stack_rank0", py_spy(0, std::string(kWaits)));
    files_.put("stack_rank1", py_spy(1, std::string(frames)));
    files_.put("stack_rank2", py_spy(2, std::string(last)));
    return found().suspects;
  };
  const auto other = judged(kReceives, kWaits), same = judged(kSame, kWaits);
  EXPECT_EQ(other.at(0).reason, Reason::wrong_kind);
  EXPECT_EQ(other[0].doing, "recv at get (train.py:12)");
  EXPECT_EQ(same.at(0).reason, Reason::waits_alone) << "it may be right";
  for (const auto& it : {other[0], same[0]}) EXPECT_TRUE(it.rank == 1 && it.confidence < 0.8);
  EXPECT_TRUE(judged(kReceives, "    wait (torch/distributed/distributed_c10d.py:9)\n    end (train.py:99)\n").empty());
}

TEST_F(HangSources, LogsTellOfDevicesAndCrashes) {
  files_.put("job.out", "3: [rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n");
  EXPECT_EQ(found().suspects.at(0).rank, 3);
  EXPECT_EQ(found().state, RunState::failed);
  files_.put("job.out", "step 5\nsrun: error: node4: task 9: Segmentation fault (core dumped)\n");
  EXPECT_EQ(found().suspects.at(0).rank, 9);
  EXPECT_EQ(found().suspects[0].host, "node4");
  files_.put("job.out", "srun: error: node4: task 9: Killed\n");
  EXPECT_TRUE(found().suspects.empty()) << "by srun itself, when another one failed";
  files_.put("job.out",
             "w0:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.2.0.36<1> with status=12 opcode=1\n");
  EXPECT_TRUE(found().suspects.empty()) << "the peer, or the path to it";
}

TEST_F(HangSources, SourcesThatAgreeAreSurer) {
  put_dumps(5);
  const double alone = found().suspects.at(0).confidence;
  put_stacks(5, kLoads);
  const Hang hang = found();
  ASSERT_THAT(hang.sources, SizeIs(2));
  EXPECT_EQ(hang.sources[0].stance, Stance::agrees);
  EXPECT_EQ(hang.sources[1].stance, Stance::agrees);
  EXPECT_EQ(hang.suspects[0].rank, 5);
  EXPECT_EQ(hang.suspects[0].reason, Reason::data_wait) << "what the stack adds";
  EXPECT_EQ(hang.suspects[0].pid, 4005);
  EXPECT_GT(hang.suspects[0].confidence, alone);
  const Json json = Json::parse(hang_json(hang, trace_));
  EXPECT_EQ(json.at("sources")[1].get<std::string>("stance"), "agrees");
}

TEST_F(HangSources, SourcesThatContradictEachOtherAccuseNoOne) {
  put_dumps(5);
  put_stacks(2, kLoads);
  const Hang hang = found();
  for (const HangSuspect& suspect : hang.suspects) EXPECT_LT(suspect.confidence, 0.5);
  EXPECT_THAT(hang.sentence, HasSubstr("contradict"));
}

TEST_F(HangSources, AThirdSourceDecides) {
  put_dumps(5);
  put_stacks(2, kLoads);
  put_ras("a.json", 5, 77);
  put_ras("b.json", 5, 77);
  const Hang hang = found();
  EXPECT_EQ(hang.suspects.at(0).rank, 5);
  EXPECT_GT(hang.suspects[0].confidence, 0.8);
  EXPECT_EQ(hang.sources.at(2).stance, Stance::differs) << hang.sources[2].name;
}

// A call of the program may wait for a device or for storage, which have no frames of their own.
TEST_F(HangSources, WhereTheFaultLiesIsWhatTheSourcesTellOrUnknown) {
  put_dumps(5);
  EXPECT_EQ(fault_domain(found().suspects.at(0)), FaultDomain::host);
  put_stacks(5, kLoads);
  EXPECT_EQ(fault_domain(found().suspects.at(0)), FaultDomain::host);
  put_stacks(5, "    acquire (pool.py:33)\n    step (train.py:88)\n");
  EXPECT_EQ(fault_domain(found().suspects.at(0)), FaultDomain::unknown);
  files_.put("slurm-1.out", "5: ValueError: empty batch\n");
  EXPECT_EQ(fault_domain(found().suspects.at(0)), FaultDomain::program);
  files_.put("slurm-1.out", "5: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n");
  const Hang hang = found();
  EXPECT_EQ(hang.suspects.at(0).rank, 5);
  EXPECT_EQ(fault_domain(hang.suspects.at(0)), FaultDomain::device);
  EXPECT_EQ(Json::parse(hang_json(hang, trace_)).at("suspects")[0].get<std::string>("fault"), "device");
}

TEST_F(HangSources, FaultsOfReasonsAlone) {
  const auto of = [](Reason reason) {
    HangSuspect it;
    it.reason = reason;
    return fault_domain(it);
  };
  for (const Reason reason : {Reason::no_trace, Reason::silent, Reason::data_wait, Reason::save, Reason::not_issuing})
    EXPECT_EQ(of(reason), FaultDomain::host) << to_string(reason);
  for (const Reason reason : {Reason::left, Reason::missing_call, Reason::extra_call, Reason::wrong_kind,
                              Reason::wrong_size, Reason::wrong_dtype, Reason::wrong_order})
    EXPECT_EQ(of(reason), FaultDomain::program) << to_string(reason);
  EXPECT_EQ(of(Reason::compute), FaultDomain::device);
  EXPECT_EQ(of(Reason::transfer), FaultDomain::network);
  EXPECT_EQ(of(Reason::failed), FaultDomain::unknown);
}

// A rank without a dump is not dead if its process is seen.
TEST_F(HangSources, WhoIsSeenAliveIsNotDead) {
  put_dumps(-1);
  std::filesystem::remove(files_ / "rank_6");
  const double alone = found().suspects.at(0).confidence;
  put_stacks(-1, kWaits);
  const Hang hang = found();
  EXPECT_LT(hang.suspects.at(0).confidence, alone / 2);
}

TEST_F(HangSources, RasOfAnotherJobOnTheNodeCountsForNothing) {
  put_dumps(5);
  std::vector<std::string> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(ras_rank(rank, rank == 1 ? 5 : 9));
  for (const char* name : {"a.json", "b.json"}) files_.put(name, ras_json(ranks));
  const Hang hang = found();
  EXPECT_EQ(hang.suspects.at(0).rank, 5);
  EXPECT_THAT(hang.suspects, SizeIs(1));
  EXPECT_EQ(hang.sources.at(1).stance, Stance::silent);
}

// The words of RAS without a JSON behind them, which a fuzzer found.
TEST_F(HangSources, RasWithoutItsJsonIsAProblemOfTheFile) {
  put_stacks(5, kLoads);
  found();
  const std::size_t before = trace_.problems.size();
  files_.put("ras.json", R"("nccl_version": "2.28", "communicators_count": 1)");
  found();
  EXPECT_GT(trace_.problems.size(), before);
  EXPECT_TRUE(trace_.witnesses.ras.empty());
}

}  // namespace
}  // namespace ms::tracepp
