// One list of names, used both for reading and for what is passed on. Every value is checked by the narrowest rule that
// what slurmd really writes satisfies; nothing is kept as free text.
#include "slurm/job_env.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>

#include "base/number.h"
#include "slurm/hostlist.h"

namespace ms::slurm {
namespace {

constexpr const char* kJobId = "SLURM_JOB_ID";
constexpr const char* kUserId = "SLURM_JOB_UID";
constexpr const char* kNode = "SLURMD_NODENAME";
constexpr std::array kNodes = {"SLURM_JOB_NODELIST", "SLURM_NODELIST"};
constexpr std::array kRestarts = {"SLURM_JOB_RESTART_COUNT", "SLURM_RESTART_COUNT"};
constexpr const char* kGpus = "SLURM_JOB_GPUS";
constexpr const char* kExitCode = "SLURM_JOB_EXIT_CODE";          // wait status
constexpr const char* kDerivedExitCode = "SLURM_JOB_DERIVED_EC";  // wait status, the largest of the steps
constexpr const char* kExitCode2 = "SLURM_JOB_EXIT_CODE2";        // "status:signal"
constexpr const char* kPreflight = "MS_PREFLIGHT";                // the plugin's own word, validated by it

constexpr const char* kTasksKilled = "MS_TASKS_KILLED";  // and another

constexpr int kMaxGpus = 1024;  // more than any node has

struct PreflightName {
  Preflight preflight;
  std::string_view name;
};
constexpr std::array<PreflightName, 4> kPreflightNames = {
    {{Preflight::by_default, ""}, {Preflight::on, "on"}, {Preflight::off, "off"}, {Preflight::require, "require"}}};

std::string_view value_of(const Getenv& getenv, const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  return text.starts_with('-') ? std::nullopt : whole_number<Number>(text);
}

// "0,2" or "0-3,6"
std::optional<std::vector<int>> parse_gpus(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::vector<int> gpus;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const std::size_t dash = part.find('-');
    const auto first = parse_number<int>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number<int>(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= kMaxGpus) return std::nullopt;
    for (int gpu = *first; gpu <= *last; ++gpu) gpus.push_back(gpu);
    if (comma == std::string_view::npos) return gpus;
    text.remove_prefix(comma + 1);
  }
}

// "3:9" as a wait status.
std::optional<int> parse_exit_code2(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto status = parse_number<std::uint8_t>(text.substr(0, colon));
  const auto signal = parse_number<std::uint8_t>(text.substr(colon + 1));
  if (!status || !signal || *signal > 127) return std::nullopt;
  return *status * 256 + *signal;
}

// slurmd prints the statuses as unsigned numbers; what is beyond an int is Slurm's "no value".
std::optional<int> exit_status_of(const Getenv& getenv) {
  const std::array statuses = {parse_number<int>(value_of(getenv, kExitCode)),
                               parse_number<int>(value_of(getenv, kDerivedExitCode)),
                               parse_exit_code2(value_of(getenv, kExitCode2))};
  return *std::max_element(statuses.begin(), statuses.end());  // an absent one is less than any other
}

}  // namespace

std::optional<Preflight> parse_preflight(std::string_view text) {
  for (const PreflightName& row : kPreflightNames) {
    if (row.name == text) return row.preflight;
  }
  return std::nullopt;
}

bool JobEnv::is_batch_host() const {
  const auto hosts = expand_hostlist(nodes);
  return hosts && !hosts->empty() && hosts->front() == node;
}

std::string this_node() {
  const char* const named = std::getenv(kNode);
  if (named != nullptr && is_host_name(named)) return named;
  std::array<char, HOST_NAME_MAX + 1> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string name = host.data();
  return name.substr(0, name.find('.'));
}

std::optional<JobEnv> read_job_env(const Getenv& getenv) {
  JobEnv job;
  const auto id = parse_number<std::uint32_t>(value_of(getenv, kJobId));
  const std::string_view node = value_of(getenv, kNode);
  if (!id || *id == 0 || !is_host_name(node)) return std::nullopt;
  job.job_id = *id;
  job.node = node;
  job.user_id = parse_number<std::uint32_t>(value_of(getenv, kUserId)).value_or(job.user_id);
  for (const char* name : kNodes) {
    const std::string_view nodes = value_of(getenv, name);
    if (job.nodes.empty() && expand_hostlist(nodes)) job.nodes = nodes;
  }
  for (const char* name : kRestarts) {
    if (const auto restarts = parse_number<int>(value_of(getenv, name))) {
      job.restarts = *restarts;
      break;
    }
  }
  job.gpus = parse_gpus(value_of(getenv, kGpus));
  job.exit_status = exit_status_of(getenv);
  job.tasks_killed = value_of(getenv, kTasksKilled) == "1";
  job.preflight = parse_preflight(value_of(getenv, kPreflight)).value_or(Preflight::by_default);
  return job;
}

std::vector<std::string> job_env_names() {
  std::vector<std::string> names = {kJobId,           kUserId,    kNode,      kGpus,       kExitCode,
                                    kDerivedExitCode, kExitCode2, kPreflight, kTasksKilled};
  names.insert(names.end(), kNodes.begin(), kNodes.end());
  names.insert(names.end(), kRestarts.begin(), kRestarts.end());
  return names;
}

}  // namespace ms::slurm
