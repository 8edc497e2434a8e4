// A failed run leaves a verdict, evidence of what its processes did, and the cause on the terminal.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/world.h"
#include "train/config.h"
#include "train/run/shutdown.h"
#include "watch/evidence.h"

namespace ms::train {

// Writes the first cause of a failed run, with the rank that it accuses. Returns false where another rank's cause was
// first.
bool write_failure(const std::string& dir, const std::string& nonce, const comm::World& world,
                   const comm::World::Cause& cause, std::int64_t step);

// Returns a witness of the world's failure that has what the process does taken down when a wait of the run expires.
// `here`: a rank of each process of this node; the first that is not at fault has the devices looked at.
comm::World::Witness keeps_evidence(const comm::World& world, const std::vector<int>& here,
                                    const std::shared_ptr<watch::Evidence>& evidence);

// Prints where the evidence is. `path`: of this process's; empty: there is none.
void say_evidence(const Settings& settings, const std::string& path);

// Reports the failure of an MPI run: writes the verdict and prints the cause, once for the whole run.
class FailureReport {
 public:
  FailureReport(comm::World& world, const Settings& settings, std::string nonce, std::chrono::milliseconds deadline)
      : world_(world), settings_(settings), dir_(settings.run.dir), nonce_(std::move(nonce)), deadline_(deadline) {}

  // From now on the world's failure is reported by `shutdown`, on its thread: at once where there can be a verdict.
  void begin(ShutdownWatch& shutdown);
  // The run directory exists, without the verdict of the run before. `dir` is rank 0's.
  void prepared(std::string dir) {
    dir_ = std::move(dir);
    prepared_ = true;
  }
  std::atomic<std::int64_t>& step() { return step_; }

  void operator()(const comm::World::Cause& cause);

 private:
  comm::World& world_;
  const Settings& settings_;
  std::string dir_;
  const std::string nonce_;
  const std::chrono::milliseconds deadline_;
  std::atomic<std::int64_t> step_ = 0;
  const std::shared_ptr<watch::Evidence> evidence_ = std::make_shared<watch::Evidence>();
  std::timed_mutex mutex_;
  std::atomic<bool> prepared_ = false;
  bool reported_ = false;
};

}  // namespace ms::train
