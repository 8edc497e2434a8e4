#include "train/launch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/handle.h"
#include "base/log.h"
#include "comm/launch.h"
#include "comm/mpi_world.h"
#include "comm/thread_world.h"
#include "tensor/cpu_device.h"
#include "tensor/cuda_door.h"
#include "train/gpu_environment.h"
#include "train/leaving.h"
#include "train/start_up.h"
#include "train/tracing.h"
#include "watch/fault.h"
#include "watch/verdict.h"

namespace ms::train {
namespace {

constexpr int kMaxThreadRanks = 1024, kMaxRanksOfGpu = 128;
constexpr std::chrono::milliseconds kDoneWithin{30'000};  // for a process whose run is done to be gone

std::chrono::milliseconds deadline_of(const Settings& settings) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(settings.run.comm_timeout_s * 1e3));
}

// The run's directory, with a lock that keeps a second run out of it for as long as this lives. One rank of a run has
// it.
class RunDirectory {
 public:
  explicit RunDirectory(const Loaded& loaded) : dir_(loaded.settings.run.dir), resolved_(loaded.resolved) {
    if (access(dir_.c_str(), F_OK) == 0) take();
  }

  // Runs the checks that come before a run. What they refuse leaves no new directory behind; but where there is one,
  // its verdict is this run's from now on.
  template <class F>
  auto check(F&& checks) {
    try {
      return checks();
    } catch (const Error& error) {
      if (lock_) watch::write_verdict(dir_, watch::verdict_of(error, 0, "", 0));
      throw;
    }
  }
  void prepare() {
    if (!lock_) {
      make_directories(dir_);
      take();
    }
    write_file_atomic(dir_ + "/config.toml", resolved_);
  }

 private:
  void take() {
    const std::string path = dir_ + "/lock";
    lock_ = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!lock_) throw Error("file.open", Blame::storage, fmt::format("cannot open {}: {}", path, errno_text(errno)));
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      throw user_error("run.busy", fmt::format("another run is at work in {}", dir_), "give this one another run.dir");
    }
    watch::clear_verdict(dir_);
  }

  std::string dir_, resolved_;
  UniqueFd lock_;
};

// What MS_FAULT arms; a mistake in it is one of configuration.
std::vector<watch::Fault> read_faults(const Settings& settings, int ranks) {
  return watch::armed_faults([](const char* name) { return std::getenv(name); }, ranks, settings.train.steps);
}

void say_armed(const std::vector<watch::Fault>& faults) {
  for (const watch::Fault& fault : faults) log::warn("train", "a fault is armed, MS_FAULT '{}'", fault.text);
}

// The first cause of a failed run, with the rank that it blames, or else comes from. False where another one was first.
bool write_failure(const std::string& dir, const comm::World& world, const comm::World::Cause& cause,
                   std::int64_t step) {
  const int rank = cause.error.rank().value_or(cause.rank);
  return watch::write_verdict(
      dir, watch::verdict_of(cause.error, rank, world.node(rank), cause.error.step().value_or(step)));
}

// The verdict of a run that nothing went wrong in.
watch::Verdict verdict_of(const Outcome& outcome) {
  if (!outcome.stopped) return watch::verdict_done(outcome.steps);
  return watch::verdict_stopped(outcome.steps, outcome.stop_cause, outcome.checkpoint);
}

// Runs one rank to its end; what it throws stops all others first, but for what `tell`, where given, has to say.
Outcome run_rank(const Plan& plan, comm::World& world, StartUp& start_up, tensor::Device& device, tensor::Device& host,
                 trace::Flusher& flusher, const std::vector<watch::Fault>& armed, TrainerOptions options,
                 std::atomic<std::int64_t>& step, const Leaving::Words& tell) {
  std::optional<Tracing> tracing;
  options.failed = [&](const Error& error) {
    // First: once others know and leave, the launcher may end this process, or hear it no more.
    if (tracing) tracing->failed(error);
    if (tell) tell(world.cause().value_or(comm::World::Cause{world.rank(), error.with_step(step)}));
    world.abort(error.with_step(step));
  };
  try {
    const int rank = world.rank();
    const auto released = [&world] { return world.kind() == "threads" && world.cause().has_value(); };
    const watch::Faults faults(armed, rank, world.node(rank), released);
    faults.at(watch::FaultPoint::start);
    start_up.create_groups({plan.mesh, plan.chunks, plan.settings.model.tied_embeddings});
    tracing.emplace(plan, options.resolved, world, device, flusher);
    options.peak_flops = plan.settings.run.peak_tflops * 1e12;
    options.faults = faults;
    Outcome outcome = train(plan, world, device, host, options, step);
    world.close();
    tracing->done();
    return outcome;
  } catch (const Error& error) {
    options.failed(error);  // once more where the trainer has: only the first counts
    throw;
  } catch (const std::exception& error) {
    const Error bug("train.bug", Blame::bug, error.what());
    options.failed(bug);
    throw bug;
  }
}

