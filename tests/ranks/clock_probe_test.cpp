// Clock probes between threads that pretend to be nodes.
#include <thread>

#include "clock_probe_case.h"
#include "comm/thread_world.h"

namespace ms::comm::cases {
namespace {

using namespace std::chrono_literals;

void run_ranks(int size, const std::function<void(Rank&)>& body) {
  tensor::CpuPool pool(tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), size, size));
  tensor::MatmulCache matmuls;
  ThreadHub hub(size, 60s);
  std::vector<std::jthread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      tensor::CpuDevice device(pool, matmuls);
      const std::unique_ptr<World> world = hub.world(r);
      Rank rank(*world, device);
      try {
        body(rank);
        world->close();
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << r << ": " << error.what();
        world->abort(error);
      }
    });
  }
}

TEST(ClockProbe, TwoNodes) {
  run_ranks(2, [](Rank& rank) { probe_and_check(rank, 1); });
}
TEST(ClockProbe, NodesOfTwoRanks) {
  run_ranks(7, [](Rank& rank) { probe_and_check(rank, 2); });
}
TEST(ClockProbe, TreeOfThreeLevels) {
  run_ranks(40, [](Rank& rank) { probe_and_check(rank, 1); });
}
TEST(ClockProbe, SkipsSingleNodeRuns) {
  run_ranks(4, [](Rank& rank) {
    EXPECT_EQ(ClockProbe::group_count(rank.world()), 0);
    ClockProbe probe(rank.world(), rank.device(), 1);
    probe.round(0, 8);
    EXPECT_TRUE(probe.take().empty());
  });
}

// round() only issues: a node whose peer is late continues.
TEST(ClockProbe, RoundDoesNotWait) {
  run_ranks(2, [](Rank& rank) {
    PretendedNodes world(rank.world(), 1);
    const auto stream = rank.stream("meet");
    const auto both = world.open({"meet", 50, {0, 1}}, *stream);
    {
      ClockProbe probe(world, rank.device(), 1);
      if (rank.rank() == 1) probe.round(0, 3);
      EXPECT_TRUE(probe.take().empty());  // rank 0 begins its round after the barrier
      both->barrier();
      stream->synchronize();
      if (rank.rank() == 0) probe.round(0, 3);
    }
  });
}

}  // namespace
}  // namespace ms::comm::cases
