// Fault injection for tests. MS_FAULT names the faults:
//   MS_FAULT="step=5 rank=3 node-bad; start node=n12 restart=1 exit"
// The launcher parses it once, before the run starts; ranks call Faults::at() at their injection points, which costs
// one branch if no fault is armed. The tables of fault.cpp define the words, and fault_manual() documents them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::watch {

enum class FaultPoint { start, step, data };
enum class FaultKind { node_bad, gpu_bad, storage, exit, kill, hang, spin, pause, slow, nan, flip };

struct Fault {
  FaultPoint point = FaultPoint::start;
  std::int64_t step = 0;  // from 0; for FaultPoint::step and data
  FaultKind kind = FaultKind::exit;
  double amount = 0;                // pause: seconds; slow: factor on the time of operations
  std::optional<int> rank = {};     // nullopt: every rank
  std::string node = {};            // short name of a host; empty: every node
  std::optional<int> restart = {};  // the restarts before this start, Slurm's or the driver's; nullopt: every start
  std::string text = {};            // as given in MS_FAULT
};

// Parses MS_FAULT. Throws Error("fault.syntax", user) on anything it does not know.
std::vector<Fault> parse_faults(std::string_view text);

// Returns the faults that the environment arms in this start of a run with this many ranks and steps. A fault that can
// never occur is refused with Error("fault.never", user), because a test with it would test nothing. `variable` is
// getenv, or a test's.
// `starts`: how often the run began in this process before.
std::vector<Fault> armed_faults(const std::function<const char*(const char*)>& variable, int ranks, std::int64_t steps,
                                int starts = 0);

// Returns the text on MS_FAULT for the manual's ENVIRONMENT section.
std::string fault_manual();

// The faults of one rank.
class Faults {
 public:
  Faults() = default;
  // `released` ends an injected hang, by an error: ranks as threads share a process, which could not exit otherwise. It
  // must outlive this object.
  Faults(const std::vector<Fault>& armed, int rank, std::string_view node, std::function<bool()> released);

  // Called by the rank at an injection point; returns unless a fault is armed for it.
  void at(FaultPoint point, std::int64_t step = 0) const {
    if (!faults_.empty()) strike(point, step);
  }
  // Returns the factor on the time of the rank's operations in this step; 1: no slowdown.
  double slowness(std::int64_t step) const;
  // Whether the rank's gradients of this step become NaN.
  bool spoils_gradients(std::int64_t step) const;
  // Whether the rank computes wrongly in the replay (guard.replay_every) that comes next.
  bool flips_bit(std::int64_t step) const;

 private:
  void strike(FaultPoint point, std::int64_t step) const;
  bool has(FaultKind kind, std::int64_t step) const;

  std::vector<Fault> faults_;
  int rank_ = 0;
  std::string node_;
  std::function<bool()> released_;
};

}  // namespace ms::watch