tensor::CudaOptions cuda_options(const Settings& settings) {
  return {.deterministic = settings.run.deterministic, .time_ops = settings.run.time_ops};
}

// For a rank that is a thread.
std::unique_ptr<tensor::Device> make_gpu(const Settings& settings, int ranks, tensor::CpuPool& pool) {
  return ranks == 1 ? tensor::make_cuda_device(0, cuda_options(settings))
                    : tensor::make_shared_cuda_device(0, pool, cuda_options(settings));
}

// GPUs are given out by rank on the node. A launcher that shows each process its own shows one.
int gpu_of(const comm::World& world) {
  const int gpus = tensor::cuda_device_count();
  int before = 0;
  for (int rank = 0; rank < world.rank(); ++rank) before += world.node(rank) == world.node(world.rank()) ? 1 : 0;
  if (gpus > 1 && world.ranks_on_node() > gpus) {
    throw Error(
        "cuda.none", Blame::user,
        fmt::format("{} ranks on node {}, which has {} GPUs", world.ranks_on_node(), world.node(world.rank()), gpus),
        "start as many ranks on a node as it has GPUs");
  }
  return gpus > 1 ? before : 0;
}

// Ranks that are threads share the first GPU: good for seeing whether a layout computes what it should.
void say_shared(int ranks) {
  if (ranks == 1) return;
  log::info("train", "{} ranks as threads share one GPU", ranks);
  if (const int gpus = tensor::cuda_device_count(); gpus > 1)
    log::warn("train", "{} GPUs have nothing to do: start one process for each with mpirun or srun --mpi=pmix",
              gpus - 1);
}

// The cause's own code, so that srun and mpirun, which report one of many, report what happened. But only the node
// where it happened is at fault.
[[noreturn]] void leave(const comm::World::Cause& cause, int rank) {
  std::fflush(nullptr);
  const ExitCode code = exit_code(cause.error.blame());
  _exit(static_cast<int>(code == ExitCode::node_fault && cause.rank != rank ? ExitCode::peer_lost : code));
}

}  // namespace

ExitCode run_threads(const Loaded& loaded, const LaunchOptions& options) {
  watch::StopRequest stop;
  const Settings& settings = loaded.settings;
  const int ranks = static_cast<int>(settings.mesh.dp * settings.mesh.pp * settings.mesh.tp);
  if (ranks > kMaxThreadRanks) {
    throw user_error("mesh.size", fmt::format("{} ranks as threads of one process, at most {}", ranks, kMaxThreadRanks),
                     "start processes with mpirun or srun --mpi=pmix");
  }
  if (settings.run.device == "cuda" && ranks > kMaxRanksOfGpu)
    throw user_error("mesh.size", fmt::format("{} ranks share a GPU, at most {} can", ranks, kMaxRanksOfGpu),
                     "start one process for each GPU with mpirun or srun --mpi=pmix");
  RunDirectory directory(loaded);
  std::vector<watch::Fault> faults;
  const Plan plan = directory.check([&] {
    check_data(settings);
    faults = read_faults(settings, ranks);
    return make_plan(settings, ranks);
  });
  directory.prepare();
  const auto size = tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), ranks, ranks);
  if (settings.run.device == "cpu")
    log::info("train", "{} ranks as threads, {} workers, {} threads an op", ranks, size.workers, size.threads_per_op);
  say_armed(faults);

  const bool on_gpu = settings.run.device == "cuda";
  trace::Flusher flusher(settings.trace.flush_s);
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
        const std::unique_ptr<comm::World> world = hub.world(rank);
        try {
          tensor::CpuDevice host(pool, matmuls);
          const std::unique_ptr<tensor::Device> gpu = on_gpu ? make_gpu(settings, ranks, pool) : nullptr;
          if (on_gpu && rank == 0) say_shared(ranks);
          StartUp start_up(*world, loaded.resolved, deadline_of(settings));
          outcomes[index] = run_rank(
              plan, *world, start_up, gpu ? *gpu : host, host, flusher, faults,
              {.resolved = loaded.resolved, .fresh = options.fresh, .stop = &stop, .deadline = deadline_of(settings)},
              steps[index], {});
        } catch (const Error& error) {
          world->abort(error);  // the hub keeps the first cause, which run_rank() has told where it came so far
          failed = true;
        }
      });
    }
  }
  if (failed) {
    const std::unique_ptr<comm::World> world = hub.world(0);
    const comm::World::Cause cause = world->cause().value();
    write_failure(settings.run.dir, *world, cause, steps[static_cast<std::size_t>(cause.rank)]);
    throw cause.error.with_context(fmt::format("rank {}", cause.rank));
  }
  const watch::Verdict verdict = verdict_of(outcomes.front());
  watch::write_verdict(settings.run.dir, verdict);
  options.tell(outcomes.front());
  return verdict.code;
}

