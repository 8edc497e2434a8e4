// The conformance bodies over threads, and failures there: a rank is late, disagrees, aborts or has a poisoned stream.
#include <atomic>
#include <ctime>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/thread_world.h"
#include "conformance.h"

namespace ms::comm::cases {
namespace {

using namespace std::chrono_literals;
using tensor::DType;

// Runs the body on `size` threads, each a rank with its own device. An exception fails the test and stops the other
// ranks.
void run_ranks(int size, std::chrono::milliseconds deadline, const std::function<void(Rank&)>& body, Link link = {}) {
  tensor::CpuPool pool(tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), size, size));
  tensor::MatmulCache matmuls;
  ThreadHub hub(size, deadline, link);
  std::vector<std::jthread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      tensor::CpuDevice device(pool, matmuls);
      const std::unique_ptr<World> world = hub.world(r);
      Rank rank(*world, device);
      try {
        body(rank);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << r << ": " << error.what();
        world->abort(error);
      }
    });
  }
}

class Conformance : public ::testing::TestWithParam<std::tuple<Body, int>> {};

TEST_P(Conformance, Threads) {
  const auto& [body, size] = GetParam();
  run_ranks(size, 60s, [&body = body](Rank& rank) {
    body.run(rank);
    rank.world().close();
  });
}

INSTANTIATE_TEST_SUITE_P(All, Conformance,
                         ::testing::Combine(::testing::ValuesIn(conformance_bodies()), ::testing::Values(1, 2, 4, 8)),
                         [](const auto& row) {
                           return fmt::format("{}_{}", std::get<0>(row.param).name, std::get<1>(row.param));
                         });

// Transfers that take time change no result.
TEST_P(Conformance, SlowLink) {
  const auto& [body, size] = GetParam();
  run_ranks(size, 60s,
            [&body = body](Rank& rank) {
              body.run(rank);
              rank.world().close();
            },
            {.latency_s = 50e-6, .bytes_per_s = 1e9});
}

TEST(Threads, NoRankPassesABarrierEarly) {
  std::atomic<int> arrived = 0;
  run_ranks(4, 60s, [&](Rank& rank) {
    const auto stream = rank.stream("barrier");
    const auto comm = rank.world().open(rank.all_ranks_group("world"), *stream);
    auto& cpu_stream = dynamic_cast<tensor::CpuStream&>(*stream);
    for (int round = 1; round <= 50; ++round) {
      cpu_stream.call([&] { ++arrived; });
      comm->barrier();
      cpu_stream.call([&, round] { EXPECT_GE(arrived.load(), 4 * round); });
    }
    stream->synchronize();
  });
}

TEST(Threads, DeadlineNamesTheMissingRanks) {
  run_ranks(4, 150ms, [](Rank& rank) {
    const auto stream = rank.stream("comm");
    const auto comm = rank.world().open(rank.all_ranks_group("tp[dp 0 pp 1]"), *stream);
    const Tensor x = rank.tensor(DType::f32, 1024);
    comm->all_reduce(x);
    comm->barrier();
    if (rank.rank() % 2 == 0) comm->all_reduce(x);
    const std::optional<Error> error = failure_of(*stream);
    if (rank.rank() % 2 == 0) {
      expect_error(error, "comm.deadline",
                   " s for ranks 1, 3 in all_reduce of 4096 bytes, operation 2 of group tp[dp 0 pp 1]");
      EXPECT_EQ(error->blame(), Blame::peer);
      EXPECT_EQ(error->operation(), "all_reduce of 4096 bytes, operation 2 of group tp[dp 0 pp 1]");
      EXPECT_FALSE(error->rank()) << "two are missing";
    } else {
      EXPECT_FALSE(error);
      while (!rank.world().cause()) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(rank.world().cause()->error.kind(), "comm.deadline");
      comm->all_reduce(x);  // too late
      expect_error(failure_of(*stream), "comm.", "s for ranks 1, 3 in all_reduce");
    }
  });
}

