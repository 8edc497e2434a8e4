#include "net/collectives_run.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <thread>

#include "comm/launch.h"
#include "comm/mpi_world.h"
#include "comm/thread_world.h"
#include "tensor/cpu_device.h"

namespace ms::net {
namespace {

std::chrono::milliseconds deadline_of(const CollectivesRequest& request) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(request.deadline_s * 1e3));
}

std::vector<Split> splits_of(const CollectivesRequest& request, int ranks, int ranks_on_node) {
  std::vector<Split> splits{world_split(ranks)};
  std::ranges::move(rail_split(ranks, ranks_on_node), std::back_inserter(splits));
  if (request.mesh) {
    mesh::make_mesh(request.mesh->dp, request.mesh->pp, request.mesh->tp, ranks);  // refuses one of another size
    std::ranges::move(mesh_splits(*request.mesh), std::back_inserter(splits));
  }
  return splits;
}

std::vector<CollectiveRow> over_threads(const CollectivesRequest& request) {
  const std::vector<Split> splits = splits_of(request, request.ranks, request.ranks);
  comm::ThreadHub hub(request.ranks, deadline_of(request));
  tensor::CpuPool pool(tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), request.ranks, request.ranks));
  tensor::MatmulCache matmuls;
  std::vector<CollectiveRow> rows;
  std::exception_ptr error;  // of rank 0: the first cause is told to all
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < request.ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const std::unique_ptr<comm::World> world = hub.world(rank);
        try {
          tensor::CpuDevice device(pool, matmuls);
          std::vector<CollectiveRow> mine = run_collectives(*world, device, splits, request.options, request.before);
          if (rank == 0) rows = std::move(mine);
          world->close();
        } catch (const Error& thrown) {
          world->abort(thrown);
          if (rank == 0) error = std::current_exception();
        }
      });
    }
  }
  if (error) std::rethrow_exception(error);
  return rows;
}

}  // namespace

std::optional<std::vector<CollectiveRow>> check_collectives(const CollectivesRequest& request) {
  if (request.transport == "threads") {
    if (request.ranks < 1) throw user_error("net.launch", "threads: how many? give --ranks");
    return over_threads(request);
  }
  if (!comm::mpi_built_in()) throw user_error("net.launch", "this ms was built without MPI");
  if (comm::this_launch().size < 2) {
    throw user_error("net.launch", "one process has nobody to talk to",
                     "srun --mpi=pmix ms-netcheck collectives, or mpirun; or --transport threads --ranks N");
  }
  const std::unique_ptr<comm::World> world = comm::make_mpi_world(deadline_of(request));
  try {
    tensor::CpuPool pool({.workers = 1, .threads_per_op = 1});
    tensor::MatmulCache matmuls;
    tensor::CpuDevice device(pool, matmuls);
    std::vector<CollectiveRow> rows = run_collectives(
        *world, device, splits_of(request, world->size(), world->ranks_on_node()), request.options, request.before);
    const bool speaks = world->rank() == 0;
    world->close();
    return speaks ? std::optional(std::move(rows)) : std::nullopt;
  } catch (const Error& error) {
    world->abort(error);  // the others need not wait for their deadline
    throw;
  }
}

}  // namespace ms::net
