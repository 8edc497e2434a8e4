// CPU streams: order within, events between, parking instead of blocking, poison, arenas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tensor/cpu_device.h"

namespace ms::tensor {
namespace {

class Streams : public testing::Test {
 protected:
  CpuStream& make(const std::string& name, StreamKind kind = StreamKind::compute) {
    streams.push_back(device.make_stream(name, kind));
    return dynamic_cast<CpuStream&>(*streams.back());
  }
  CpuPool pool{{2, 1}};
  MatmulCache matmuls;
  CpuDevice device{pool, matmuls};
  std::vector<std::unique_ptr<Stream>> streams;
};

TEST_F(Streams, OpsOfAStreamRunInOrder) {
  auto memory = device.allocate(1 << 16, "test");
  Arena arena(*memory);
  const Tensor x = arena.take(DType::f32, 1, 1000), y = arena.take(DType::f32, 1, 1000);
  CpuStream& s = make("s");
  s.submit(Fill{.x = x, .value = 1});
  for (int i = 0; i < 10; ++i) {
    s.submit(Add{.y = y, .a = x, .b = x, .bias = {}});
    s.submit(Copy{.dst = x, .src = y});
  }
  s.synchronize();
  EXPECT_EQ(x.as<float>()[999], 1024.0F);
}

TEST_F(Streams, ManyStreamsWaitWithoutHoldingThreads) {
  // Far more waiting streams than workers; the stream that all of them wait for is issued last.
  std::atomic<int> order = 0;
  CpuStream& last = make("last");
  auto gate = std::make_shared<std::atomic<bool>>(false);
  struct Gate final : AsyncTask {
    explicit Gate(std::shared_ptr<std::atomic<bool>> o) : open(std::move(o)) {}
    bool step(const CpuWaker& waker) override {
      if (*open) return true;
      std::thread([w = waker, o = open] {
        *o = true;
        w.wake();
      }).detach();
      return false;
    }
    void cancel(const Error&) noexcept override {}
    std::shared_ptr<std::atomic<bool>> open;
  };
  last.submit_async(std::make_shared<Gate>(gate));
  const Event opened = last.record();
  for (int i = 0; i < 50; ++i) {
    CpuStream& s = make("s" + std::to_string(i), i % 2 ? StreamKind::comm : StreamKind::compute);
    s.wait(opened);
    s.call([&] { ++order; });
  }
  for (auto& s : streams) s->synchronize();
  EXPECT_EQ(order, 50);
}

TEST_F(Streams, AChainOfEventsThroughManyStreams) {
  std::vector<int> seen;
  Event previous;
  for (int i = 0; i < 100; ++i) {
    CpuStream& s = make("s" + std::to_string(i), i % 3 ? StreamKind::comm : StreamKind::compute);
    if (previous) s.wait(previous);
    s.call([&seen, i] { seen.push_back(i); });
    previous = s.record();
  }
  previous.synchronize();
  ASSERT_EQ(seen.size(), 100U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST_F(Streams, AFailurePoisonsTheStreamAndItsWaiters) {
  CpuStream& a = make("a");
  CpuStream& b = make("b");
  bool ran = false;
  std::string cancelled;
  struct Task final : AsyncTask {
    explicit Task(std::string& t) : text(t) {}
    bool step(const CpuWaker&) override { return true; }
    void cancel(const Error& cause) noexcept override { text = cause.message(); }
    std::string& text;
  };
  a.call([] { throw Error("test.broken", Blame::gpu, "the cause"); });
  b.wait(a.record());
  b.call([&] { ran = true; });
  b.submit_async(std::make_shared<Task>(cancelled));
  try {
    b.synchronize();
    FAIL() << "a poisoned stream synchronized";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "test.broken");
    EXPECT_EQ(error.blame(), Blame::gpu);
  }
  EXPECT_FALSE(ran);
  EXPECT_EQ(cancelled, "the cause");
  EXPECT_THROW(a.synchronize(), Error);
}

TEST_F(Streams, RefusesToWaitForAnUnrecordedEvent) {
  CpuStream& s = make("s");
  EXPECT_DEATH(s.wait(Event()), "never recorded");
}

TEST_F(Streams, TheRaceCheckSeesOps) {
  device.races().enable(true);
  auto memory = device.allocate(1 << 12, "test");
  Arena arena(*memory);
  const Tensor x = arena.take(DType::f32, 1, 16);
  CpuStream& a = make("a");
  CpuStream& b = make("b");
  a.submit(Fill{.x = x});
  EXPECT_DEATH(b.submit(Fill{.x = x}), "race: fill writes");
  b.wait(a.record());
  b.submit(Fill{.x = x});
  b.synchronize();
  a.submit(Fill{.x = x});
  a.synchronize();
}

TEST_F(Streams, OpSecondsAreCounted) {
  auto memory = device.allocate(1 << 20, "test");
  Arena arena(*memory);
  const Tensor x = arena.take(DType::f32, 1, 100000);
  CpuStream& s = make("s");
  s.submit(Fill{.x = x});
  s.synchronize();
  const auto seconds = device.op_seconds();
  EXPECT_GT(seconds[static_cast<std::size_t>(OpClass::elementwise)], 0.0);
  EXPECT_EQ(seconds[static_cast<std::size_t>(OpClass::matmul)], 0.0);
}

TEST(Pool, SizeFollowsCoresAndRanks) {
  struct Row {
    int cores, here, node, workers, threads;
  };
  for (const Row& row : {Row{2, 1, 1, 1, 2}, Row{2, 8, 8, 2, 1}, Row{2, 1, 8, 1, 1}, Row{16, 4, 4, 4, 4},
                         Row{16, 1, 2, 1, 8}, Row{1, 1, 1, 1, 1}}) {
    const CpuPool::Size size = CpuPool::size_for(row.cores, row.here, row.node);
    EXPECT_EQ(size.workers, row.workers) << row.cores << " cores, " << row.here << " ranks";
    EXPECT_EQ(size.threads_per_op, row.threads) << row.cores << " cores, " << row.here << " ranks";
  }
}

// run.cpu_threads goes before OMP_NUM_THREADS, and that before the cores; the ranks of a process share what it has.
TEST(Pool, ThreadsAreThoseAsked) {
  struct Row {
    std::int64_t key;
    const char* omp;
    int asked;
  };
  for (const Row& row : {Row{0, nullptr, 0}, Row{3, nullptr, 3}, Row{0, "2", 2}, Row{3, "2", 3}, Row{0, "4,2", 4},
                         Row{0, "1024", 1024}}) {
    EXPECT_EQ(CpuPool::threads_asked(row.key, row.omp), row.asked);
  }
  for (const char* bad : {"", "0", "-1", "two", "2x", "1025", "99999999999"}) {
    try {
      CpuPool::threads_asked(0, bad);
      ADD_FAILURE() << "'" << bad << "' is taken";
    } catch (const Error& error) { EXPECT_EQ(error.kind(), "run.cpu_threads"); }
    EXPECT_EQ(CpuPool::threads_asked(1, bad), 1) << "the key goes before";
  }
  const CpuPool::Size alone = CpuPool::size_for(16, 1, 8, 3), shared = CpuPool::size_for(2, 4, 4, 8);
  EXPECT_EQ(alone.workers, 1);
  EXPECT_EQ(alone.threads_per_op, 3);
  EXPECT_EQ(shared.workers, 4);
  EXPECT_EQ(shared.threads_per_op, 2);
}

TEST(ArenaTest, MeasuringAndRealArenasAgree) {
  CpuPool pool({1, 1});
  MatmulCache matmuls;
  CpuDevice device(pool, matmuls);
  auto carve = [](Arena& arena) {
    arena.take(DType::bf16, 3, 5);
    Arena inner = arena.take_arena(1000);
    inner.take(DType::f64, 1, 1);
    return arena.take(DType::f32, 7, 7);
  };
  Arena plan = Arena::measuring();
  carve(plan);
  auto memory = device.allocate(static_cast<std::size_t>(plan.used_bytes()), "test");
  Arena arena(*memory);
  const Tensor last = carve(arena);
  EXPECT_EQ(arena.used_bytes(), plan.used_bytes());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(last.data) % Arena::kAlignment, 0U);
  EXPECT_LE(last.data + last.size_bytes(), memory->data() + memory->size_bytes());
  EXPECT_DEATH(arena.take(DType::f32, 1, 1000), "full");
}

}  // namespace
}  // namespace ms::tensor
