// Streams, events, communication and shared links, checked against virtual times computed by hand.
#include "comm/sim_solve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "sim_programs.h"

namespace ms::comm {
namespace {

using tensor::Stream;
using tensor::StreamKind;
using ::testing::HasSubstr;

TEST(SimSolve, OpsOfAStreamRunOneAfterTheOther) {
  SimHost rank(0);
  Stream &compute = rank.stream(), &comm = rank.stream(StreamKind::comm);
  rank.work(compute, 2), rank.work(compute, 3), rank.work(compute, 2);
  rank.work(comm, 1);
  Simulation simulation({rank.record()});
  EXPECT_EQ(simulation.recordings[0].program.ops.size(), 3U) << "each different one once";
  const SimResult result = simulation.expect_ends({7});
  EXPECT_DOUBLE_EQ(result.ranks[0].busy_s(), 7) << "what a comm stream does is not computing";
  EXPECT_DOUBLE_EQ(result.ranks[0].class_seconds[static_cast<std::size_t>(tensor::OpClass::elementwise)], 7);
  EXPECT_EQ(result.comm_ops, 0U);
}

TEST(SimSolve, StreamsOverlapAndEventsOrderThem) {
  struct Case {
    bool waits, waiter_is_made_first;
    int before_s;  // what the one that waits does until then
    double end_s;
  };
  // One stream works 3 s, the other 4 s at the end: concurrently or after it.
  for (const Case& c :
       {Case{false, false, 0, 4}, {true, false, 0, 7}, {true, true, 0, 7}, {true, true, 5, 9}, {true, false, 5, 9}}) {
    SimHost rank(0);
    Stream &one = rank.stream(), &two = rank.stream();
    Stream &waiter = c.waiter_is_made_first ? one : two, &other = c.waiter_is_made_first ? two : one;
    rank.work(other, 3);
    const tensor::Event event = other.record();
    rank.work(other, 1);
    rank.work(waiter, c.before_s);
    if (c.waits) waiter.wait(event);
    rank.work(waiter, 4);
    Simulation({rank.record()}).expect_ends({c.end_s});
  }
}

TEST(SimSolve, EventsOfAnEarlierProgramAreDone) {
  SimHost rank(0);
  Stream &one = rank.stream(), &two = rank.stream();
  rank.work(one, 9);
  const tensor::Event before = one.record();
  Simulation({rank.record()}).expect_ends({9});
  rank.work(one, 2);
  const tensor::Event now = one.record();
  two.wait(before), two.wait(now);
  rank.work(two, 3);
  Simulation({rank.record()}).expect_ends({5});
}

TEST(SimSolve, UsesTheRooflineAndRankSlowness) {
  SimHost rank(0);
  rank.work(rank.stream(), 3);
  Simulation simulation({rank.record()});
  simulation.setup.ranks[0].slowness = 1.5;
  simulation.expect_ends({4.5});
  simulation.setup.seconds = nullptr;
  simulation.cluster.device.memory_gb_s = 4e-9;
  simulation.cluster.device.launch_s = 1;
  simulation.expect_ends({1.5 * (3 + 1)});
}

TEST(SimSolve, SendCompletesOnlyWhenMatched) {
  SimHost a(0), b(1);
  Stream &sends = a.stream(), &receives = b.stream();
  Communicator &out = a.channel(0, 1, sends), &in = b.channel(0, 1, receives);
  out.send(a.floats(1)), a.work(sends, 1);
  out.send(a.floats(2));
  b.work(receives, 5), in.recv(b.floats(1));  // 5 to 6
  b.work(receives, 4), in.recv(b.floats(2));  // 10 to 12
  b.work(receives, 1);
  EXPECT_EQ(Simulation({a.record(), b.record()}).expect_ends({12, 13}).comm_ops, 2U);
}

TEST(SimSolve, AllReduceWaitsForTheLastMember) {
  std::vector<SimRecording> recordings;
  for (int r = 0; r < 4; ++r) {
    SimHost rank(r);
    Stream& stream = rank.stream();
    rank.work(stream, 1 + 2 * r);
    rank.open("tp[dp 0]", {0, 1, 2, 3}, stream).all_reduce(rank.floats(4));  // 2 x 3 parts of one float
    recordings.push_back(rank.record());
  }
  EXPECT_EQ(Simulation(recordings).expect_ends({13, 13, 13, 13}).comm_ops, 1U);
}

TEST(SimSolve, UsesLatencyAndRateOfThePath) {
  struct Case {
    int peer;
    double send_s, all_reduce_s;
  };
  // On 4 floats; an all-reduce of two ranks transfers each half twice, in two hops.
  for (const Case& c : {Case{1, 0.5 + 4, 1 + 4}, {4, 1 + 8, 2 + 8}, {8, 2 + 16, 4 + 16}}) {
    for (const bool sends : {true, false}) {
      SimHost a(0), b(c.peer);
      Communicator &here = a.channel(0, c.peer, a.stream()), &there = b.channel(0, c.peer, b.stream());
      if (sends) {
        here.send(a.floats(4)), there.recv(b.floats(4));
      } else {
        here.all_reduce(a.floats(4)), there.all_reduce(b.floats(4));
      }
      Simulation simulation({a.record(), b.record()});
      simulation.cluster.node.latency_s = 0.5;
      simulation.cluster.network.latency_s = 1;
      simulation.cluster.network.spine_latency_s = 2;
      const double end_s = sends ? c.send_s : c.all_reduce_s;
      simulation.expect_ends({end_s, end_s});
    }
  }
}

TEST(SimSolve, OperationsShareTheLinksOfARank) {
  struct Sent {
    int from, to, floats, after_s;
  };
  struct Case {
    const char* what;
    std::vector<Sent> sent;
    std::map<int, double> ends_s;  // by rank
  };
  const Case cases[] = {
      {"two out of one rank", {{0, 1, 4, 0}, {0, 2, 4, 0}}, {{0, 8}, {1, 8}, {2, 8}}},
      {"two into one rank", {{0, 2, 4, 0}, {1, 2, 4, 0}}, {{0, 8}, {1, 8}, {2, 8}}},
      {"one comes later", {{0, 1, 4, 0}, {0, 2, 4, 2}}, {{0, 8}, {1, 6}, {2, 8}}},
      {"both directions", {{0, 1, 4, 0}, {1, 0, 4, 0}}, {{0, 4}, {1, 4}}},
      {"two pairs", {{0, 1, 4, 0}, {2, 3, 4, 0}}, {{0, 4}, {1, 4}, {2, 4}, {3, 4}}},
      {"node and network", {{0, 1, 4, 0}, {0, 4, 4, 0}}, {{0, 8}, {1, 4}, {4, 8}}},
      // 2 and 4 s alone: half as fast until the first has ended, whichever switches they pass.
      {"leaf and spine are one card", {{0, 4, 1, 0}, {0, 8, 1, 0}}, {{0, 6}, {4, 4}, {8, 6}}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    std::map<int, std::unique_ptr<SimHost>> ranks;
    for (const auto& [rank, end] : c.ends_s) ranks[rank] = std::make_unique<SimHost>(rank);
    for (const Sent& sent : c.sent) {
      SimHost &from = *ranks.at(sent.from), &to = *ranks.at(sent.to);
      Stream& stream = from.stream();
      from.work(stream, sent.after_s);
      from.channel(sent.from, sent.to, stream).send(from.floats(sent.floats));
      to.channel(sent.from, sent.to, to.stream()).recv(to.floats(sent.floats));
    }
    std::vector<SimRecording> recordings;
    std::vector<double> ends;
    for (const auto& [rank, end] : c.ends_s) recordings.push_back(ranks[rank]->record()), ends.push_back(end);
    Simulation(recordings).expect_ends(ends);
  }
}

TEST(SimSolve, SlowLinks) {
  for (const std::size_t slow : {0U, 1U}) {
    SimHost a(0), b(1);
    a.channel(0, 1, a.stream()).send(a.floats(4));
    Stream& stream = b.stream();
    b.work(stream, 2), b.channel(0, 1, stream).recv(b.floats(4));
    Simulation simulation({a.record(), b.record()});
    simulation.setup.ranks[slow].link_slowness = 3;
    simulation.expect_ends({2 + 12, 2 + 12});
  }
}

TEST(SimSolve, DetectsDeadlocks) {
  // What rank 1 issues besides rank 0, which receives from it and continues.
  struct Case {
    const char* what;
    void (*issue)(SimHost& rank, Stream& stream);
    std::string_view said;
  };
  const Case cases[] = {
      {"nobody sends", [](SimHost&, Stream&) {}, "rank 0"},
      {"a receive too few", [](SimHost& rank, Stream& s) { rank.channel(1, 0, s).send(rank.floats(1)); }, "rank 0"},
      {"both wait for the other",
       [](SimHost& rank, Stream& s) {
         rank.channel(0, 1, s).recv(rank.floats(1));
         Communicator& out = rank.channel(1, 0, s);
         out.send(rank.floats(1)), out.send(rank.floats(1));
       },
       "a communication operation"},
  };
  for (const Case& c : cases) {
    SimHost a(0), b(1);
    Stream &stream = a.stream(), &behind = a.stream();
    Communicator &in = a.channel(1, 0, stream), &out = a.channel(0, 1, stream);
    in.recv(a.floats(1)), in.recv(a.floats(1)), out.send(a.floats(1));
    behind.wait(stream.record());
    c.issue(b, b.stream());
    const Simulation simulation({a.record(), b.record()});
    try {
      solve(simulation.setup);
      ADD_FAILURE() << c.what;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "sim.deadlock") << c.what;
      EXPECT_EQ(error.blame(), Blame::bug) << c.what;
      EXPECT_THAT(error.message(), HasSubstr(c.said)) << c.what;
    }
  }
}

TEST(SimSolve, FreeGroupsStillSynchronise) {
  std::vector<SimRecording> recordings;
  for (int r = 0; r < 2; ++r) {
    SimHost rank(r);
    Stream& stream = rank.stream();
    rank.work(stream, 2 + 3 * r);
    rank.open("dp[tp 0]", {0, 1}, stream).all_reduce(rank.floats(4));
    rank.open("tp[dp 0]", {0, 1}, stream).all_reduce(rank.floats(2));
    recordings.push_back(rank.record());
  }
  Simulation simulation(recordings);
  simulation.cluster.node.latency_s = 0.25;
  simulation.expect_ends({5 + 4.5 + 2.5, 5 + 4.5 + 2.5});
  simulation.setup.is_free = [](const Group& group) { return group.name.starts_with("dp"); };
  simulation.expect_ends({5 + 2.5, 5 + 2.5});
}

TEST(SimSolve, RefusesMissingLinks) {
  for (const bool issues : {true, false}) {
    SimHost a(0), b(4);
    Communicator &here = a.channel(0, 4, a.stream()), &there = b.channel(0, 4, b.stream());
    if (issues) here.send(a.floats(1)), there.recv(b.floats(1));
    Simulation simulation({a.record(), b.record()});
    simulation.cluster.network.gb_s = 0;
    try {
      solve(simulation.setup);
      EXPECT_FALSE(issues);
    } catch (const Error& error) {
      EXPECT_TRUE(issues) << "nothing passes it";
      EXPECT_EQ(error.kind(), "cluster.link");
      EXPECT_THAT(error.message(), HasSubstr("pp.fwd[tp 0] 0>4"));
    }
  }
}

}  // namespace
}  // namespace ms::comm
