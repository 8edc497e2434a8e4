#include "net/ranks/ranks.h"

#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "comm/launch.h"
#include "comm/mpi_world.h"
#include "comm/thread_world.h"
#include "tensor/cpu_device.h"

namespace ms::net {
namespace {

using Body = std::function<void(comm::World& world, tensor::Device& device)>;

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
          body(*world, device);
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

bool run_process(std::chrono::milliseconds deadline, const Body& body) {
  if (!comm::mpi_built_in()) throw user_error("net.launch", "this ms was built without MPI");
  if (comm::this_launch().size < 2) {
    throw user_error("net.launch", "one process has nobody to talk to",
                     "start it with srun --mpi=pmix, or mpirun: one process a rank");
  }
  const std::unique_ptr<comm::World> world = comm::make_mpi_world(deadline);
  try {
    tensor::CpuPool pool({.workers = 1, .threads_per_op = 1});
    tensor::MatmulCache matmuls;
    tensor::CpuDevice device(pool, matmuls);
    body(*world, device);
    const bool speaks = world->rank() == 0;
    world->close();
    return speaks;
  } catch (const Error& error) {
    world->abort(error);  // the others need not wait for their deadline
    throw;
  }
}

}  // namespace

bool run_ranks(const RanksRequest& request, const Body& body) {
  const std::chrono::milliseconds deadline(static_cast<std::int64_t>(request.deadline_s * 1e3));
  if (request.transport != "threads") return run_process(deadline, body);
  if (request.ranks < 1) throw user_error("net.launch", "threads: how many? give --ranks");
  run_threads(request.ranks, deadline, body);
  return true;
}

}  // namespace ms::net
