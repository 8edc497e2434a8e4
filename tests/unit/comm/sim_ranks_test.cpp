// Rendezvous if one rank represents many, and ranks that share a node's processors, checked against virtual times
// computed by hand.
#include "comm/sim_solve.h"

#include <gtest/gtest.h>

#include "sim_programs.h"

namespace ms::comm {
namespace {

using tensor::Stream;

TEST(SimRanks, RankThatRepresentsAllDoesNotWait) {
  SimHost rank(0);
  Stream& stream = rank.stream();
  rank.work(stream, 2);
  rank.open("tp[dp 0]", {0, 1, 2, 3}, stream).all_reduce(rank.floats(4));  // 2 x 3 floats
  rank.open("dp[tp 0]", {0, 1, 4, 5}, stream).all_gather(rank.floats(4), rank.floats(1));
  Simulation simulation({rank.record()});
  simulation.setup.stands_for = [](int) { return std::size_t{0}; };
  // The all-gather moves 3 floats at half a float per second, out of a node in which two ranks share the network cards.
  simulation.expect_ends({2 + 6 + 3 * 2 / 2.0});
}

TEST(SimRanks, RankThatRepresentsAllHasARingOfChannels) {
  for (const bool on_one_stream : {false, true}) {
    SimHost rank(0);
    Stream &sends = rank.stream(), &receives = on_one_stream ? sends : rank.stream();
    Communicator &out = rank.channel(0, 1, sends), &in = rank.channel(3, 0, receives);
    for (int i = 0; i < 3; ++i) {
      rank.work(sends, 1), out.send(rank.floats(2));
      in.recv(rank.floats(2));
    }
    Simulation simulation({rank.record()});
    simulation.setup.stands_for = [](int) { return std::size_t{0}; };
    if (on_one_stream) {
      // Every rank would send before it receives, so no receive would ever be issued.
      EXPECT_THROW(solve(simulation.setup), Error);
    } else {
      EXPECT_EQ(simulation.expect_ends({9}).comm_ops, 3U);
    }
  }
}

TEST(SimRanks, RecordingRunsAsAnotherRank) {
  // Two stages of two: tp groups {0, 1} and {2, 3}, channels 0>2 and 1>3. One of each stage is recorded.
  SimHost first(0), last(2);
  Stream &one = first.stream(), &two = last.stream();
  first.work(one, 1);
  first.open("tp[pp 0]", {0, 1}, one).all_reduce(first.floats(1));  // 1 to 2
  first.channel(0, 2, one).send(first.floats(1));                   // 2 to 3
  last.channel(0, 2, two).recv(last.floats(1));
  last.work(two, 1);  // to 4, on rank 3 to 6
  last.open("tp[pp 1]", {2, 3}, two).all_reduce(last.floats(1));
  Simulation simulation({first.record(), last.record()});
  const auto& recordings = simulation.recordings;
  simulation.setup.ranks = {{.rank = 0, .recording = &recordings[0]},
                            {.rank = 1, .recording = &recordings[0]},
                            {.rank = 2, .recording = &recordings[1]},
                            {.rank = 3, .recording = &recordings[1], .slowness = 3}};
  simulation.setup.moved = [](int recorded, int rank, int member) {
    return member / 2 * 2 + (member + rank - recorded) % 2;
  };
  EXPECT_EQ(simulation.expect_ends({3, 3, 7, 7}).comm_ops, 4U);
}

TEST(SimRanks, RanksThatShareProcessors) {
  struct Case {
    std::int64_t cores, ranks_on_node;
    std::vector<double> ends_s;
  };
  // Ranks 0 to 3 work 4, 4, 4 and 2 s.
  const Case cases[] = {
      {0, 4, {4, 4, 4, 2}},    // each has its own device
      {4, 4, {4, 4, 4, 2}},    // enough for all
      {2, 4, {4, 4, 8, 6}},    // two at a time
      {1, 4, {4, 8, 12, 14}},  // one after the other
      {1, 2, {4, 8, 4, 6}},    // two nodes
      {1, 1, {4, 4, 4, 2}},
  };
  for (const Case& c : cases) {
    std::vector<SimRecording> recordings;
    for (int r = 0; r < 4; ++r) {
      SimHost rank(r);
      rank.work(rank.stream(), r == 3 ? 2 : 4);
      recordings.push_back(rank.record());
    }
    Simulation simulation(recordings);
    simulation.cluster.node.ranks = c.ranks_on_node;
    simulation.cluster.node.cores = c.cores;
    SCOPED_TRACE(testing::PrintToString(c.cores) + " cores for " + testing::PrintToString(c.ranks_on_node));
    simulation.expect_ends(c.ends_s);
  }
}

TEST(SimRanks, WaitingForCommunicationNeedsNoProcessor) {
  SimHost a(0), b(1);
  Stream& stream = a.stream();
  a.work(stream, 3), a.channel(0, 1, stream).send(a.floats(1));
  b.channel(0, 1, b.stream()).recv(b.floats(1));
  Simulation simulation({a.record(), b.record()});
  simulation.cluster.node.cores = 1;
  simulation.expect_ends({4, 4});
}

TEST(SimRanks, MessagesBetweenRanksThatShareProcessorsTakeThem) {
  struct Case {
    std::int64_t cores;
    std::vector<double> ends_s;
  };
  // Two ranks copy two floats each while the two others work 2 s; communication comes first.
  for (const Case& c : {Case{0, {2, 2, 2, 2}}, Case{4, {2, 2, 2, 2}}, Case{2, {2, 2, 4, 4}}, Case{1, {4, 4, 6, 8}}}) {
    std::vector<SimRecording> recordings;
    for (int r = 0; r < 4; ++r) {
      SimHost rank(r);
      if (r < 2) {
        Stream& stream = rank.stream(tensor::StreamKind::comm);
        rank.open("dp[pp 0 tp 0]", {0, 1}, stream).all_reduce(rank.floats(2));
      } else {
        rank.work(rank.stream(), 2);
      }
      recordings.push_back(rank.record());
    }
    Simulation simulation(recordings);
    simulation.cluster.node.cores = c.cores;
    SCOPED_TRACE(c.cores);
    simulation.expect_ends(c.ends_s);
  }
}

TEST(SimRanks, OnlyTheReceiverOfATransferCopies) {
  SimHost a(0), b(1), c(2);
  a.channel(0, 1, a.stream(tensor::StreamKind::comm)).send(a.floats(2));
  b.channel(0, 1, b.stream(tensor::StreamKind::comm)).recv(b.floats(2));
  c.work(c.stream(), 2);
  Simulation simulation({a.record(), b.record(), c.record()});
  simulation.cluster.node.cores = 1;
  simulation.expect_ends({2, 2, 4});
}

}  // namespace
}  // namespace ms::comm
