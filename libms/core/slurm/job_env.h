// The environment that slurmd gives a prolog or an epilog. The user wrote parts of it (job names, working directories,
// options): only the variables that are read here are trusted, and only in their narrow form. Everything else is never
// passed on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::slurm {

// The user's choice at submission.
enum class Preflight { by_default, on, off, require };
std::optional<Preflight> parse_preflight(std::string_view text);  // "", "on", "off", "require"; nullopt: anything else

struct JobEnv {
  std::uint32_t job_id = 0;
  std::uint32_t user_id = 65534;         // nobody, where Slurm does not say
  std::string node;                      // SLURMD_NODENAME
  std::string nodes;                     // hostlist of the job, empty where it was no hostlist
  int restarts = 0;                      // SLURM_JOB_RESTART_COUNT or SLURM_RESTART_COUNT
  std::optional<std::vector<int>> gpus;  // SLURM_JOB_GPUS; nullopt: Slurm did not say
  std::optional<int> exit_status;  // epilog: the larger of the job's and its steps' (wait status, as Slurm gives it)
  bool tasks_killed = false;       // epilog: a signal ended tasks of it on this node, as cancel and requeue do
  Preflight preflight = Preflight::by_default;

  bool is_batch_host() const;  // the first of nodes
};

using Getenv = std::function<const char*(const char*)>;  // std::getenv, or a table in tests

// The name by which Slurm knows this node: SLURMD_NODENAME where slurmd gave it, otherwise the host's up to the first
// dot.
std::string this_node();

// Malformed values count as absent. nullopt: there is no job id or no node name.
std::optional<JobEnv> read_job_env(const Getenv& getenv);

// The names of all variables that read_job_env looks at: what the plugin passes on, and nothing else.
std::vector<std::string> job_env_names();

}  // namespace ms::slurm
