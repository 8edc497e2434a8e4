#include "fabric/ranks.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "base/print.h"
#include "comm/mpi_world.h"
#include "comm/rank_gpu.h"
#include "comm/thread_world.h"
#include "slurm/launch.h"
#include "tensor/cpu_device.h"
#include "tensor/cuda_plugin.h"
#include "watch/verdict.h"

namespace ms::fabric {
namespace {

using net::kNothingMeasured;
using net::RanksRequest;
using Body = std::function<void(comm::World& world, const RankDevices& devices)>;
using namespace std::chrono_literals;

constexpr auto kEndsWithin = 10s;  // NCCL's abort takes a second or less
constexpr auto kLookEvery = 100ms;

// Ends a process that the world's stop does not bring to its end: streams wait for what NCCL does not abort.
std::jthread end_if_stuck(const comm::World& world) {
  return std::jthread([&world](const std::stop_token& stop) {
    for (std::chrono::milliseconds left = kEndsWithin; !stop.stop_requested();
         std::this_thread::sleep_for(kLookEvery)) {
      const std::optional<comm::World::Cause> cause = world.cause();
      if (!cause) continue;
      if ((left -= kLookEvery) > 0s) continue;
      print_err("ms-netcheck: error: {}\nhint: NCCL does not abort on this node, and the process is ended\n",
                cause->error.message());
      std::fflush(nullptr);
      _exit(kNothingMeasured);
    }
  });
}

void run_threads(int ranks, std::chrono::milliseconds deadline, const Body& body) {
  comm::ThreadHub hub(ranks, deadline);
  tensor::CpuPool pool(tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), ranks, ranks));
  tensor::MatmulCache matmuls;
  std::exception_ptr error;  // of rank 0: the first cause is told to all
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const std::unique_ptr<comm::World> world = hub.world(rank);
        try {
          tensor::CpuDevice device(pool, matmuls);
          body(*world, {.host = device, .data = device});
          world->close();
        } catch (const Error& thrown) {
          world->abort(thrown);
          if (rank == 0) error = std::current_exception();
        }
      });
    }
  }
  if (error) std::rethrow_exception(error);
}

bool run_process(const RanksRequest& request, std::chrono::milliseconds deadline, const Body& body) {
  if (!comm::mpi_built_in()) throw user_error("net.launch", "this ms was built without MPI");
  if (slurm::this_launch().size < 2) {
    throw user_error("net.launch", "a single process cannot be measured",
                     "start it with srun --mpi=pmix, or mpirun: one process a rank");
  }
  const bool on_gpus = request.transport == "nccl";
  if (on_gpus) tensor::cuda_device_count();  // before all ranks meet: without CUDA or a GPU it throws
  const std::unique_ptr<comm::World> world = comm::make_mpi_world(deadline);
  const std::jthread watch = on_gpus ? end_if_stuck(*world) : std::jthread();
  try {
    tensor::CpuPool pool({.workers = 1, .threads_per_op = 1});
    tensor::MatmulCache matmuls;
    tensor::CpuDevice device(pool, matmuls);
    const std::unique_ptr<tensor::Device> gpu =
        on_gpus ? tensor::make_cuda_device(request.gpu ? *request.gpu : comm::gpu_of(*world)) : nullptr;
    body(*world, {.host = device, .data = gpu ? *gpu : device});
    const bool speaks = world->rank() == 0;
    // The report's exit code may end the others by SIGTERM, and srun's own would be 143, the highest of all tasks.
    watch::begin_ending();
    world->close();
    return speaks;
  } catch (const Error& error) {
    watch::begin_ending();
    world->abort(error);  // the others need not wait for their deadline
    throw;
  }
}

}  // namespace

bool run_ranks(const RanksRequest& request, const Body& body) {
  const std::chrono::milliseconds deadline(static_cast<std::int64_t>(request.deadline_s * 1e3));
  if (request.transport != "threads") return run_process(request, deadline, body);
  if (request.ranks < 1) throw user_error("net.launch", "threads: how many? give --ranks");
  run_threads(request.ranks, deadline, body);
  return true;
}

}  // namespace ms::fabric
