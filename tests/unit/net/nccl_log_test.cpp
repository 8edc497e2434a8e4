// What NCCL chose, by logs in its format: clean ones, fallbacks, and bytes that nobody should trust.
#include "net/measure/nccl_log.h"

#include <gmock/gmock.h>

#include <sstream>

#include "net/judge/nccl_choices.h"
#include "net/report/nccl_report.h"

namespace ms::net {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// What a process says that joins a group with this GPU of its host.
std::string joins(int nvml, const std::string& bus) {
  return fmt::format("comm 0x55ab rank {0} nranks 16 cudaDev 0 nvmlDev {0} busId {1} commId 0xfeed - Init START", nvml,
                     bus);
}

// A process of a host in a group of 16 with this id, and what it says beside that.
struct Speaker {
  std::string host, lines = {};
  int process = 100;

  Speaker& says(const std::string& text, const std::string& level = "INFO") {
    lines += fmt::format("{0}:{1}:{2} [0] {3}NCCL {4} {5}\n", host, process, process + 1,
                         level == "WARN" ? "transport/net.cc:100 " : "", level, text);
    return *this;
  }
  Speaker& opens(int rings, const std::string& types = "NVL/PIX") {
    says("comm 0x55aa rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0xfeed - Init START");
    says(fmt::format("Pattern 4, crossNic 0, nChannels {}, bw 20.000000/20.000000, type {}, sameChannels 1", rings,
                     types));
    return says("8 coll channels, 8 collnet channels, 0 nvls channels, 8 p2p channels, 2 p2p channels per peer");
  }
};
Speaker healthy(const std::string& host) {
  Speaker speaker{.host = host};
  speaker.says("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>");
  speaker.says("Using network IB");
  speaker.says("CPU/0 (1/1/2)").says("+ PCI[24.0] - GPU/1000 (0)").says("              + NVL[480.0] - NVS/0");
  speaker.says("+ PCI[24.0] - GPU/2000 (1)").says("              + NVL[480.0] - NVS/0");
  speaker.says("NVLS multicast support is available on dev 0");
  speaker.opens(8);
  speaker.says("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read");
  speaker.says("Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/0/GDRDMA");
  speaker.says("Channel 00/0 : 8[0] -> 1[1] [receive] via NET/IB/0/GDRDMA");
  return speaker;
}

NcclLog log_of(const std::vector<std::string>& texts) {
  NcclLog log;
  for (const std::string& text : texts) {
    std::istringstream in(text);
    log.read(in, fmt::format("file{}", log.hosts().size()));
  }
  return log;
}
std::vector<std::string> judged(const std::vector<Speaker>& speakers) {
  std::vector<std::string> texts, said;
  for (const Speaker& speaker : speakers) texts.push_back(speaker.lines);
  for (const Finding& finding : judge_nccl(log_of(texts)).findings) said.push_back(finding.str());
  return said;
}

// Whoever has a line for each rank is not told that some are missing.
TEST(NcclLog, RanksWithoutALineAreNamed) {
  Speaker speaker{.host = "n1"};
  for (int rank = 0; rank < 4; ++rank)
    speaker.says(fmt::format(
        "comm 0x5{0} rank {0} nranks 4 cudaDev {0} nvmlDev {0} busId {0}000 commId 0xf - Init START", rank));
  EXPECT_EQ(log_of({speaker.lines}).ranks().at("0xf").seen.size(), 4U);
  EXPECT_THAT(judge_nccl(log_of({speaker.lines})).not_run, Not(testing::Contains(HasSubstr("of the 4 ranks"))));
  const std::size_t last = speaker.lines.rfind("n1:");
  EXPECT_THAT(judge_nccl(log_of({speaker.lines.substr(0, last)})).not_run,
              testing::Contains(HasSubstr("1 of the 4 ranks of communicator 0xf (rank 3 is the first)")));
}

// A job that was killed, or a disk that was full: the last line of a host accuses nobody.
TEST(NcclLog, LinesThatWereCutSayNothing) {
  Speaker whole = healthy("n1"), cut = healthy("n2");
  cut.says("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [2]mlx5_");
  for (const char* via : {"NET/IB/0/GD", "NET/IB/0/", "NET/IB/1/GDRDM"})
    cut.says(fmt::format("Channel 01/0 : 1[1] -> 8[0] [send] via {}", via));
  EXPECT_THAT(judge_nccl(log_of({whole.lines, cut.lines})).findings, IsEmpty());
  cut.says("Channel 01/0 : 1[1] -> 8[0] [send] via NET/IB/0");
  EXPECT_THAT(judge_nccl(log_of({whole.lines, cut.lines})).findings, Not(IsEmpty())) << "that is a whole one";
}

TEST(NcclLog, HostsAlikeAreOneRowAndNothingIsFound) {
  const NcclLog log = log_of({healthy("n1").lines, healthy("n2").lines});
  EXPECT_THAT(judge_nccl(log).findings, IsEmpty());
  EXPECT_THAT(judge_nccl(log).not_run, ElementsAre(HasSubstr("15 of the 16 ranks"))) << "two of rank 0's own lines";
  const NcclHost& host = log.hosts().at("n1");
  EXPECT_THAT(host.adapters, ElementsAre("mlx5_0:1/RoCE", "mlx5_1:1/RoCE"));
  EXPECT_EQ(host.channels, 8);
  EXPECT_EQ(host.rings.at("0xfeed"), (NcclRings{.channels = 8, .intra = "NVL", .inter = "PIX"}));
  EXPECT_THAT(nccl_text(log, judge_nccl(log)),
              HasSubstr("n[1-2]          1  IB              2         8  8 NVL/PIX    1 NET/IB/GDRDMA, 1 P2P/CUMEM"));
  EXPECT_THAT(nccl_json(log, judge_nccl(log)), HasSubstr(R"("NET/IB/GDRDMA": 1)"));
}

TEST(NcclLog, WaysAreNamedWithoutTheirDevices) {
  EXPECT_EQ(way_of("P2P/CUMEM/read"), "P2P/CUMEM");
  EXPECT_EQ(way_of("P2P/direct pointer"), "P2P/direct pointer");
  EXPECT_EQ(way_of("SHM/direct/direct"), "SHM");
  EXPECT_EQ(way_of("NET/IB/3(7)/GDRDMA(PCI)/Shared"), "NET/IB/GDRDMA");
  EXPECT_EQ(way_of("NET/AWS Libfabric/0/GDRDMA"), "NET/AWS Libfabric/GDRDMA");
  EXPECT_EQ(way_of("NET/Socket/0"), "NET/Socket");
  EXPECT_EQ(way_of(""), "");
}

TEST(NcclLog, SocketsBesideAdaptersOrWhereOthersHaveThem) {
  Speaker ignores{.host = "n2"};
  ignores.says("NCCL_NET set by environment to Socket").says("NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.2<0>");
  ignores.says("Using network Socket").opens(8);
  EXPECT_THAT(judged({healthy("n1"), ignores}),
              ElementsAre(HasSubstr(
                  "warning nccl.socket n2: sends over sockets, and found 1 adapter (NCCL_NET=Socket is set)")));
  Speaker lacks{.host = "n3"};
  lacks.says("NET/IB : No device found.").says("Using network Socket").opens(8);
  EXPECT_THAT(
      judged({healthy("n1"), lacks}),
      ElementsAre(HasSubstr("nccl.socket n3: sends over sockets where other hosts do not: it found no adapter")));
  // Alone it may be as it should.
  EXPECT_THAT(judged({lacks}), IsEmpty());
  EXPECT_THAT(judge_nccl(log_of({lacks.lines})).not_run, testing::Contains(HasSubstr("ms-netcheck config")));
  Speaker another{.host = "n4"};
  another.says("NET/IB : No device found.").says("Using network Socket").opens(8);
  EXPECT_THAT(judge_nccl(log_of({lacks.lines, another.lines})).not_run,
              testing::Contains(HasSubstr("ms-netcheck config")).Times(1));
}

TEST(NcclLog, MemoryOfTheHostWhereNvlinksJoinTheGpus) {
  Speaker shm = healthy("n1");
  shm.says("NCCL_P2P_DISABLE set by environment to 1.").says("Channel 01 : 0[0] -> 1[1] via SHM/direct/direct");
  EXPECT_THAT(judged({shm}), ElementsAre(HasSubstr("note nccl.shm n1: 1 connection between GPUs through the host's "
                                                   "memory, and it has NVLinks; no line tells whether they join")));
  shm.says(joins(1, "2000"));
  EXPECT_THAT(judged({shm}),
              ElementsAre(HasSubstr("warning nccl.shm n1: 1 connection between GPUs through the host's memory, and "
                                    "NVLinks join them (NCCL_P2P_DISABLE=1 is set)")));
  shm.says(joins(1, "3000"));  // of another container
  EXPECT_THAT(judged({shm}), ElementsAre(HasSubstr("note nccl.shm n1")));
  Speaker pcie{.host = "n2"};
  pcie.opens(8, "PHB/PHB").says("Channel 01 : 0[0] -> 1[1] via SHM/direct/direct");
  EXPECT_THAT(judged({pcie}), IsEmpty());
  EXPECT_THAT(judged({healthy("n1"), pcie}), ElementsAre(HasSubstr("note nccl.shm n2")));
}

TEST(NcclLog, NvlinkBridgesJoinPairsAndOtherGpusShareMemory) {
  Speaker bridged{.host = "w1"};
  bridged.says("CPU/0-0 (1/1/2)");
  for (const char* line :
       {"+ PCI[24.0] - GPU/0-1000 (0)", "              + NVL[56.2] - GPU/0-A000", "+ PCI[24.0] - GPU/0-A000 (1)",
        "              + NVL[56.2] - GPU/0-1000", "+ PCI[24.0] - GPU/0-c000 (2)",
        "              + NVL[56.2] - GPU/0-d000", "+ PCI[24.0] - GPU/0-d000 (3)",
        "              + NVL[56.2] - GPU/0-c000", "+ PCI[24.0] - NIC/0-e000"})
    bridged.says(line);
  bridged.says(joins(0, "1000")).says(joins(1, "a000")).says(joins(2, "c000")).says(joins(3, "d000"));
  bridged.says("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM").says("Channel 00 : 1[1] -> 2[2] via SHM/direct/direct");
  bridged.says("Channel 00/0 : 2[2] -> 3[3] via P2P/CUMEM").says("Channel 00 : 3[3] -> 0[0] via SHM/direct/direct");
  EXPECT_THAT(judged({bridged}), IsEmpty());
  bridged.says("Channel 01 : 0[0] -> 1[1] via SHM/direct/direct");
  EXPECT_THAT(judged({bridged}), ElementsAre(HasSubstr("warning nccl.shm w1: 1 connection")));
}

TEST(NcclLog, WithoutGpuDirectIsANoteUnlessOthersHaveIt) {
  Speaker staged{.host = "n2"};
  staged.opens(8).says("Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/0");
  EXPECT_THAT(judged({healthy("n1"), staged}), ElementsAre(HasSubstr("warning nccl.gdr n2: 1 of 1 connection")));
  EXPECT_THAT(judged({staged}), ElementsAre(HasSubstr("note nccl.gdr n2")));
}

TEST(NcclLog, AdaptersMayWriteIntoGpusThatTheyDoNotRead) {
  const auto without_nvlinks = [](const std::string& host) {
    Speaker speaker{.host = host};
    speaker.opens(2, "PHB/PHB").says("Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/0");
    return speaker.says("Channel 00/0 : 8[0] -> 1[1] [receive] via NET/IB/0/GDRDMA");
  };
  EXPECT_THAT(judged({without_nvlinks("p1"), without_nvlinks("p2")}), IsEmpty());
  Speaker staged{.host = "p2"};
  staged.opens(2, "PHB/PHB").says("Channel 00/0 : 8[0] -> 1[1] [receive] via NET/IB/0");
  EXPECT_THAT(judged({without_nvlinks("p1"), staged}),
              ElementsAre(HasSubstr("warning nccl.gdr p2: 1 of 1 connection")));
}

TEST(NcclLog, WhoFindsFewerRingsHoldsAllDown) {
  Speaker poor{.host = "n3"};
  poor.opens(4, "PHB/SYS");
  EXPECT_THAT(judged({healthy("n1"), healthy("n2"), poor}),
              ElementsAre(HasSubstr("nccl.channels n3: finds 4 rings over PHB/SYS, and other hosts of the group 8")));
}

TEST(NcclLog, RingsOfAGroupThatIsSplitOffAreItsOwn) {
  const auto splits = [](Speaker speaker, int rings, int color = 3) {
    speaker.says(
        fmt::format("ncclCommSplit comm 0x77 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 parent 0x55aa "
                    "splitCount 1 color {} key 0- Init START",
                    color));
    return speaker.says(
        fmt::format("Pattern 4, crossNic 0, nChannels {}, bw 20.0/20.0, type LOC/PIX, sameChannels 1", rings));
  };
  EXPECT_THAT(judged({splits(healthy("n1"), 1), healthy("n2")}), IsEmpty());
  EXPECT_THAT(judged({splits(healthy("n1"), 1), splits(healthy("n2"), 2, 4)}), IsEmpty());
  EXPECT_THAT(judged({splits(healthy("n1"), 1), splits(healthy("n2"), 2)}),
              ElementsAre(HasSubstr("nccl.channels n1: finds 1 ring over LOC/PIX")));
  // Whose parent nobody saw open may be any group.
  EXPECT_THAT(judged({splits({.host = "n1"}, 1), splits({.host = "n2"}, 2)}), IsEmpty());
}

TEST(NcclLog, WhoSaysNothingOfMulticastIsNotSaidToHaveIt) {
  Speaker lacks{.host = "n1"};
  lacks.opens(8).says("NVLS multicast support is not available on dev 0");
  Speaker silent{.host = "n2"};
  silent.opens(8);
  EXPECT_THAT(judged({lacks, silent, {.host = "topo", .lines = "<system><gpu dev=\"0\" sm=\"80\"/></system>"}}),
              IsEmpty());
}

TEST(NcclLog, WarningsAndMulticastThatOnlyOneLacks) {
  Speaker bad = healthy("n2");
  bad.says("NVLS multicast support is not available on dev 0").says("Call to ibv_modify_qp failed", "WARN");
  EXPECT_THAT(judged({healthy("n1"), bad}),
              ElementsAre(HasSubstr("nccl.nvls n2"), HasSubstr("nccl.warning n2: Call to ibv_modify_qp failed")));
}

TEST(NcclLog, LabelsAndTimesBeforeTheHostDoNotMatter) {
  const NcclLog log =
      log_of({" 3: 2025-06-01 12:00:00 n7.site:5:6 [1] NCCL INFO Using network IB\r\n"
              "NCCL INFO nobody\nn8:x:1 [0] NCCL INFO Using network IB\nstep 1, loss 2\n"});
  ASSERT_EQ(log.hosts().size(), 1U);
  EXPECT_TRUE(log.hosts().contains("n7.site"));
}

TEST(NcclLog, LabelsOfLaunchersAreNoPartOfTheHost) {
  for (const char* label :
       {"", "[1,3]<stdout>:", "[1,3]<stderr>:", "[default3]:", "[default0]:[rank0]:", "3: ", "12: node07: ", "node07: ",
        "\x1b[36m(RayTrainWorker pid=8213, ip=10.0.0.7)\x1b[0m ", "\x1b[36m(pid=8213)\x1b[0m", "[pod/worker-1/main] ",
        "2025-06-01T12:00:00.123456789Z ", "[2025-06-01 12:00:00] ", "worker_1  | ", "worker_1|", "12:00:01 "}) {
    const NcclLog log = log_of({fmt::format("{}n7_a.b-c:5:6 [1] NCCL INFO Using network IB\r\n", label)});
    ASSERT_EQ(log.hosts().size(), 1U) << label;
    EXPECT_EQ(log.hosts().begin()->first, "n7_a.b-c") << label;
  }
  EXPECT_THAT(log_of({"[1,3]<stdout>::5:6 [1] NCCL INFO Using network IB\n", "\x1b[31"}).hosts(), IsEmpty());
}

TEST(NcclLog, AdaptersThatOneHostLacks) {
  Speaker fewer{.host = "n3"};
  fewer.says("NCCL_IGNORE_NET_MISMATCH set by environment to 1.");
  fewer.says("NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.3<0>").says("Using network IB").opens(8);
  fewer.says("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA");
  Speaker staged = healthy("n1");  // its second adapter has no counterpart
  staged.says("Channel 01/0 : 1[1] -> 8[0] [send] via NET/IB/1");
  const auto lacks = HasSubstr(
      "warning nccl.adapters n3: uses 1 adapter, and other hosts use 2: it lacks mlx5_1:1/RoCE "
      "(NCCL_IGNORE_NET_MISMATCH=1 is set)");
  EXPECT_THAT(judged({staged, healthy("n2"), fewer}), ElementsAre(lacks));
  EXPECT_THAT(judged({staged, fewer}), ElementsAre(lacks));
  EXPECT_THAT(judged({fewer}), IsEmpty());
  // One that has more than the others is no fault of theirs.
  Speaker more = healthy("n4");
  more.says("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [2]mlx5_2:1/RoCE [RO]; OOB eth0:10.0.0.4<0>");
  EXPECT_THAT(judged({healthy("n1"), healthy("n2"), more}), IsEmpty());
  // Without such a host the adapter's place is the cause: its module is there.
  EXPECT_THAT(judged({staged, healthy("n2")}),
              ElementsAre(testing::AllOf(HasSubstr("warning nccl.gdr n1"), HasSubstr("adapter 1"),
                                         Not(HasSubstr("nvidia_peermem")))));
}

TEST(NcclLog, LoopbackToOtherHostsAndAdaptersThatAreSwitchedOff) {
  const auto speaker = [](const std::string& host, const std::string& interface) {
    Speaker of{.host = host};
    of.says("NCCL_SOCKET_IFNAME set by environment to lo").says("NET/Socket : Using [0]" + interface + "<0>");
    of.says("Using network Socket").says("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0");
    return of;
  };
  const Speaker a = speaker("n1", "lo:127.0.0.1"), b = speaker("n2", "lo:127.0.0.1");
  EXPECT_THAT(judged({a, b}), ElementsAre(HasSubstr("warning nccl.loopback n[1-2]: announces lo:127.0.0.1")));
  EXPECT_THAT(judged({a}), IsEmpty());  // a job of one node
  EXPECT_THAT(judged({a, speaker("n2", "eth0:10.0.0.2")}), ElementsAre(HasSubstr("nccl.loopback n1")));
  Speaker within{.host = "n3"};  // a job of one node beside it: no connection leads out
  within.says("NET/Socket : Using [0]lo:127.0.0.1<0>").says("Channel 00 : 0[0] -> 1[1] via P2P/IPC");
  EXPECT_THAT(judged({within, speaker("n2", "eth0:10.0.0.2")}), IsEmpty());

  Speaker off = speaker("n4", "eth0:10.0.0.4"), allowed = off;
  off.says("NCCL_IB_DISABLE set by environment to 1.");
  allowed.says("NCCL_IB_DISABLE set by environment to 0.");
  EXPECT_THAT(judged({off}), ElementsAre(HasSubstr("note nccl.socket n4")));
  EXPECT_THAT(judged({allowed}), IsEmpty());
}

TEST(NcclLog, OneFaultThatIsLoggedOftenIsOneFinding) {
  Speaker bad{.host = "n1"};
  for (int i = 0; i < 300; ++i) {
    bad.says(fmt::format("NET/IB : Got completion from {}10.2.0.36<{}> with status=12 opcode={} len=0 vendor err 129 "
                         "(Recv) localGid fd00::{} remoteGidsfd00:2::ff1f",
                         i % 2 == 0 ? "peer " : "", 30000 + i, 7 * i, i),
             "WARN");
    bad.says(fmt::format("Call to ibv_reg_mr failed: addr 0x7f{:04x} length={} request {}", i, i, 1000 + i), "WARN");
  }
  bad.says("NET/IB : Got completion from peer 10.2.0.37<30001> with status=5 opcode=0 len=0", "WARN");
  EXPECT_THAT(
      judged({bad}),
      ElementsAre(HasSubstr("note nccl.completion n1: lost a connection with 10.2.0.37: status 5"),
                  testing::AllOf(HasSubstr("warning nccl.completion n1: lost a connection with 10.2.0.36: "
                                           "status 12"),
                                 HasSubstr("(300 times)")),
                  testing::AllOf(HasSubstr("nccl.warning n1: Call to ibv_reg_mr failed"), HasSubstr("(300 times)"))));
  EXPECT_EQ(nccl_warning_of("rank 1024 of peer fe80::1<9> status=12 id=77 error 110"),
            "rank 1024 of peer fe80::1 status=12 id=* error 110");
}

// What a process says that calls a collective.
std::string calls(const std::string& kind, int op, int count, const std::string& comm = "0x5") {
  return fmt::format(
      "{}: opCount {:x} sendbuff 0x7 recvbuff 0x8 count {} datatype 7 op 0 root 0 comm {} [nranks=4] "
      "stream 0x9",
      kind, op, count, comm);
}

TEST(NcclLog, CollectivesThatTheProcessesCallDifferently) {
  std::vector<Speaker> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    Speaker& speaker = ranks.emplace_back(Speaker{.host = "n1", .process = 100 + rank});
    for (int op = 9; op < 20; ++op) speaker.says(calls("AllReduce", op, 8 * op));
    speaker.says(calls("Send", 20, rank)).says(calls("AllGather", 20, 3)).says(calls("AllGather", 20, 4));
  }
  EXPECT_THAT(judged(ranks), IsEmpty());
  std::vector<Speaker> one = ranks, two = ranks;
  one[2].says(calls("AllGather", 21, 1));
  for (int rank : {0, 1, 3}) one[rank].says(calls("AllReduce", 21, 256));
  EXPECT_THAT(judged(one), ElementsAre(testing::AllOf(HasSubstr("critical nccl.calls n1: at opCount 15"),
                                                      HasSubstr("1 of 4 called AllGather of 1, datatype 7 (n1:102)"))));
  // Two against two: which is right is not known.
  for (int rank = 0; rank < 4; ++rank) two[rank].says(calls("AllReduce", 21, rank % 2));
  EXPECT_THAT(judged(two), ElementsAre(HasSubstr("which is right is not known")));
  // A second communicator of this size, and no line that tells which is which.
  std::vector<Speaker> unknown = one;
  for (Speaker& speaker : unknown) speaker.lines = Speaker{speaker}.says(calls("Reduce", 1, 1, "0x6")).lines;
  EXPECT_THAT(judged(unknown), IsEmpty());
  std::vector<std::string> texts;
  for (const Speaker& speaker : unknown) texts.push_back(speaker.lines);
  EXPECT_THAT(judge_nccl(log_of(texts)).not_run, testing::Contains(HasSubstr("INIT,COLL")));
  // The next attempt in the same log counts anew.
  std::vector<Speaker> again = ranks;
  again[0].says(calls("Reduce", 9, 1));
  EXPECT_THAT(judged(again), IsEmpty());
}

