// What NCCL's Inspector recorded: jobs of a made cluster with one fault each, or none.
#include "net/measure/inspector.h"

#include <gmock/gmock.h>

#include <functional>
#include <sstream>

#include "net/report/inspector_report.h"

namespace ms::net {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kHosts = 4, kGpus = 4, kCalls = 20;

std::string record(int host, int gpu, const std::string& comm, int rank, int ranks, int nodes, const std::string& op) {
  return fmt::format(
      R"({{"header":{{"id":"{}","rank":{},"n_ranks":{},"nnodes":{}}},"metadata":{{"inspector_output_format_version":"v4.0",)"
      R"("dump_timestamp_us":1,"hostname":"n{}","pid":{}}},{}}})"
      "\n",
      comm, rank, ranks, nodes, host, 100 * host + gpu, op);
}
std::string collective(int number, double time_us, double bus_gbs, const std::string& source = "kernel_gpu") {
  return fmt::format(
      R"("coll_perf":{{"coll":"AllReduce","coll_sn":{},"coll_msg_size_bytes":1048576,"coll_exec_time_us":{:.0f},)"
      R"("coll_timing_source":"{}","coll_algobw_gbs":1,"coll_busbw_gbs":{}}})",
      number, time_us, source, bus_gbs);
}

// How long a process comes after the others, and how long a transfer takes.
struct Job {
  std::function<double(int host, int gpu, int call)> late_us = [](int, int, int) { return 0.0; };
  std::function<double(bool is_node, int index, int call)> transfer_us = [](bool is_node, int, int) {
    return is_node ? 100.0 : 1000.0;
  };

