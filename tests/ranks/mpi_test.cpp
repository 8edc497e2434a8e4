// The conformance bodies over MPI, and failures there: a rank is late, disagrees, aborts, exits or is killed. Runs
// under mpirun; MPI starts once per process and a failed world stays failed, so each Fault test is a run of its own
// (tests/ranks/CMakeLists.txt).
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "comm/mpi_world.h"
#include "conformance.h"
#include "slurm/launch.h"

namespace ms::comm::cases {
namespace {

using namespace std::chrono_literals;
using tensor::DType;

constexpr auto kDeadline = 20s;
constexpr auto kShortDeadline = 2s;  // for tests that reach it

// The state that all tests of this process share.
struct Session {
  std::unique_ptr<World> world;
  std::unique_ptr<tensor::CpuPool> pool;
  tensor::MatmulCache matmuls;
  int next_group = 1;
};
Session& session() {
  static Session instance;
  return instance;
}

void run_body(const std::function<void(Rank&)>& body) {
  Session& shared = session();
  tensor::CpuDevice device(*shared.pool, shared.matmuls);
  Rank rank(*shared.world, device);
  rank.start_groups_at(shared.next_group);
  try {
    body(rank);
  } catch (const Error& error) {
    ADD_FAILURE() << "rank " << rank.rank() << ": " << error.what();
    shared.world->abort(error);
  }
  shared.next_group = rank.next_group();
}

// Checks which rank an error blames and in which operation: the same on the rank that noticed and on those it notified.
void expect_blamed(const std::optional<Error>& error, std::optional<int> rank, std::string_view operation) {
  ASSERT_TRUE(error);
  EXPECT_EQ(error->rank(), rank) << error->message();
  EXPECT_EQ(error->operation(), operation) << error->message();
}

// Runs some operations that succeed, so that the failure comes in the middle.
void warm_up(Communicator& comm, const Tensor& x) {
  for (int k = 0; k < 3; ++k) comm.all_reduce(x);
}

class Conformance : public ::testing::TestWithParam<Body> {};
TEST_P(Conformance, Mpi) { run_body(GetParam().run); }
INSTANTIATE_TEST_SUITE_P(All, Conformance, ::testing::ValuesIn(conformance_bodies()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(World, Describes) {
  run_body([](Rank& rank) {
    EXPECT_EQ(rank.world().kind(), "mpi");
    EXPECT_EQ(slurm::this_launch().size, rank.size());
    EXPECT_EQ(slurm::this_launch().rank, rank.rank());
    EXPECT_EQ(rank.world().node(rank.size() - 1), rank.world().node(rank.rank()));
    EXPECT_EQ(rank.world().ranks_on_node(), rank.size());  // mpirun on one machine
    EXPECT_FALSE(rank.world().cause());
  });
}

TEST(Fault, Deadline) {
  run_body([](Rank& rank) {
    const auto stream = rank.stream("comm");
    const auto comm = rank.world().open(rank.all_ranks_group("tp[dp 0 pp 1]"), *stream);
    const Tensor x = rank.tensor(DType::f32, 1024);
    warm_up(*comm, x);
    const int last = rank.size() - 1;
    if (rank.rank() != last) comm->all_reduce(x);
    if (rank.rank() == 0) {
      const std::optional<Error> error = failure_of(*stream);  // its own, or that of a rank whose deadline passed first
      ASSERT_TRUE(error);
      EXPECT_NE(error->message().find(fmt::format(
                    " s for rank {} in all_reduce of 4096 bytes, operation 3 of group tp[dp 0 pp 1]", last)),
                std::string::npos)
          << error->message();
      EXPECT_EQ(error->blame(), Blame::peer);
      expect_blamed(error, last, "all_reduce of 4096 bytes, operation 3 of group tp[dp 0 pp 1]");
    } else {
      while (!rank.world().cause()) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(rank.world().cause()->error.kind(), "comm.deadline");
    }
    expect_blamed(rank.world().cause()->error, last, "all_reduce of 4096 bytes, operation 3 of group tp[dp 0 pp 1]");
    comm->barrier();
    EXPECT_TRUE(failure_of(*stream));
  });
}

// Rank 0 begins to wait first, for rank 1, which waits for rank 2, the rank at fault: either only its host or its whole
// process stalls.
void blames_the_end_of_the_waits(bool whole_process) {
  run_body([&](Rank& rank) {
    const auto stream = rank.stream("comm");
    const Group a = rank.group("a", {0, 1}), b = rank.group("b", {1, 2});
    const auto all = rank.world().open(rank.all_ranks_group("all"), *stream);
    const auto first = rank.rank() < 2 ? rank.world().open(a, *stream) : nullptr;
    const auto second = rank.rank() == 1 || rank.rank() == 2 ? rank.world().open(b, *stream) : nullptr;
    pid_t stands_still = 0;
    if (rank.rank() == 2) {
      rank.world().store().put("pid", std::to_string(getpid()));
      rank.world().store().commit();
    } else if (rank.rank() == 3) {
      stands_still = std::stoi(rank.world().store().get(2, "pid", kDeadline));
    }
    all->barrier();
    stream->synchronize();
    if (rank.rank() == 2 && whole_process) std::raise(SIGSTOP);
    if (rank.rank() == 1) {
      std::this_thread::sleep_for(200ms);
      second->barrier();
    }
    if (first) first->barrier();
    while (!rank.world().cause()) std::this_thread::sleep_for(1ms);
    const Error error = rank.world().cause()->error;
    expect_blamed(error, 2, "barrier, operation 0 of group b");
    expect_error(error, "comm.deadline",
                 " s for rank 1 in barrier, operation 0 of group a; rank 1 waits for rank 2 in ");
    expect_error(error, "comm.deadline",
                 whole_process ? "; rank 2 does not answer"
                               : "; rank 2 waits for no other rank and had not issued the operation");
    if (stands_still != 0 && whole_process) kill(stands_still, SIGKILL);
  });
}
TEST(Fault, DeadlineOfAnother) { blames_the_end_of_the_waits(false); }
TEST(Fault, DeadlineOfAStopped) { blames_the_end_of_the_waits(true); }

TEST(Fault, Mismatch) {
  run_body([](Rank& rank) {
    const auto stream = rank.stream("comm");
    const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
    const bool odd = rank.rank() == 1;
    comm->all_reduce(rank.tensor(DType::f32, odd ? 8 : 4));
    const std::optional<Error> error = failure_of(*stream);
    ASSERT_TRUE(error);
    ASSERT_TRUE(rank.world().cause());
    EXPECT_EQ(rank.world().cause()->error.kind(), "comm.mismatch");
    EXPECT_NE(error->message().find(" in all_reduce of "), std::string::npos) << error->message();
    EXPECT_NE(error->message().find("operation 0 of group dp"), std::string::npos) << error->message();
    EXPECT_TRUE(rank.world().cause()->error.operation().ends_with(" bytes, operation 0 of group dp"));
    EXPECT_FALSE(rank.world().cause()->error.rank()) << "who of the two is wrong, nobody knows";
  });
}

TEST(Fault, Abort) {
  run_body([](Rank& rank) {
    const auto stream = rank.stream("comm");
    const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
    const Tensor x = rank.tensor(DType::f32, 100000);
    warm_up(*comm, x);
    const bool causer = rank.rank() == rank.size() - 1;
    if (causer) {
      std::this_thread::sleep_for(50ms);
      std::jthread([&] {
        rank.world().abort(Error("storage.write", Blame::storage, "disk full", "make room"));
      }).join();
    }
    comm->all_reduce(x);
    const std::optional<Error> error = failure_of(*stream);
    if (causer) {
      expect_error(error, "storage.write", "disk full");
    } else {
      expect_error(error, "comm.peer_lost", fmt::format("rank {} stopped: disk full", rank.size() - 1));
      EXPECT_EQ(error->blame(), Blame::peer);
      EXPECT_EQ(error->hint(), "make room");
      expect_blamed(error, rank.size() - 1, "");
      EXPECT_EQ(rank.world().cause()->error.blame(), Blame::storage);
    }
    const auto later = rank.stream("later");
    rank.world().open(rank.all_ranks_group("tp"), *later)->barrier();
    expect_error(failure_of(*later), causer ? "storage.write" : "comm.peer_lost", "disk full");
    EXPECT_THROW(rank.world().store().get(0, "nothing", 60s), Error);
    EXPECT_THROW(rank.world().close(), Error);
  });
}

TEST(Fault, PoisonedStream) {
  run_body([](Rank& rank) {
    const auto stream = rank.stream("comm");
    const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
    const Tensor x = rank.tensor(DType::f32, 10);
    warm_up(*comm, x);
    if (rank.rank() == 0) {
      dynamic_cast<tensor::CpuStream&>(*stream).call(
          [] { throw Error("tensor.op", Blame::node, "the multiplier is broken"); });
    }
    comm->all_reduce(x);
    const std::optional<Error> error = failure_of(*stream);
    if (rank.rank() == 0) {
      expect_error(error, "tensor.op", "the multiplier is broken");
    } else {
      expect_error(error, "comm.peer_lost", "rank 0 stopped: the multiplier is broken");
    }
  });
}

// A killed rank is detected in about a second, long before the deadline; the others exit with the code for it.
TEST(Fault, Killed) {
  run_body([](Rank& rank) {
    const auto stream = rank.stream("comm");
    const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
    const Tensor x = rank.tensor(DType::f32, 100000);
    warm_up(*comm, x);
    stream->synchronize();
    if (rank.rank() == 1) std::raise(SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    comm->all_reduce(x);
    const std::optional<Error> error = failure_of(*stream);
    const double waited_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    expect_error(error, "comm.peer_lost", "rank 1 (pid ");
    expect_error(error, "comm.peer_lost", ") died during all_reduce of 400000 bytes, operation 3 of group dp");
    expect_blamed(error, 1, "all_reduce of 400000 bytes, operation 3 of group dp");
    EXPECT_LT(waited_s, 2.0);
  });
}

// A rank that dies while no other rank waits for it is detected as well.
TEST(Fault, KilledUnawaited) {
  run_body([](Rank& rank) {
    const auto stream = rank.stream("comm");
    const auto comm = rank.world().open(rank.all_ranks_group("dp"), *stream);
    const Tensor x = rank.tensor(DType::f32, 100);
    warm_up(*comm, x);
    stream->synchronize();
    if (rank.rank() == 1) std::raise(SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    while (!rank.world().cause() && std::chrono::steady_clock::now() - begin < kDeadline) {
      std::this_thread::sleep_for(1ms);
    }
    ASSERT_TRUE(rank.world().cause());
    expect_blamed(rank.world().cause()->error, 1, "");
    comm->all_reduce(x);
    expect_error(failure_of(*stream), "comm.peer_lost", ") died");
  });
}

// A reader of the store fails at once when the world stops.
TEST(Fault, StoreAbort) {
  run_body([](Rank& rank) {
    const auto begin = std::chrono::steady_clock::now();
    if (rank.rank() == 0) {
      std::this_thread::sleep_for(100ms);
      rank.world().abort(Error("storage.write", Blame::storage, "disk full"));
    } else {
      try {
        rank.world().store().get(0, "never", 60s);
        ADD_FAILURE() << "a value from nowhere";
      } catch (const Error& error) {
        expect_error(error, "comm.peer_lost", "rank 0 stopped: disk full");
        expect_blamed(error, 0, "");
      }
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  });
}

// A rank that exits without closing the world or reporting an error.
TEST(Fault, Left) {
  run_body([](Rank& rank) {
    if (rank.rank() == 1) {
      std::fflush(nullptr);
      std::_Exit(static_cast<int>(ExitCode::node_fault));
    }
    const auto stream = rank.stream("comm");
    rank.world().open(rank.all_ranks_group("dp"), *stream)->barrier();
    expect_error(failure_of(*stream), "comm.peer_lost", ") died during barrier, operation 0 of group dp");
  });
}

// Ranks other than 0 print only failures.
class FailuresOnly final : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", session().world->rank(), result.file_name(), result.line_number(),
                 result.message());
  }
};

int run(bool short_deadline, StoreChoice store) {
  session().world = make_mpi_world(short_deadline ? std::chrono::milliseconds(kShortDeadline) : kDeadline, store);
  World& world = *session().world;
  session().pool = std::make_unique<tensor::CpuPool>(
      tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), 1, world.ranks_on_node()));
  if (world.rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  int result = RUN_ALL_TESTS();
  if (!world.cause()) {
    world.close();
    return result;
  }
  // The world failed as intended: exit the way a program does, with the exit code for what happened on this rank.
  const World::Cause cause = *world.cause();
  world.abort(cause.error);  // the first cause stays; returns when the others are notified
  std::fflush(nullptr);
  const ExitCode code = cause.rank == world.rank() ? exit_code(cause.error.blame()) : ExitCode::peer_lost;
  std::quick_exit(result != 0 ? result : static_cast<int>(code));
}

}  // namespace
}  // namespace ms::comm::cases

// --messages: the key-value store over MPI messages, also where there is PMIx.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const bool messages = argc > 1 && std::string_view(argv[1]) == "--messages";
  try {
    return ms::comm::cases::run(::testing::GTEST_FLAG(filter).starts_with("Fault.Deadline"),
                                messages ? ms::comm::StoreChoice::messages : ms::comm::StoreChoice::automatic);
  } catch (const ms::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::fflush(nullptr);
    std::quick_exit(static_cast<int>(ms::exit_code(error.blame())));
  }
}
