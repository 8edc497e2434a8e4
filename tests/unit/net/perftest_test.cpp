// RDMA by perftest: what the programs print, and two agents that run stand-ins of them.
#include "net/measure/perftest.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fake_node.h"
#include "link/acceptor.h"
#include "net/agents/peer.h"

namespace ms::net {
namespace {

constexpr std::string_view kBandwidth = R"(
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_0
 Number of qps   : 1		Transport type : IB
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0089 PSN 0x6f2c7d RKey 0x1fff00 VAddr 0x007f1c
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    21871            0.00               366.93 		   0.043742
---------------------------------------------------------------------------------------
)";
constexpr std::string_view kLatency = R"(
                    RDMA_Write Latency Test
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       200          1.64           1234.56	 1.70     	       1.72        	0.05   		1.93    		7.90
)";

TEST(Perftest, ItsTablesAreRead) {
  const std::optional<RdmaSeen> bandwidth = read_perftest(RdmaTest::bandwidth, kBandwidth);
  ASSERT_TRUE(bandwidth);
  EXPECT_DOUBLE_EQ(bandwidth->gbps, 366.93);
  const std::optional<RdmaSeen> latency = read_perftest(RdmaTest::latency, kLatency);
  ASSERT_TRUE(latency);
  EXPECT_DOUBLE_EQ(latency->least_us, 1.64);
  EXPECT_DOUBLE_EQ(latency->p50_us, 1.70);
  EXPECT_DOUBLE_EQ(latency->p99_us, 1.93);
  EXPECT_FALSE(read_perftest(RdmaTest::bandwidth, "Couldn't connect to 10.0.0.1:18515"));
  EXPECT_FALSE(read_perftest(RdmaTest::latency, ""));
}

TEST(Perftest, TheFirstActivePortOfTheSelectedAdaptersIsUsed) {
  test::FakeNode node(3);
  node.write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  const FabricFacts facts = gather_facts(node.root(), nullptr);
  const std::optional<RdmaPort> port = rdma_port(facts, "");
  ASSERT_TRUE(port);
  EXPECT_EQ(port->device, "mlx5_1");
  EXPECT_EQ(port->port, 1);
  EXPECT_EQ(port->gid, 3);  // RoCE v2, and of an IPv4 address
  EXPECT_DOUBLE_EQ(port->gbps, 400);
  EXPECT_EQ(rdma_port(facts, "=mlx5_2")->device, "mlx5_2");
  EXPECT_FALSE(rdma_port(facts, "mlx5_0"));
  EXPECT_FALSE(rdma_port(gather_facts(test::FakeNode(0).root(), nullptr), ""));
}

// Programs of these names that print what theirs would, first in PATH: the one that waits listens, and takes one
// caller.
class Programs : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(directory_);
    write("ib_write_lat", kLatency);
    write("ib_write_bw", kBandwidth);
    before_ = std::getenv("PATH");
    setenv("PATH", (directory_.string() + ":" + before_).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", before_.c_str(), 1);
    std::filesystem::remove_all(directory_);
  }
  void write(const std::string& name, std::string_view printed, const std::string& instead = "") {
    std::ofstream(directory_ / name) << "#!/usr/bin/env python3\n"
                                        "import socket, sys\n"
                                     << instead
                                     << "options = dict(w[2:].split('=', 1) for w in sys.argv[1:] if '=' in w)\n"
                                        "hosts = [w for w in sys.argv[1:] if not w.startswith('-')]\n"
                                        "where = (hosts[0] if hosts else '127.0.0.1', int(options['port']))\n"
                                        "if hosts:\n"
                                        "    socket.create_connection(where).close()\n"
                                        "else:\n"
                                        "    socket.create_server(where).accept()\n"
                                     << "print('''" << printed << "''')\n";
    std::filesystem::permissions(directory_ / name, std::filesystem::perms::owner_all);
  }
  PairResult test_one_pair(bool with_adapters = true) {
    test::FakeNode node(with_adapters ? 1 : 0);
    const link::Address loopback = *link::parse_address("127.0.0.1:0");
    Self self{"secret", loopback, "lo", Sysroot("/"), rdma_port(gather_facts(node.root(), nullptr), "")};
    std::vector<link::Listener> listeners;
    const int port = listeners.emplace_back(loopback).port();
    link::Acceptor acceptor(std::move(listeners), self.secret);
    std::jthread other([&] {
      try {
        link::Acceptor::Accepted peer = *acceptor.accept(link::in_seconds(10));
        serve_peer(std::move(peer.channel), peer.greeting, self);
      } catch (const Error&) {  // the one who asks has given up
      }
    });
    return test_pair(self, loopback.with_port(port), "other", {.seconds = 0.5, .rdma = true});
  }

  std::filesystem::path directory_ =
      std::filesystem::path(testing::TempDir()) / ("perftest-" + std::to_string(getpid()));
  std::string before_;
};

TEST_F(Programs, MeasureAPairBothWays) {
  const PairResult result = test_one_pair();
  EXPECT_EQ(result.error, "");
  EXPECT_DOUBLE_EQ(result.p50_us, 1.70);
  EXPECT_DOUBLE_EQ(result.there.gbps, 366.93);
  EXPECT_DOUBLE_EQ(result.back.gbps, 366.93);
  EXPECT_EQ(result.there.sent, 0);
  EXPECT_EQ(result.there.mtu, 0);
}

TEST_F(Programs, ThatFailAreToldWithWhatTheySaid) {
  write("ib_write_bw", kBandwidth, "sys.exit('Unable to open adapter' if len(sys.argv) else '')\n");
  const PairResult result = test_one_pair();
  EXPECT_NE(result.error.find("ib_write_bw: exit status 1: Unable to open adapter"), std::string::npos) << result.error;
  EXPECT_DOUBLE_EQ(result.p50_us, 1.70);  // what was measured before stays
  write("ib_write_bw", "no table");
  EXPECT_NE(test_one_pair().error.find("ib_write_bw printed no result"), std::string::npos);
  EXPECT_EQ(test_one_pair(false).error, "this node has no active RDMA port");
}

TEST_F(Programs, ThatAreThereAreFound) {
  EXPECT_EQ(why_no_perftest(), "");
  setenv("PATH", "/nonexistent", 1);
  EXPECT_EQ(why_no_perftest(), "ib_write_lat is not installed (perftest)");
}

}  // namespace
}  // namespace ms::net