  // Groups of a node (tensor parallel), and of one GPU of each node (data parallel), which is called right after it:
  // who waited for a member of its node comes as late as that one.
  InspectorLog log() const {
    std::ostringstream text;
    for (int call = 0; call < kCalls; ++call) {
      double left_us[kHosts] = {};
      for (int host = 0; host < kHosts; ++host) {
        double last_us = 0;
        for (int gpu = 0; gpu < kGpus; ++gpu) last_us = std::max(last_us, late_us(host, gpu, call));
        left_us[host] = last_us;
        for (int gpu = 0; gpu < kGpus; ++gpu) {
          const double transfer = transfer_us(true, host, call);
          text << record(host, gpu, fmt::format("0xa{}", host), gpu, kGpus, 1,
                         collective(call, transfer + last_us - late_us(host, gpu, call), 100000 / transfer));
        }
      }
      const double last_us = *std::max_element(left_us, left_us + kHosts);
      for (int gpu = 0; gpu < kGpus; ++gpu) {
        for (int host = 0; host < kHosts; ++host) {
          const double transfer = transfer_us(false, gpu, call);
          text << record(host, gpu, fmt::format("0xb{}", gpu), host, kHosts, kHosts,
                         collective(call, transfer + last_us - left_us[host], 100000 / transfer));
        }
      }
    }
    InspectorLog log;
    std::istringstream in(text.str());
    log.read(in);
    return log;
  }
};

std::vector<std::string> said(const InspectorLog& log) {
  std::vector<std::string> said;
  for (const Finding& finding : judge_inspector(log).judged.findings) said.push_back(finding.str());
  return said;
}

TEST(Inspector, NothingIsFoundInAHealthyJob) {
  const InspectorLog log = Job{}.log();
  EXPECT_EQ(log.processes().size(), 16U);
  EXPECT_EQ(log.comms().size(), 8U);
  EXPECT_EQ(log.ops().size(), 2U * 16 * kCalls);
  const InspectorJudged judged = judge_inspector(log);
  EXPECT_THAT(judged.judged.findings, IsEmpty());
  EXPECT_THAT(judged.judged.not_run, IsEmpty());
  ASSERT_EQ(judged.rows.size(), 2U);
  EXPECT_EQ(judged.rows[0].nodes, kHosts);
  EXPECT_EQ(judged.rows[0].groups, kGpus);
  EXPECT_DOUBLE_EQ(judged.rows[0].bus_gbs, 100);
  EXPECT_DOUBLE_EQ(judged.rows[0].waiting, 0);
  EXPECT_THAT(inspector_json(log, judged), HasSubstr(R"("operation": "AllReduce")"));
  // Everybody is late at times.
  EXPECT_THAT(said(Job{.late_us =
                           [](int host, int gpu, int call) {
                             return (host * kGpus + gpu) * 7 % 16 == call % 16 ? 3000.0
                                                                               : 10.0 * ((host + gpu + call) % 3);
                           }}
                       .log()),
              IsEmpty());
}

TEST(Inspector, TheProcessThatComesLastAndNotTheOnesThatWaitForItFirst) {
  const auto late = [](int host, int gpu, int) { return host == 2 && gpu == 1 ? 2000.0 : 0.0; };
  EXPECT_THAT(said(Job{.late_us = late}.log()),
              ElementsAre(AllOf(HasSubstr("warning nccl.late n2: process 201 comes last"))));
  EXPECT_EQ(judge_inspector(Job{.late_us = late}.log()).judged.findings.at(0).blame, Blame::user);
  // All of a node: one finding.
  const auto node = [](int host, int, int) { return host == 1 ? 2000.0 : 0.0; };
  EXPECT_THAT(said(Job{.late_us = node}.log()),
              ElementsAre(HasSubstr("nccl.late n1: process 100, 101, 102, 103 comes last")));
  // Late, but too little to matter.
  EXPECT_THAT(said(Job{.late_us = [](int host, int, int) { return host == 1 ? 15.0 : 0.0; }}.log()), IsEmpty());
}

TEST(Inspector, GroupsAndTheHostsThatOnlySlowOnesHave) {
  // The links within n3 are slow: of the groups within a node, that one.
  const auto node = [](bool is_node, int index, int) { return is_node ? (index == 3 ? 300.0 : 100.0) : 1000.0; };
  EXPECT_THAT(said(Job{.transfer_us = node}.log()), ElementsAre(HasSubstr("warning nccl.slow_group n3: AllReduce")));
  // The adapters of GPU 2 are slow, of all hosts: the group, as no host stands out.
  const auto rail = [](bool is_node, int index, int) { return is_node ? 100.0 : (index == 2 ? 2500.0 : 1000.0); };
  EXPECT_THAT(said(Job{.transfer_us = rail}.log()),
              ElementsAre(HasSubstr("warning nccl.slow_group n[0-3]: AllReduce")));
  // Times of the CPU's clock are not compared with those of the GPUs' clocks.
  std::ostringstream text;
  for (int call = 0; call < kCalls; ++call) {
    for (int group = 0; group < 4; ++group) {
      for (int rank = 0; rank < 2; ++rank) {
        const bool is_cpu = group == 3;
        text << record(
            group, rank, fmt::format("0xd{}", group), rank, 2, 1,
            collective(call, is_cpu ? 500 : 100, is_cpu ? 20 : 100, is_cpu ? "collective_cpu" : "kernel_gpu"));
      }
    }
  }
  InspectorLog clocks;
  std::istringstream in(text.str());
  clocks.read(in);
  EXPECT_THAT(said(clocks), IsEmpty());
  EXPECT_EQ(judge_inspector(clocks).rows.size(), 2U);
  // Half of the calls are slow everywhere: nothing stands out.
  const auto often = [](bool, int, int call) { return call % 2 == 0 ? 1000.0 : 3000.0; };
  EXPECT_THAT(said(Job{.transfer_us = often}.log()), IsEmpty());
}

TEST(Inspector, PairsOfHosts) {
  std::string text;
  for (int call = 0; call < kCalls; ++call) {
    for (int host = 0; host < kHosts; ++host) {
      const double bus_gbs = host == 1 ? 10 : 40;
      for (const bool sends : {true, false}) {
        text += record(sends ? host : (host + 1) % kHosts, 0, "0xc", sends ? host : (host + 1) % kHosts, kHosts, kHosts,
                       fmt::format(R"("p2p_perf":{{"p2p":"{}","p2p_sn":{},"p2p_peer":{},"p2p_msg_size_bytes":65536,)"
                                   R"("p2p_exec_time_us":{},"p2p_timing_source":"kernel_gpu","p2p_algobw_gbs":1,)"
                                   R"("p2p_busbw_gbs":{}}})",
                                   sends ? "Send" : "Recv", call, sends ? (host + 1) % kHosts : host, 9 + call,
                                   call % 3 == 0 ? 1.0 : bus_gbs));  // a wait for the peer
      }
    }
  }
  InspectorLog log;
  std::istringstream in(text);
  EXPECT_EQ(log.read(in), 2 * kHosts * kCalls);
  EXPECT_THAT(said(log), ElementsAre(HasSubstr("warning nccl.slow_pair n1 -> n2: transfers of 64.0 KiB: 10 GB/s")));
}

TEST(Inspector, WhatIsMissingOrNoRecordIsSaid) {
  InspectorLog log;
  std::istringstream in("{\"header\":\nnot JSON\n[]\n{}\n" +
                        record(0, 0, "0xa", 0, 2, 1, collective(1, 10, 1)) +  // its peer is missing
                        record(0, 0, "0xb", 0, 2, 1, collective(1, 10, 1)) +  // times of two clocks
                        record(0, 1, "0xb", 1, 2, 1, collective(1, 500, 1, "kernel_cpu")) +
                        record(0, 0, "0xc", 5, 2, 1, collective(1, 10, 1)) +  // a rank beyond the group
                        record(0, 0, "0xd", 0, 2, 1, collective(1, -5, 1)) + record(0, 0, "0xe", 0, 1, 1, "\"x\":1") +
                        "{\"header\":{\"id\":\"0xa\",\"rank\":0,\"n_ra");
  EXPECT_EQ(log.read(in), 3);
  EXPECT_EQ(log.bad_lines(), 8);
  const InspectorJudged judged = judge_inspector(log);
  EXPECT_THAT(judged.rows, IsEmpty());
  EXPECT_THAT(judged.judged.findings, IsEmpty());
  EXPECT_THAT(judged.judged.not_run, ElementsAre(HasSubstr("2 of 2 collectives"), HasSubstr("8 lines")));
}

}  // namespace
}  // namespace ms::net