TEST(NcclLog, DumpedTopologiesAndGraphs) {
  const std::string topology =
      R"(<system version="1"><cpu numaid="0" arch="x86_64"><pci busid="0000:11:00.0" class="0x030200">
      <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:c7:00.0" count="10" tclass="0x068000"/></gpu></pci>
      <pci><gpu dev="1" sm="90"><nvlink count="6"/><nvlink count="6"/></gpu></pci>
      <nic><net name="mlx5_0" dev="0" speed="400000" gdr="1"/><net name="mlx5_9" dev="1" gdr="0"/></nic></cpu></system>)";
  const auto graph = [](int channels) {
    return fmt::format(R"(<graphs version="1"><graph id="0" pattern="4" crossnic="0" nchannels="{}" typeintra="NVL"
      typeinter="PXN"><channel><net dev="0"/><gpu dev="0"/><net dev="0"/></channel></graph>
      <graph id="1" pattern="1" nchannels="16"/></graphs>)",
                       channels);
  };
  const NcclLog log = log_of({topology, graph(8), graph(4)});
  std::vector<std::string> said;
  for (const Finding& finding : judge_nccl(log).findings) said.push_back(finding.str());
  EXPECT_THAT(said, ElementsAre(HasSubstr("note nccl.gdr file0: mlx5_9 has no GPUDirect RDMA"),
                                HasSubstr("nccl.nvlink file0: GPU 0 has 10 NVLinks, and others have 12")));
  // Nothing in them tells whether both graphs are of one group.
  EXPECT_THAT(judge_nccl(log).not_run, testing::Contains(HasSubstr("dumped graphs beside each other")));
  EXPECT_THAT(nccl_text(log, judge_nccl(log)), HasSubstr("4 NVL/PXN"));
  EXPECT_EQ(log_of({"<html><body>", "<", "<gpu", "<graph pattern=\"4\" nchannels=\"-1"}).hosts().size(), 2U);
}

TEST(NcclLog, HostileTextIsBoundedAndEscaped) {
  std::string text = "n1:1:2 [0] NCCL WARN \x1b[2J" + std::string(100000, 'A') + "\n";
  text += std::string("n1:1:2 [0] NCCL INFO Using network \0IB\n", 39);
  text +=
      "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via \nn1:1:2 [0] NCCL INFO 99999999999999999999 coll channels, "
      "x\n";
  text += "n1:1:2 [0] NCCL INFO Pattern 4, nChannels -5, type";
  for (int i = 0; i < 6000; ++i) text += fmt::format("\nn1:1:2 [0] NCCL WARN number n{}", i);
  const NcclLog log = log_of({text});
  EXPECT_EQ(log.hosts().at("n1").warnings.size(), NcclLog::kMostOfAHost);
  EXPECT_TRUE(log.is_cut());
  const std::string said = nccl_text(log, judge_nccl(log));
  EXPECT_THAT(said, Not(HasSubstr("\x1b")));
  EXPECT_THAT(said, HasSubstr("all of these logs"));
}

}  // namespace
}  // namespace ms::net
