// A stream of one device that waits for an event of another.
#include "tensor/event_gate.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tensor/cpu_device.h"

namespace ms::tensor {
namespace {

struct EventGates : testing::Test {
  CpuPool pool{{.workers = 2, .threads_per_op = 1}};
  MatmulCache matmuls;
  CpuDevice there{pool, matmuls}, here{pool, matmuls};
  std::unique_ptr<Stream> source = there.make_stream("source", StreamKind::compute);
  std::unique_ptr<Stream> behind = here.make_stream("behind", StreamKind::compute);
  std::shared_ptr<EventGate> gate = std::make_shared<EventGate>();

  CpuStream& on(const std::unique_ptr<Stream>& stream) { return dynamic_cast<CpuStream&>(*stream); }
};

TEST_F(EventGates, HoldsTheStreamUntilTheEventIsReached) {
  std::promise<void> released;
  std::atomic<bool> done = false, passed = false;
  on(source).call([&, released = released.get_future().share()] {
    released.wait();
    done = true;
  });
  const Event event = source->record();
  on(behind).submit_async(gate);
  on(behind).call([&] { passed = done.load(); });
  const Event last = behind->record();
  std::jthread opener([&] { gate->open_after(event); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // long enough to pass an open gate
  EXPECT_FALSE(last.ready());
  released.set_value();
  last.synchronize();
  EXPECT_TRUE(passed);
}

TEST_F(EventGates, MayOpenBeforeTheStreamArrives) {
  gate->open_after(source->record());
  on(behind).submit_async(gate);
  behind->synchronize();
}

TEST_F(EventGates, PropagatesTheCauseOfAPoisonedEvent) {
  on(source).call([] { throw Error("test.cause", Blame::gpu, "it broke"); });
  on(behind).submit_async(gate);
  const auto kind_of = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) { return std::string(error.kind()); }
    return std::string();
  };
  EXPECT_EQ(kind_of([&] { gate->open_after(source->record()); }), "test.cause");
  EXPECT_EQ(kind_of([&] { behind->synchronize(); }), "test.cause");
}

TEST_F(EventGates, MayBeGivenUpAndOpensOnce) {
  on(behind).submit_async(gate);
  gate->give_up();
  EXPECT_THROW(behind->synchronize(), Error);
  const auto open = std::make_shared<EventGate>();
  open->open_after(source->record());
  open->give_up();
  const std::unique_ptr<Stream> other = here.make_stream("other", StreamKind::compute);
  on(other).submit_async(open);
  other->synchronize();
}

}  // namespace
}  // namespace ms::tensor
