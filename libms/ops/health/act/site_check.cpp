#include "health/act/site_check.h"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/sysroot.h"
#include "base/version.h"
#include "health/act/load_policy.h"
#include "health/act/prolog_time.h"
#include "health/evidence/gres_conf.h"
#include "health/evidence/processes.h"

namespace ms::health {
namespace {

// spank/plugin.cpp keeps a text of this form in its file, because a plugin of another Slurm cannot be loaded to be
// asked.
constexpr std::string_view kMark = "ms_spank built for slurm ";
constexpr std::size_t kMaxPlugstackBytes = 1 << 20;
constexpr int kMaxIncludeDepth = 8;

std::string read_or_empty(const std::string& path) {
  const Sysroot root;
  return root.read(path, kMaxPlugstackBytes).value_or("");
}

// plugstack.conf with what its "include" lines name, in their place.
std::vector<slurm::PlugstackLine> plugstack_of(const std::string& path, int depth) {
  std::vector<slurm::PlugstackLine> stack;
  for (slurm::PlugstackLine& line : slurm::parse_plugstack(read_or_empty(path))) {
    if (line.include.empty()) {
      stack.push_back(std::move(line));
      continue;
    }
    if (depth == kMaxIncludeDepth) continue;
    const std::string pattern =
        line.include.starts_with('/') ? line.include : parent_directory(path) + "/" + line.include;
    glob_t found{};
    if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
      for (std::size_t i = 0; i < found.gl_pathc; ++i) {
        for (slurm::PlugstackLine& more : plugstack_of(found.gl_pathv[i], depth + 1)) stack.push_back(std::move(more));
      }
    }
    ::globfree(&found);
  }
  return stack;
}

std::vector<std::string> gpu_files() {
  std::vector<std::string> files;
  glob_t found{};
  if (::glob("/dev/nvidia[0-9]*", 0, nullptr, &found) == 0)
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return files;
}

bool has_gpus(const GresConf& conf) {
  return conf.autodetect || std::ranges::any_of(conf.lines, [](const GresLine& line) { return line.name == "gpu"; });
}

// As a prolog would say it. Empty too where it cannot be told, as this user may not read it.
std::string policy_problem(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return "it is not there";
  if (::access(path.c_str(), R_OK) != 0) return {};
  try {
    load_policy_as_root(path);
    return {};
  } catch (const Error& error) { return error.message(); }
}

// Whether a slurmd is at work here that is older than the file.
bool is_slurmd_older_than(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  const double changed_s_ago = SystemClock().wall_s() - static_cast<double>(status.st_mtime);
  const Sysroot root;
  return std::ranges::any_of(root.list("/proc"), [&](const std::string& name) {
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) return false;
    const std::optional<Process> process = read_process(root, name);
    constexpr double kSlack_s = 2;  // ages are whole ticks, and the file's time a whole second
    return process && process->user == 0 && process->name == "slurmd" && process->age_s &&
           *process->age_s > changed_s_ago + kSlack_s;
  });
}

}  // namespace

unsigned plugin_version_of(const std::string& path) {
  const std::string bytes = Sysroot().read(path, std::size_t{16} << 20).value_or("");
  const std::size_t mark = bytes.find(kMark);
  if (mark == std::string::npos) return 0;
  return static_cast<unsigned>(std::strtoul(bytes.c_str() + mark + kMark.size(), nullptr, 16));
}

slurm::SiteFacts site_facts(const Policy& policy, const slurm::Commands& commands) {
  slurm::SiteFacts facts{.config = commands.config(),
                         .checks_s = policy.prolog.deadline_s,
                         .longest_prolog_s = longest_prolog_s(policy.prolog),
                         .ms_version = kVersion};
  const std::string stack = slurm::plugstack_path(facts.config);
  facts.plugin = slurm::our_plugin(plugstack_of(stack, 0));
  if (facts.plugin) {
    // If the plugin is not there, the judgement names the first file that Slurm looks for.
    const std::vector<std::string> files = slurm::plugin_files(facts.plugin->path, facts.config);
    const auto file = std::ranges::find_if(files, [](const auto& each) { return ::access(each.c_str(), F_OK) == 0; });
    if (!files.empty()) facts.plugin->path = file == files.end() ? files[0] : *file;
    facts.plugin_version = files.empty() ? 0 : plugin_version_of(facts.plugin->path);
    facts.is_slurmd_older = is_slurmd_older_than(stack);
    facts.has_program = facts.plugin->program.empty() || ::access(facts.plugin->program.c_str(), F_OK) == 0;
  }
  const auto health = facts.config.find("HealthCheckProgram");
  if (health != facts.config.end()) facts.has_health_program = ::access(health->second.c_str(), X_OK) == 0;
  const bool names_policy = facts.plugin && !facts.plugin->policy.empty();
  facts.policy = names_policy ? facts.plugin->policy : policy.file.empty() ? kPolicyPath : policy.file;
  facts.policy_problem = policy_problem(facts.policy);
  facts.has_policy = ::access(facts.policy.c_str(), F_OK) == 0;
  facts.node = node_name(Sysroot());
  facts.gpu_files = gpu_files();
  facts.gres_conf_has_gpus =
      has_gpus(read_gres_conf(Sysroot(), policy.paths.gres_conf, facts.node).value_or(GresConf{}));
  return facts;
}

}  // namespace ms::health
