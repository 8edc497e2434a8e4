// The dependencies of the flow around a job (act.h): Slurm, the clock, randomness, the checks and the log, as
// functions, so that its tests need none of them. prolog.cpp makes the real one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "health/policy.h"
#include "health/run/runner.h"
#include "slurm/commands.h"
#include "slurm/site.h"

namespace ms::health {

struct World {
  Clock& clock;
  std::function<double()> random;  // uniform in [0, 1), another on every node
  std::function<void(log::Level, const std::string&)> log;
  std::function<std::vector<Result>(const RunOptions&)> run_checks;  // level 1
  std::shared_ptr<const slurm::Commands> slurm;
  std::function<slurm::SiteFacts()> site_facts = {};
  std::string host = {};  // this machine's own name
  // Does the work in a process that outlives this one, with a World of its own that has minutes. Throws ms::Error where
  // there can be none.
  std::function<void(std::function<void(const World&)>)> afterwards = {};

  // Logs one line of printable ASCII: the text may quote a device, a file or Slurm.
  void say(log::Level level, std::string_view text) const;
  // Runs a step that must not stop the flow. Returns false if it throws; the error is logged.
  bool attempt(std::string_view what, const std::function<void()>& action) const;
};

}  // namespace ms::health
