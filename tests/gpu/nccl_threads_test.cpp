// Ranks as threads, each with a GPU of its own: their communicators are NCCL's, and an operation that does not end
// fails by its deadline on every rank. Skips with fewer than two GPUs.
#include <gtest/gtest.h>

#include <thread>

#include "comm/thread_world.h"
#include "tensor/cuda_plugin.h"

namespace ms::comm {
namespace {

using namespace std::chrono_literals;
using tensor::DType;

int gpus() {
  try {
    return tensor::cuda_device_count();
  } catch (const Error&) { return 0; }
}

// Runs `body` on every rank of a hub; the world is stopped by what one throws. Returns the first cause.
template <class F>
std::optional<World::Cause> on_ranks(int ranks, std::chrono::milliseconds deadline, F&& body) {
  ThreadHub hub(ranks, deadline);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<World> world = hub.world(rank);
      try {
        const std::unique_ptr<tensor::Device> device = tensor::make_cuda_device(rank);
        body(*world, *device);
        world->close();
      } catch (const Error& error) { world->abort(error); }
    });
  }
  threads.clear();
  return hub.world(0)->cause();
}

Group everybody(int ranks) {
  Group group{"all", 0, {}};
  for (int rank = 0; rank < ranks; ++rank) group.ranks.push_back(rank);
  return group;
}

TEST(NcclThreads, SumOverTheirGpus) {
  const int ranks = gpus();
  if (ranks < 2) GTEST_SKIP() << "needs a GPU: two, for NCCL";
  std::vector<float> sums(static_cast<std::size_t>(ranks));
  const auto cause = on_ranks(ranks, 60s, [&](World& world, tensor::Device& device) {
    const auto memory = device.allocate(4 * 1000, "x"), host = device.allocate_host(4 * 1000, "x");
    const auto stream = device.make_stream("test", tensor::StreamKind::comm);
    const auto all = world.open(everybody(ranks), *stream);
    const Tensor x{memory->data(), 1, 1000, 1000, DType::f32}, here{host->data(), 1, 1000, 1000, DType::f32};
    stream->submit(tensor::Fill{.x = x, .value = static_cast<float>(world.rank() + 1)});
    all->all_reduce(x);
    stream->submit(tensor::Copy{.dst = here, .src = x});
    stream->synchronize();
    sums[static_cast<std::size_t>(world.rank())] = here.as<float>()[999];
  });
  EXPECT_FALSE(cause) << cause->error.message();
  for (const float sum : sums) EXPECT_EQ(sum, static_cast<float>(ranks * (ranks + 1) / 2));
}

TEST(NcclThreads, NameARankThatDoesNotCome) {
  const int ranks = gpus();
  if (ranks < 2) GTEST_SKIP() << "needs a GPU: two, for NCCL";
  const auto cause = on_ranks(ranks, 2s, [&](World& world, tensor::Device& device) {
    const auto memory = device.allocate(4 * 1000, "x");
    const auto stream = device.make_stream("test", tensor::StreamKind::comm);
    const auto all = world.open(everybody(ranks), *stream);
    const Tensor x{memory->data(), 1, 1000, 1000, DType::f32};
    if (world.rank() != 1) all->all_reduce(x);
    if (world.rank() == 1) {
      while (!world.cause()) std::this_thread::sleep_for(10ms);
    }
    stream->synchronize();
  });
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->error.kind(), "comm.deadline") << cause->error.message();
  EXPECT_EQ(cause->error.rank(), 1) << cause->error.message();
}

}  // namespace
}  // namespace ms::comm
