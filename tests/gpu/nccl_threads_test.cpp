// Ranks as threads, each with a GPU of its own: their communicators are NCCL's, and an operation that does not end
// fails by its deadline on every rank. Skips with fewer than two GPUs.
#include <gtest/gtest.h>

#include <atomic>
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

// One row for each member's one expert goes there and is multiplied, behind a receive whose sender waits until the host
// of rank 0 has issued all that.
TEST(NcclThreads, ExchangeRowsWhoseOffsetsTheHostHas) {
  const int ranks = gpus();
  if (ranks < 2) GTEST_SKIP() << "needs a GPU: two, for NCCL";
  constexpr std::int64_t kCols = 8;
  std::atomic<bool> issued = false;
  std::vector<float> rows(static_cast<std::size_t>(ranks * ranks));
  const auto cause = on_ranks(ranks, 30s, [&](World& world, tensor::Device& device) {
    const int me = world.rank();
    const auto memory = device.allocate(1 << 16, "x"), host = device.allocate_host(1 << 16, "x");
    tensor::Arena there(*memory), here(*host);
    const auto take = [&](DType dtype, std::int64_t n, std::int64_t cols) { return there.take(dtype, n, cols); };
    const Tensor in = take(DType::f32, ranks, kCols), out = take(DType::f32, ranks, kCols),
                 weights = take(DType::f32, kCols, kCols), c = take(DType::f32, ranks, kCols),
                 offsets = take(DType::i32, ranks, ranks + 1), word = take(DType::f32, 1, 1),
                 numbers = here.take(DType::i32, ranks, ranks + 1), result = here.take(DType::f32, ranks, kCols);
    const auto compute = device.make_stream("compute", tensor::StreamKind::compute),
               late = device.make_stream("late", tensor::StreamKind::comm),
               comm = device.make_stream("all", tensor::StreamKind::comm);
    const auto all = world.open(everybody(ranks), *comm);
    std::unique_ptr<Communicator> pair;
    if (me < 2) pair = world.open({"pair", 1, {1, 0}}, *late);
    if (pair) pair->connect();
    for (std::int64_t i = 0; i < numbers.numel(); ++i)
      numbers.as<std::int32_t>()[i] = static_cast<int>(i % (ranks + 1));
    compute->submit(tensor::Copy{offsets, numbers});
    compute->submit(tensor::Fill{in, static_cast<float>(me + 1)});
    compute->submit(tensor::Fill{weights, 1.0F});
    compute->copy_to_host(offsets);
    comm->wait(compute->record());
    if (me == 0) {
      pair->recv(word);
      comm->wait(late->record());
    }
    all->all_to_all(out, in, offsets, false);
    compute->wait(comm->record());
    tensor::GroupedMatmul matmul{.c = c, .a = out, .b = weights, .offsets = offsets, .transpose_b = true};
    matmul.rank = me;
    compute->submit(matmul);
    if (me == 0) issued = true;
    if (me == 1) {
      while (!issued && !world.cause()) std::this_thread::sleep_for(1ms);
      pair->send(word);
    }
    compute->submit(tensor::Copy{result, c});
    compute->synchronize();
    for (int from = 0; from < ranks; ++from)
      rows[static_cast<std::size_t>(me * ranks + from)] = result.as<float>()[from * kCols];
  });
  EXPECT_FALSE(cause) << cause->error.message();
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(rows[i], static_cast<float>(kCols) * static_cast<float>(i % static_cast<std::size_t>(ranks) + 1)) << i;
}

}  // namespace
}  // namespace ms::comm