// Rank 0 begins to wait first, for rank 1, which waits for rank 2, the rank at fault.
TEST(Threads, DeadlineBlamesTheEndOfTheChainOfWaits) {
  run_ranks(3, 400ms, [](Rank& rank) {
    const auto stream = rank.stream("comm");
    const Group a = rank.group("a", {0, 1}), b = rank.group("b", {1, 2});
    const auto first = rank.rank() < 2 ? rank.world().open(a, *stream) : nullptr;
    const auto second = rank.rank() > 0 ? rank.world().open(b, *stream) : nullptr;
    if (rank.rank() == 1) {
      std::this_thread::sleep_for(50ms);
      second->barrier();
    }
    if (first) first->barrier();
    while (!rank.world().cause()) std::this_thread::sleep_for(1ms);
    const Error error = rank.world().cause()->error;
    EXPECT_EQ(error.rank(), 2);
    EXPECT_EQ(error.operation(), "barrier, operation 0 of group b");
    expect_error(error, "comm.deadline",
                 " s for rank 1 in barrier, operation 0 of group a; rank 1 waits for rank 2 in barrier, operation 0 of "
                 "group b; rank 2 waits for no other rank and had not issued the operation");
    EXPECT_EQ(failure_of(*stream).has_value(), rank.rank() < 2);
  });
}

// What was learned ends the wait for a rank that does not come, but not that for one that is busy.
TEST(Threads, LearnedDeadlinesEndNoWaitForABusyRank) {
  run_ranks(2, 1h, [](Rank& rank) {
    const auto stream = rank.stream("comm");
    const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
    if (rank.rank() == 1) {
      const Patience::Busy busy(rank.world().patience(), "waits for data");
      comm->barrier();
      stream->synchronize();
      std::this_thread::sleep_for(1500ms);
      comm->barrier();
      stream->synchronize();
    } else {
      comm->barrier();
      stream->synchronize();
      rank.world().patience().set(100ms);
      comm->barrier();
      EXPECT_FALSE(failure_of(*stream));
      comm->barrier();  // the other is not busy any more, and does not come
    }
    while (!rank.world().cause()) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(rank.world().cause()->error.kind(), "comm.deadline");
    EXPECT_EQ(rank.world().cause()->error.rank(), 1);
    EXPECT_EQ(failure_of(*stream).has_value(), rank.rank() == 0);
  });
}

struct Mismatch {
  const char* name;
  void (*issue)(Communicator&, Rank&, bool odd);
  const char* even_text;
  const char* odd_text;
};
class Mismatches : public ::testing::TestWithParam<Mismatch> {};

