#include "train/launch.h"

#include <unistd.h>

#include <cstdio>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "comm/mpi_world.h"
#include "comm/thread_world.h"
#include "tensor/cpu_device.h"
#include "watch/verdict.h"

namespace ms::train {
namespace {

std::chrono::milliseconds deadline_of(const Settings& settings) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(settings.run.comm_timeout_s * 1e3));
}

void prepare_directory(const Loaded& loaded) {
  const std::string& dir = loaded.settings.run.dir;
  make_directories(dir);
  watch::clear_verdict(dir);
  write_file_atomic(dir + "/config.toml", loaded.resolved);
}

TrainerOptions options_of(const Settings& settings) { return {.peak_flops = settings.run.peak_tflops * 1e12}; }

// The first cause of a failed run, said to come from the rank where it is.
void write_failure(const std::string& dir, const comm::World::Cause& cause, std::int64_t step) {
  watch::write_verdict(dir, watch::verdict_of(cause.error, cause.error.rank().value_or(cause.rank), step));
}

// Runs one rank to its end; what it throws stops all others first.
Outcome run_rank(const Plan& plan, comm::World& world, tensor::Device& device, std::atomic<std::int64_t>& step) {
  try {
    Outcome outcome = train(plan, world, device, options_of(plan.settings), step);
    world.close();
    return outcome;
  } catch (const Error& error) {
    world.abort(error);
    throw;
  } catch (const std::exception& error) {
    const Error bug("train.bug", Blame::bug, error.what());
    world.abort(bug);
    throw bug;
  }
}

}  // namespace

Launched run_threads(const Loaded& loaded) {
  const Settings& settings = loaded.settings;
  const int ranks = static_cast<int>(settings.mesh.dp * settings.mesh.pp * settings.mesh.tp);
  const Plan plan = make_plan(settings, ranks);
  check_data(settings);
  prepare_directory(loaded);
  const auto size = tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), ranks, ranks);
  log::info("train", "{} ranks as threads, {} workers, {} threads an op", ranks, size.workers, size.threads_per_op);

  tensor::MatmulCache matmuls;
  tensor::CpuPool pool(size);
  comm::ThreadHub hub(ranks, deadline_of(settings));
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::atomic<std::int64_t>> steps(static_cast<std::size_t>(ranks));
  std::atomic<bool> failed = false;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const log::RankScope label(rank);
        const auto index = static_cast<std::size_t>(rank);
        try {
          const std::unique_ptr<comm::World> world = hub.world(rank);
          tensor::CpuDevice device(pool, matmuls);
          outcomes[index] = run_rank(plan, *world, device, steps[index]);
        } catch (const Error&) {
          failed = true;  // run_rank() told the hub, which knows the first cause
        }
      });
    }
  }
  if (failed) {
    const comm::World::Cause cause = hub.world(0)->cause().value();
    write_failure(settings.run.dir, cause, steps[static_cast<std::size_t>(cause.rank)]);
    throw cause.error.with_context(fmt::format("rank {}", cause.rank));
  }
  watch::write_verdict(settings.run.dir, watch::verdict_done(outcomes.front().steps));
  return {outcomes.front(), 0};
}

Launched run_mpi(const Loaded& loaded) {
  const Settings& settings = loaded.settings;
  std::unique_ptr<comm::World> world = comm::make_mpi_world(deadline_of(settings));
  const int rank = world->rank();
  const log::RankScope label(rank);
  std::atomic<std::int64_t> step = 0;
  try {
    const Plan plan = make_plan(settings, world->size());
    // Nobody may fail, and say so, before rank 0 has cleared the verdict of the run before.
    if (rank == 0) {
      check_data(settings);
      prepare_directory(loaded);
      world->store().put("run directory", "ready");
      world->store().commit();
    } else {
      world->store().commit();
      world->store().get(0, "run directory", deadline_of(settings));
    }
    const auto size = tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), 1, world->ranks_on_node());
    log::info("train", "{} ranks as {} processes, {} on this node, {} threads an op", world->size(), world->kind(),
              world->ranks_on_node(), size.threads_per_op);
    tensor::MatmulCache matmuls;
    tensor::CpuPool pool(size);
    tensor::CpuDevice device(pool, matmuls);
    Launched launched{run_rank(plan, *world, device, step), rank};
    if (rank == 0) watch::write_verdict(settings.run.dir, watch::verdict_done(launched.outcome.steps));
    return launched;
  } catch (const Error& error) {
    world->abort(error);
    write_failure(settings.run.dir, world->cause().value_or(comm::World::Cause{rank, error}), step);
    // What every rank finds wrong alike is said once.
    if (error.blame() != Blame::user || rank == 0) {
      std::fprintf(stderr, "ms-train: error: rank %d: %s\n", rank, error.what());
      if (!error.hint().empty()) std::fprintf(stderr, "hint: %s\n", error.hint().c_str());
    }
    world.reset();  // gives the news to the peers a moment to leave
    std::fflush(nullptr);
    _exit(static_cast<int>(exit_code(error.blame())));
  }
}

}  // namespace ms::train