ExitCode run_mpi(const Loaded& loaded, const LaunchOptions& options) {
  const Settings& settings = loaded.settings;
  if (settings.run.device == "cuda" && comm::this_launch().size > 1) set_gpu_environment(settings.run);
  watch::StopRequest stop;
  std::unique_ptr<comm::World> world = comm::make_mpi_world(deadline_of(settings));
  const int rank = world->rank();
  const log::RankScope label(rank);
  std::atomic<std::int64_t> step = 0;
  std::optional<RunDirectory> directory;  // on rank 0
  std::string dir = settings.run.dir;     // rank 0's
  bool prepared = false;                  // there is a run directory, without the verdict of the run before
  bool told = false;
  std::timed_mutex telling;
  const auto tell = [&](const comm::World::Cause& cause) {
    watch::begin_ending();
    // Who comes second must not end the process in the middle of it; nor wait for ever, where storage hangs.
    const std::unique_lock lock(telling, deadline_of(settings));
    if (!lock || std::exchange(told, true)) return;
    // Said once: by who wrote the verdict, or where there can be none, by who caused it.
    const bool first = prepared && write_failure(dir, *world, cause, step);
    if (first || (cause.rank == rank && !(prepared && watch::has_verdict(dir)))) {
      std::fprintf(stderr, "ms-train: error: rank %d: %s\n", cause.rank, cause.error.what());
      if (!cause.error.hint().empty()) std::fprintf(stderr, "hint: %s\n", cause.error.hint().c_str());
    }
  };
  Leaving leaving(*world, deadline_of(settings), tell, [rank](const comm::World::Cause& cause) {
    const log::RankScope label_of_thread(rank);
    log::error("train", "the run has failed, and this process does not come to its end: it is ended");
    leave(cause, rank);
  });
  try {
    std::vector<watch::Fault> faults;
    const auto planning = [&] {
      faults = read_faults(settings, world->size());
      return make_plan(settings, world->size());
    };
    StartUp start_up(*world, loaded.resolved, deadline_of(settings));
    std::optional<Plan> plan;
    if (rank == 0) {
      directory.emplace(loaded);
      plan = directory->check([&] {
        Plan checked = planning();
        check_data(settings);
        return checked;
      });
      directory->prepare();
      world->store().put("run directory", dir);
      world->store().commit();
      prepared = true;
    } else {
      dir = world->store().get(0, "run directory", deadline_of(settings));
      prepared = true;
      start_up.check_configuration();
      plan = planning();
    }
    const auto size = tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), 1, world->ranks_on_node());
    log::info("train", "{} ranks as {} processes, {} on this node, {} threads an op", world->size(), world->kind(),
              world->ranks_on_node(), size.threads_per_op);
    if (rank == 0) say_armed(faults);
    trace::Flusher flusher(settings.trace.flush_s);
    tensor::MatmulCache matmuls;
    tensor::CpuPool pool(size);
    tensor::CpuDevice host(pool, matmuls);
    const bool on_gpu = settings.run.device == "cuda";
    const std::unique_ptr<tensor::Device> gpu =
        on_gpu ? tensor::make_cuda_device(gpu_of(*world), cuda_options(settings)) : nullptr;
    const Outcome outcome = run_rank(
        *plan, *world, start_up, gpu ? *gpu : host, host, flusher, faults,
        {.resolved = loaded.resolved, .fresh = options.fresh, .stop = &stop, .deadline = deadline_of(settings)}, step,
        tell);
    const watch::Verdict verdict = verdict_of(outcome);
    if (rank == 0) {
      watch::write_verdict(settings.run.dir, verdict);
      options.tell(outcome);
    }
    leaving.begin(std::min(deadline_of(settings), kDoneWithin), [rank, code = verdict.code] {
      const log::RankScope label_of_thread(rank);
      log::warn("train", "the run is done, and this process does not come to its end: it is ended");
      std::fflush(nullptr);
      _exit(static_cast<int>(code));
    });
    world.reset();
    return verdict.code;
  } catch (const Error& error) {
    const comm::World::Cause cause = world->cause().value_or(comm::World::Cause{rank, error});
    leaving.begin(cause);
    tell(cause);
    world->abort(error);  // after the verdict: telling the peers takes its time, and a launcher may be impatient
    world.reset();        // gives the news to the peers a moment to leave
    leave(cause, rank);
  }
}

}  // namespace ms::train
