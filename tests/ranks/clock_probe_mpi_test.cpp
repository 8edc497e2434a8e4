// Clock probes between processes, under mpirun.
#include <cstdio>
#include <cstdlib>

#include "base/exit.h"
#include "clock_probe_case.h"
#include "comm/mpi_world.h"

namespace ms::comm::cases {
namespace {

World*& the_world() {
  static World* world = nullptr;
  return world;
}

TEST(ClockProbe, MeasuresOffsetsBetweenProcesses) {
  World& world = *the_world();
  tensor::CpuPool pool(tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), 1, world.ranks_on_node()));
  tensor::MatmulCache matmuls;
  int next_group = 0;
  for (const int ranks_a_node : {1, 2}) {
    // A separate device for each probe: the race check does not know that the first probe's memory was freed.
    tensor::CpuDevice device(pool, matmuls);
    Rank rank(world, device);
    if (next_group > 0) rank.start_groups_at(next_group);
    probe_and_check(rank, ranks_a_node);
    next_group = rank.next_group();
  }
}

}  // namespace
}  // namespace ms::comm::cases

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    const auto world = ms::comm::make_mpi_world(std::chrono::seconds(20));
    ms::comm::cases::the_world() = world.get();
    const int failed = RUN_ALL_TESTS();
    world->close();
    return failed;
  } catch (const ms::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::fflush(nullptr);
    std::quick_exit(static_cast<int>(ms::exit_code(error.blame())));
  }
}
