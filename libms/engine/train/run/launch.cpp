#include "train/run/launch.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/print.h"
#include "base/text.h"
#include "base/unexpected.h"
#include "comm/mpi_world.h"
#include "comm/roll_call.h"
#include "comm/start_nonce.h"
#include "comm/thread_world.h"
#include "slurm/launch.h"
#include "train/run/data_feed.h"
#include "train/run/failure_report.h"
#include "train/run/gpu_environment.h"
#include "train/run/host_check.h"
#include "train/run/inputs.h"
#include "train/run/process.h"
#include "train/run/run_directory.h"
#include "train/run/shutdown.h"
#include "watch/evidence.h"

namespace ms::train {
namespace {

constexpr int kMaxThreadRanks = 1024, kMaxRanksOfGpu = 128;
constexpr std::chrono::milliseconds kTakenWithin{2'000};  // for the survivor that takes the run directory
constexpr std::chrono::milliseconds kDoneWithin{30'000};  // for a process whose run is done to exit

std::chrono::milliseconds deadline_of(const Settings& settings) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(settings.run.comm_timeout_s * 1e3));
}

watch::Verdict verdict_without_failure(const Outcome& outcome) {
  if (outcome.rolled_back) return watch::verdict_rolled_back(outcome.steps, outcome.stop_cause, outcome.checkpoint);
  return outcome.stopped ? watch::verdict_stopped(outcome.steps, outcome.stop_cause, outcome.checkpoint)
                         : watch::verdict_done(outcome.steps);
}

// Writes the verdict of a run without failure. Rank 0 calls it.
void conclude(const Outcome& outcome, const std::string& dir, const std::string& nonce, const LaunchOptions& options) {
  const watch::Verdict verdict = verdict_without_failure(outcome);
  watch::write_verdict(dir, nonce, verdict);
  if (outcome.stopped) log::warn("train", "{}", verdict.message);
  options.report(outcome);
}

// Checks a run before its ranks start, and prepares its directory, where it has one. Its settings are checked first, as
// a wrong mesh is the likelier mistake, and the cheaper to find; ranks as threads must fit into this node's memory.
Checked check_and_prepare(const Loaded& loaded, const std::string& nonce, int ranks, const LaunchOptions& options,
                          bool as_threads, std::optional<RunDirectory>& directory) {
  if (options.inference != nullptr) return check_inference(loaded.settings, ranks, *options.inference);
  if (!directory) directory.emplace(loaded, nonce);
  return directory->check([&] {
    Checked all = check_run(loaded.settings, ranks, options.starts);
    check_inputs(loaded, options.fresh);
    check_threads(all.cpu_threads, tensor::CpuPool::usable_cores());
    if (!loaded.settings.checkpoint.memory_dir.empty()) check_memory_dir(loaded.settings.checkpoint.memory_dir);
    if (as_threads && loaded.settings.run.device == "cpu") check_host_memory(all.plan, host_memory(Sysroot()));
    directory->prepare();
    return all;
  });
}

struct Ended {
  ExitCode code = ExitCode::done;
  bool again = false;  // in this process: the guard has rolled back
};

Ended run_threads(const Loaded& loaded, const LaunchOptions& options, const TrainerOptions& trainer) {
  const Settings& settings = loaded.settings;
  const int ranks = static_cast<int>(settings.mesh.ranks());
  if (ranks > kMaxThreadRanks) {
    throw user_error("mesh.size", fmt::format("{} ranks as threads of one process, at most {}", ranks, kMaxThreadRanks),
                     "start processes with mpirun or srun --mpi=pmix");
  }
  if (settings.run.device == "cuda" && ranks > kMaxRanksOfGpu)
    throw user_error("mesh.size", fmt::format("{} ranks share a GPU, at most {} can", ranks, kMaxRanksOfGpu),
                     "start one process for each GPU with mpirun or srun --mpi=pmix");
  const std::string nonce = comm::this_start_nonce();
  std::optional<RunDirectory> directory;
  Checked checked = check_and_prepare(loaded, nonce, ranks, options, true, directory);
  std::optional<Process> made;
  std::optional<comm::ThreadHub> hub;
  const auto make = [&] {  // what starts threads
    made.emplace(std::move(checked), trainer, options.inference, ranks, ranks);
    hub.emplace(ranks, trainer.deadline);
  };
  directory ? directory->check(make) : make();
  Process& process = *made;
  if (settings.run.device == "cpu")
    log::info("train", "{} as threads, {}, {} an op, {}", plural(ranks, "rank"),
              plural(process.pool_size().workers, "worker"), plural(process.pool_size().threads_per_op, "thread"),
              to_string(tensor::cpu_isa()));
  process.log_faults();

  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::atomic<std::int64_t>> steps(static_cast<std::size_t>(ranks));
  std::atomic<bool> failed = false;
  std::vector<std::unique_ptr<comm::World>> worlds;
  for (int rank = 0; rank < ranks; ++rank) worlds.push_back(hub->world(rank));
  const auto evidence = std::make_shared<watch::Evidence>();
  worlds.front()->before_stop(keeps_evidence(*worlds.front(), {0}, evidence));
  {
    std::vector<std::jthread> threads;
    const auto start = [&](int rank) {
      threads.emplace_back([&, rank] {
        const log::RankScope label(rank);
        pthread_setname_np(pthread_self(), fmt::format("rank {}", rank).c_str());
        const auto index = static_cast<std::size_t>(rank);
        comm::World* const world = worlds[index].get();
        try {
          Process::Devices devices = process.make_devices(*world);
          StartUp start_up(*world, loaded.values, trainer.deadline);
          outcomes[index] = process.run_rank(*world, devices, start_up, steps[index], {});
        } catch (const std::exception& thrown) {
          // The hub keeps the first cause, which run_rank() has passed on where it came so far.
          world->abort(error_of(thrown, "train.bug"));
          failed = true;
        }
      });
    };
    for (int rank = 0; rank < ranks && !failed; ++rank) {
      try {
        start(rank);
      } catch (const std::exception& refused) {  // those that run already would wait for it
        worlds.front()->abort(error_of(refused, "train.bug"));
        failed = true;
      }
    }
  }
  if (failed) {
    const comm::World& world = *worlds.front();
    const comm::World::Cause cause = world.cause().value();
    if (directory) {
      write_failure(settings.run.dir, nonce, world, cause, steps[static_cast<std::size_t>(cause.rank)]);
      say_evidence(settings, evidence->write(settings.run.dir, nonce, "ranks.txt"));
      evidence->write_devices(settings.run.dir, nonce, world.node(0));
    }
    throw cause.error.with_context(fmt::format("rank {}", cause.rank));
  }
  const Outcome& outcome = outcomes.front();
  const bool again = outcome.rolled_back && !outcome.asked && !trainer.stop->asked();
  if (directory && !again) conclude(outcome, settings.run.dir, nonce, options);
  return {.code = verdict_without_failure(outcome).code, .again = again};
}

// Exits with the cause's own code, so that srun and mpirun, which report one of many, report what happened. But only
// the node where it happened is at fault.
[[noreturn]] void exit_failed(const comm::World::Cause& cause, int rank) {
  std::fflush(nullptr);
  const ExitCode code = exit_code(cause.error.blame());
  _exit(static_cast<int>(code == ExitCode::node_fault && cause.rank != rank ? ExitCode::peer_lost : code));
}

// Checks the run: rank 0 with its data, then the others against rank 0. Collective over the world; `directory` becomes
// rank 0's.
Checked check_together(const Loaded& loaded, const std::string& nonce, const LaunchOptions& options, comm::World& world,
                       StartUp& start_up, FailureReport& report, std::optional<RunDirectory>& directory) {
  const Settings& settings = loaded.settings;
  if (options.inference != nullptr) {
    start_up.check_configuration();
    return check_inference(settings, world.size(), *options.inference);
  }
  if (world.rank() == 0) {
    Checked checked = check_and_prepare(loaded, nonce, world.size(), options, false, directory);
    world.store().put("run directory", settings.run.dir);
    world.store().commit();
    report.prepared(settings.run.dir);
    return checked;
  }
  report.prepared(world.store().get(0, "run directory", deadline_of(settings)));
  start_up.check_configuration();
  return check_run(settings, world.size());
}

// Takes the run's directory before the ranks can talk to each other, where it is free. Why it is not is said later.
void take_directory(const Loaded& loaded, const std::string& nonce, bool make, std::optional<RunDirectory>& directory) {
  try {
    directory.emplace(loaded, nonce);
    if (make) directory->prepare();
  } catch (const Error&) { directory.reset(); }
}

// Joins the world. Where ranks are missing, this one writes the verdict: into the directory that rank 0 has taken, or,
// where that never came so far, into one that it takes itself.
std::unique_ptr<comm::World> join_world(const Loaded& loaded, const std::string& nonce, const LaunchOptions& options,
                                        std::chrono::milliseconds deadline, std::optional<RunDirectory>& directory) {
  const int rank = slurm::this_launch().rank;
  const std::string& dir = loaded.settings.run.dir;
  const bool has_directory = options.inference == nullptr;
  if (rank == 0 && has_directory) take_directory(loaded, nonce, false, directory);
  try {
    return comm::make_mpi_world(deadline);
  } catch (const Error& error) {
    if (error.blame() != Blame::peer) throw;
    watch::begin_ending();
    // Survivors come here together, and one of them takes it.
    const auto end = std::chrono::steady_clock::now() + kTakenWithin;
    while (has_directory && !watch::is_start(dir, nonce) && std::chrono::steady_clock::now() < end) {
      take_directory(loaded, nonce, true, directory);
      if (!directory) std::this_thread::sleep_for(kTakenWithin / 20);
    }
    const auto* missing = dynamic_cast<const comm::MissingRank*>(&error);
    const watch::Verdict verdict =
        watch::verdict_of(error, error.rank().value_or(-1), missing == nullptr ? "" : missing->node(), 0);
    if (!has_directory || watch::write_verdict(dir, nonce, verdict) || !watch::has_verdict(dir, nonce)) {
      print_err("ms-train: error: rank {}: {}\n", rank, error.message());
    }
    std::fflush(nullptr);
    _exit(static_cast<int>(verdict.code));  // MPI_Init has a thread that may never return
  }
}

ExitCode run_mpi(const Loaded& loaded, const LaunchOptions& options, const TrainerOptions& trainer) {
  const std::string nonce = comm::this_start_nonce();
  std::optional<RunDirectory> directory;  // on rank 0
  std::unique_ptr<comm::World> world = join_world(loaded, nonce, options, trainer.deadline, directory);
  const int rank = world->rank();
  const log::RankScope label(rank);
  FailureReport report(*world, loaded.settings, nonce, trainer.deadline);
  const auto report_cause = [&report](const comm::World::Cause& cause) { report(cause); };
  ShutdownWatch shutdown(trainer.deadline, report_cause, [rank](const comm::World::Cause& cause) {
    const log::RankScope label_of_thread(rank);
    log::error("train", "the run has failed, and this process does not come to its end: it is ended");
    exit_failed(cause, rank);
  });
  report.begin(shutdown);
  try {
    StartUp start_up(*world, loaded.values, trainer.deadline);
    Process process(check_together(loaded, nonce, options, *world, start_up, report, directory), trainer,
                    options.inference, 1, world->ranks_on_node());
    log::info("train", "{} as {} processes, {} on this node, {} an op, {}", plural(world->size(), "rank"),
              world->kind(), world->ranks_on_node(), plural(process.pool_size().threads_per_op, "thread"),
              to_string(tensor::cpu_isa()));
    if (rank == 0) process.log_faults();
    Process::Devices devices = process.make_devices(*world);
    const Outcome outcome = process.run_rank(*world, devices, start_up, report.step(), report_cause);
    if (directory) conclude(outcome, loaded.settings.run.dir, nonce, options);
    const ExitCode code = verdict_without_failure(outcome).code;
    shutdown.begin_done(std::min(trainer.deadline, kDoneWithin), [rank, code] {
      const log::RankScope label_of_thread(rank);
      log::warn("train", "the run is done, but this process does not exit: it is ended");
      std::fflush(nullptr);
      _exit(static_cast<int>(code));
    });
    world.reset();
    return code;
  } catch (const std::exception& thrown) {
    const Error error = error_of(thrown, "train.bug");
    const comm::World::Cause cause = world->cause().value_or(comm::World::Cause{rank, error});
    shutdown.begin_failed(cause, {});
    report(cause);
    world->abort(error);  // after the verdict: telling the peers takes time, and the launcher may not wait for it
    world.reset();        // gives the abort a moment to reach the peers
    exit_failed(cause, rank);
  }
}

}  // namespace

ExitCode launch(const Loaded& loaded, const LaunchOptions& options) {
  if (const std::string_view other = slurm::other_launcher(); !other.empty()) {
    throw user_error(
        "comm.launch",
        fmt::format("{} has started several processes, and each would train by itself: they cannot find "
                    "each other",
                    other),
        "start them with Open MPI's mpirun or with srun --mpi=pmix, or start one process with ranks as threads");
  }
  const bool processes = slurm::this_launch().size > 1;
  if (processes && loaded.settings.run.device == "cuda") set_gpu_environment(loaded.settings.run);
  std::optional<watch::StopRequest> stop;  // of all rounds: a signal between two of them asks for a stop, too
  for (LaunchOptions round = options;; round.fresh = false, ++round.starts) {
    // Both before MPI starts threads, and the loader first: what is forked later inherits blocked signals, which the
    // loaders of later rounds ignore anyway.
    std::optional<data::LoaderProcess> loader;
    if (options.inference == nullptr) {
      loader.emplace([&] { return std::make_unique<data::Loader>(open_data(loaded.settings)); });
    } else if (options.inference->data) {
      loader.emplace(options.inference->data);
    }
    if (!stop) stop.emplace();
    const TrainerOptions trainer{.resolved = loaded.resolved,
                                 .fresh = round.fresh,
                                 .stop = &*stop,
                                 .goes_on = round.starts > 0,
                                 .loader = loader ? &*loader : nullptr,
                                 .deadline = deadline_of(loaded.settings)};
    if (processes) return run_mpi(loaded, round, trainer);
    if (const Ended ended = run_threads(loaded, round, trainer); !ended.again) return ended.code;
  }
}

ExitCode launch_inference(const Loaded& loaded, const Inference& inference) {
  // A mesh of another size is refused while there is still one message for all.
  if (const int size = slurm::this_launch().size; size > 1) check_inference(loaded.settings, size, inference);
  return launch(loaded, {.inference = &inference});
}

}  // namespace ms::train
