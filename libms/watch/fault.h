// Fault injection: a run breaks on purpose, so that tests see what happens then. MS_FAULT names the faults:
//   MS_FAULT="step=5 rank=3 node-bad; start node=n12 restart=1 exit"
// The launcher reads it once, before anything starts; ranks ask at their points, which costs one branch where nothing
// is armed. What a word means stands in the tables of fault.cpp, from which fault_manual() is made.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::watch {

enum class FaultPoint { start, step, data };
enum class FaultKind { node_bad, gpu_bad, storage, exit, kill, hang, pause, slow };

struct Fault {
  FaultPoint point = FaultPoint::start;
  std::int64_t step = 0;  // counted from 0, of FaultPoint::step and data
  FaultKind kind = FaultKind::exit;
  double amount = 0;                // of a pause, seconds; of slow, how many times as long an operation takes
  std::optional<int> rank = {};     // nullopt: every rank
  std::string node = {};            // short name of a host, empty: every node
  std::optional<int> restart = {};  // the start of the job, as SLURM_RESTART_COUNT counts; nullopt: every start
  std::string text = {};            // as it was asked for
};

// Strict: throws Error("fault.syntax", user) with what is wrong.
std::vector<Fault> parse_faults(std::string_view text);

// What the environment arms in this start of a run of so many ranks and steps. A fault that could never strike is
// refused, Error("fault.never", user): a test with it would test nothing. `variable` is getenv, or a test's.
std::vector<Fault> armed_faults(const std::function<const char*(const char*)>& variable, int ranks, std::int64_t steps);

// For ENVIRONMENT in the manual.
std::string fault_manual();

// The faults of one rank.
class Faults {
 public:
  Faults() = default;
  // `released` ends a hang, by an error: where ranks are threads, the process of the others could not end without. It
  // outlives this.
  Faults(const std::vector<Fault>& armed, int rank, std::string_view node, std::function<bool()> released);

  // The rank is at this point: returns, unless a fault strikes here.
  void at(FaultPoint point, std::int64_t step = 0) const {
    if (!faults_.empty()) strike(point, step);
  }
  // How many times as long the rank's operations take in this step; 1: no longer than they should.
  double slowness(std::int64_t step) const;

 private:
  void strike(FaultPoint point, std::int64_t step) const;

  std::vector<Fault> faults_;
  int rank_ = 0;
  std::string node_;
  std::function<bool()> released_;
};

}  // namespace ms::watch
