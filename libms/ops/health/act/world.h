// The dependencies of the flow around a job (act.h): Slurm, the clock, randomness, the checks and the log, as
// functions, so that its tests need none of them. prolog.cpp makes the real one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "health/policy.h"
#include "health/run/runner.h"
#include "slurm/records.h"
#include "slurm/site.h"

namespace ms::health {

// As slurm/commands.h has them. Each throws ms::Error where Slurm does not answer, and all of them do when left_s() is
// used up: for all calls together, from the making of this on.
struct SlurmCalls {
  std::function<slurm::SiteFacts()> site_facts;
  std::function<slurm::Node(const std::string&)> node;
  std::function<std::vector<slurm::Node>()> nodes;
  std::function<slurm::Job(std::uint32_t)> job;
  std::function<void(const std::string& node, const std::string& reason)> drain;
  std::function<void(const std::string& node)> resume;
  std::function<void(std::uint32_t job, const std::string& text)> set_admin_comment;
  std::function<void(std::uint32_t job, const std::string& text)> notify;
  std::function<void(std::uint32_t job)> requeue;
  std::function<double()> left_s;
};

struct World {
  Clock& clock;
  std::function<double()> random;  // uniform in [0, 1), another on every node
  std::function<void(log::Level, const std::string&)> log;
  std::function<std::vector<Result>(const RunOptions&)> run_checks;  // level 1
  SlurmCalls slurm;
  std::string host = {};  // this machine's own name
  // Does the work in a process that outlives this one, with a World of its own that has minutes. Throws ms::Error where
  // there can be none.
  std::function<void(std::function<void(const World&)>)> afterwards = {};

  // Logs one line of printable ASCII: the text may quote a device, a file or Slurm.
  void say(log::Level level, std::string_view text) const;
  // Runs a step that must not stop the flow. Returns false if it throws; the error is logged.
  bool attempt(std::string_view what, const std::function<void()>& action) const;
};

struct SlurmTime {
  double total_s = 0;
  double call_s = 0;
};

// The calls through scontrol.
SlurmCalls slurm_calls(const Policy& policy, Clock& clock, const SlurmTime& time);

}  // namespace ms::health