TEST_P(Mismatches, NamesBothOperations) {
  run_ranks(2, 20s, [](Rank& rank) {
    const auto stream = rank.stream("comm");
    const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
    comm->barrier();
    GetParam().issue(*comm, rank, rank.rank() == 1);
    const std::optional<Error> error = failure_of(*stream);
    expect_error(error, "comm.mismatch", GetParam().even_text);
    expect_error(error, "comm.mismatch", GetParam().odd_text);
    expect_error(error, "comm.mismatch", " as operation 1 of group dp, rank ");
    EXPECT_TRUE(error->operation().ends_with("operation 1 of group dp")) << error->operation();
    EXPECT_EQ(error->blame(), Blame::bug);
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, Mismatches,
    ::testing::Values(Mismatch{"kind",
                               [](Communicator& comm, Rank& rank, bool odd) {
                                 const Tensor big = rank.tensor(DType::f32, 16), small = rank.tensor(DType::f32, 8);
                                 odd ? comm.reduce_scatter(small, big) : comm.all_gather(big, small);
                               },
                               "all_gather of 64 bytes (f32)", "reduce_scatter of 64 bytes (f32 sum)"},
                      Mismatch{"size",
                               [](Communicator& comm, Rank& rank, bool odd) {
                                 comm.all_reduce(rank.tensor(DType::f32, odd ? 7 : 8));
                               },
                               "all_reduce of 32 bytes", "all_reduce of 28 bytes"},
                      Mismatch{"type",
                               [](Communicator& comm, Rank& rank, bool odd) {
                                 comm.all_reduce(rank.tensor(odd ? DType::bf16 : DType::f32, odd ? 8 : 4));
                               },
                               "(f32 sum)", "(bf16 sum)"},
                      Mismatch{"root",
                               [](Communicator& comm, Rank& rank, bool odd) {
                                 comm.broadcast(rank.tensor(DType::f32, 4), odd ? 1 : 0);
                               },
                               "from member 0", "from member 1"},
                      Mismatch{"reduction",
                               [](Communicator& comm, Rank& rank, bool odd) {
                                 comm.all_reduce(rank.tensor(DType::f32, 4), odd ? ReduceKind::max : ReduceKind::sum);
                               },
                               "(f32 sum)", "(f32 maximum)"},
                      Mismatch{"direction",
                               [](Communicator& comm, Rank& rank, bool odd) {
                                 comm.send(rank.tensor(odd ? DType::i32 : DType::f32, 4));
                               },
                               "send of 16 bytes (f32)", "send of 16 bytes (i32)"}),
    [](const auto& row) { return row.param.name; });

TEST(Threads, AbortStopsAllRanksWithTheFirstCause) {
  run_ranks(4, 60s, [](Rank& rank) {
    const auto stream = rank.stream("comm"), other = rank.stream("other");
    const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
    const auto later = rank.world().open(rank.all_ranks_group("tp"), *other);
    const Tensor x = rank.tensor(DType::f32, 100000);
    for (int k = 0; k < 3; ++k) comm->all_reduce(x);
    if (rank.rank() == 3) {  // from a thread unrelated to the streams
      std::jthread([&] {
        rank.world().abort(Error("storage.write", Blame::storage, "disk full", "make room"));
      }).join();
      rank.world().abort(Error("second", Blame::bug, "a consequence"));
    } else {
      comm->all_reduce(x);
    }
    if (rank.rank() != 3) {
      const std::optional<Error> error = failure_of(*stream);
      expect_error(error, "comm.peer_lost", "rank 3 stopped: disk full");
      EXPECT_EQ(error->blame(), Blame::peer);
      EXPECT_EQ(error->hint(), "make room");
      EXPECT_EQ(error->rank(), 3);
    }
    later->barrier();
    expect_error(failure_of(*other), rank.rank() == 3 ? "storage.write" : "comm.peer_lost", "disk full");
    EXPECT_EQ(rank.world().cause()->rank, 3);
    EXPECT_EQ(rank.world().cause()->error.kind(), "storage.write");
    try {
      rank.world().store().get(0, "nothing", 60s);
      ADD_FAILURE() << "a value from nowhere";
    } catch (const Error& error) {
      expect_error(error, rank.rank() == 3 ? "storage.write" : "comm.peer_lost", "disk full");
    }
  });
}

TEST(Threads, PoisonedStreamStopsAllRanks) {
  run_ranks(4, 60s, [](Rank& rank) {
    const auto stream = rank.stream("comm");
    const auto compute = rank.device().make_stream("compute", tensor::StreamKind::compute);
    const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
    if (rank.rank() == 2) {
      dynamic_cast<tensor::CpuStream&>(*compute).call(
          [] { throw Error("tensor.op", Blame::node, "the multiplier is broken"); });
    }
    stream->wait(compute->record());
    comm->all_reduce(rank.tensor(DType::f32, 10));
    const std::optional<Error> error = failure_of(*stream);
    if (rank.rank() == 2) {
      expect_error(error, "tensor.op", "the multiplier is broken");
    } else {
      expect_error(error, "comm.peer_lost", "rank 2 stopped: the multiplier is broken");
    }
    EXPECT_EQ(rank.world().cause()->rank, 2);
  });
}

// Aborts during large operations: nothing hangs, and no rank touches freed memory.
TEST(Threads, AbortAtAnyMoment) {
  for (int round = 0; round < 30; ++round) {
    run_ranks(4, 60s, [round](Rank& rank) {
      const auto stream = rank.stream("comm");
      const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
      {
        Rank memory(rank.world(), rank.device());
        const Tensor x = memory.tensor(DType::f32, 50000), y = memory.tensor(DType::f32, 200000);
        for (int k = 0; k < 20; ++k) {
          comm->all_reduce(x);
          comm->all_gather(y, x);
          comm->broadcast(y, k % 4);
        }
        if (rank.rank() == round % 4) {
          std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
          rank.world().abort(Error("test", Blame::user, "enough"));
        }
        failure_of(*stream);  // an error or none, depending on timing
      }
      comm->barrier();
      expect_error(failure_of(*stream), rank.rank() == round % 4 ? "test" : "comm.peer_lost", "enough");
    });
  }
}

TEST(Threads, ClosingWaitsForAllAndNamesMissingRanks) {
  run_ranks(3, 100ms, [](Rank& rank) {
    if (rank.rank() == 1) return;
    try {
      rank.world().close();
      ADD_FAILURE() << "closed without rank 1";
    } catch (const Error& error) {
      expect_error(error, "comm.", "s for rank 1 in the closing of the world");
      EXPECT_EQ(error.rank(), 1);
      EXPECT_EQ(error.operation(), "the closing of the world");
    }
  });
}

double processor_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Operations of one communicator take the sum of their times, large and small ones alike, and almost no processor time.
TEST(SlowLink, OperationsOfAGroupRunOneAfterTheOther) {
  const auto begin = std::chrono::steady_clock::now();
  const double processor_before_s = processor_s();
  run_ranks(2, 60s,
            [](Rank& rank) {
              const auto stream = rank.stream("dp");
              const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
              const Tensor small = rank.tensor(DType::f32, 10), large = rank.tensor(DType::f32, 100'000);
              comm->barrier();                                                              // 0.1 s
              comm->all_reduce(large);                                                      // 0.1 + 0.4 s
              comm->all_gather(large, large.slice_cols(50'000 * rank.rank(), 50'000));      // 0.1 + 0.2 s
              rank.rank() == 0 ? comm->send(small) : comm->recv(small);                     // 0.1 s
              comm->reduce_scatter(large.slice_cols(50'000 * rank.rank(), 50'000), large);  // 0.1 + 0.2 s
              comm->broadcast(large, 1);                                                    // 0.1 + 0.4 s
              stream->synchronize();
            },
            {.latency_s = 0.1, .bytes_per_s = 1e6});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GE(seconds, 1.8);
  EXPECT_LT(processor_s() - processor_before_s, 0.5 * seconds) << "waiting burns processor time";
}

// Groups do not wait for each other, whichever was issued first.
TEST(SlowLink, GroupsAreIndependent) {
  std::mutex mutex;
  std::vector<std::string> order;
  run_ranks(2, 60s,
            [&](Rank& rank) {
              const auto far = rank.stream("far"), near = rank.stream("near");
              const auto slow = rank.world().open(rank.all_ranks_group("slow"), *far);
              const auto fast = rank.world().open(rank.all_ranks_group("fast"), *near);
              const auto note = [&](tensor::Stream& stream, const char* what) {
                dynamic_cast<tensor::CpuStream&>(stream).call([&, what] {
                  std::lock_guard lock(mutex);
                  order.emplace_back(what);
                });
              };
              slow->broadcast(rank.tensor(DType::f32, 250'000), 0);  // 1 s
              note(*far, "slow");
              fast->all_reduce(rank.tensor(DType::f32, 1));
              note(*near, "fast");
              far->synchronize();
              near->synchronize();
            },
            {.latency_s = 1e-3, .bytes_per_s = 1e6});
  EXPECT_EQ(order, (std::vector<std::string>{"fast", "fast", "slow", "slow"}));
}

// Stopping does not wait for transfers in progress.
TEST(SlowLink, AbortDoesNotWaitForTransfers) {
  run_ranks(2, 60s,
            [](Rank& rank) {
              const auto stream = rank.stream("comm");
              const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
              comm->barrier();  // without end
              comm->barrier();
              if (rank.rank() == 1) rank.world().abort(Error("test", Blame::user, "enough"));
              expect_error(failure_of(*stream), rank.rank() == 1 ? "test" : "comm.peer_lost", "enough");
            },
            {.latency_s = 1e6, .bytes_per_s = 0});
}

}  // namespace
}  // namespace ms::comm::cases
