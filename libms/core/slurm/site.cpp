// Every rule is a function over the facts that may add a finding. What hurts jobs is critical, and ms-diag refuses to
// act; what only costs time or clarity is a warning.
#include "slurm/site.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "base/number.h"
#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::slurm {
namespace {

// 22.05 lost failures of plugins' prologs before this one.
constexpr unsigned kOldestSlurm = 0x160503;
constexpr double kDefaultCredExpire_s = 120;
constexpr double kLeastCredExpire_s = 5;  // Slurm takes the default for anything less
constexpr double kLongDelay_s = 60;       // of a requeued job
constexpr double kDefaultHealthTimeout_s = 60;
constexpr double kNoTimeout = 65534;  // how Slurm 22.05 shows an unlimited time
constexpr std::string_view kPrologName = "ms-prolog";
constexpr const char* kSlurmConf = "slurm.conf";

// A line of a file of Slurm's; without a file it is what to do by hand.
struct SiteLine {
  std::string file;
  std::string text;
  friend bool operator==(const SiteLine&, const SiteLine&) = default;
};

struct Problems {
  std::vector<Finding> findings;
  std::vector<SiteLine> lines;
};

void add_finding(Problems& problems, std::string code, Severity severity, std::string_view entity, std::string message,
                 std::string remedy) {
  Finding finding;
  finding.code = "site." + std::move(code);
  finding.severity = severity;
  finding.blame = Blame::slurm;
  finding.entity = entity;
  finding.message = std::move(message);
  finding.remedy = std::move(remedy);
  problems.findings.push_back(std::move(finding));
}

// A problem that no line of configuration mends.
void add(Problems& problems, std::string code, Severity severity, std::string_view entity, std::string message,
         std::string remedy) {
  problems.lines.push_back({.file = "", .text = fmt::format("site.{} {}: {}", code, entity, remedy)});
  add_finding(problems, std::move(code), severity, entity, std::move(message), std::move(remedy));
}

// A problem that a line mends; `more` is said behind the line.
void add(Problems& problems, std::string code, Severity severity, std::string_view entity, std::string message,
         SiteLine line, std::string_view more = "") {
  add_finding(problems, std::move(code), severity, entity, std::move(message),
              fmt::format("write {} in {}{}", line.text, line.file, more));
  if (std::find(problems.lines.begin(), problems.lines.end(), line) == problems.lines.end()) {
    problems.lines.push_back(std::move(line));
  }
}

std::string value_of(const Config& config, std::string_view key) {
  const auto found = config.find(key);
  return found == config.end() ? std::string{} : found->second;
}

// "10 sec" -> 10
std::optional<double> seconds_of(const Config& config, std::string_view key) {
  return leading_number<unsigned>(value_of(config, key));
}

bool same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

bool has_word(const std::vector<std::string>& words, std::string_view word) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& other) { return same_word(other, word); });
}

// The line to write: what is there, and the words that are missing.
SiteLine line_with(std::string_view key, std::vector<std::string> words, const std::vector<std::string>& more) {
  for (const std::string& word : more) {
    if (!has_word(words, word)) words.push_back(word);
  }
  return {.file = kSlurmConf, .text = fmt::format("{}={}", key, fmt::join(words, ","))};
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Prolog=, or Prolog[0]=, Prolog[1]= of newer versions.
std::vector<std::string> prologs(const Config& config) {
  std::vector<std::string> programs;
  for (const auto& [key, value] : config) {
    if ((key == "Prolog" || key.starts_with("Prolog[")) && !value.empty()) programs.push_back(value);
  }
  return programs;
}

void check_version(const SiteFacts& facts, Problems& problems) {
  const std::string text = value_of(facts.config, "SLURM_VERSION");
  const unsigned version = version_number(text);
  if (version == 0) {
    add(problems, "version", Severity::critical, "SLURM_VERSION",
        fmt::format("Slurm's version '{}' cannot be read, so nothing is known of how it treats prologs", text),
        "see what scontrol show config prints as SLURM_VERSION");
  } else if (version < kOldestSlurm) {
    add(problems, "version", Severity::critical, "SLURM_VERSION",
        fmt::format("Slurm {} does not see that a plugin's prolog failed", text), "update Slurm to 22.05.3 or newer");
  }
}

void check_plugin(const SiteFacts& facts, Problems& problems) {
  const std::string slurm_text = value_of(facts.config, "SLURM_VERSION");
  const unsigned slurm_version = version_number(slurm_text);
  const bool has_plugin = facts.plugin.has_value();
  const std::string path = has_plugin ? facts.plugin->path : "";
  const std::vector<std::string> programs = prologs(facts.config);
  const bool has_prolog =
      std::any_of(programs.begin(), programs.end(), [](auto& program) { return base_name(program) == kPrologName; });

  if (has_plugin && facts.plugin_version == 0) {
    add(problems, "abi", Severity::critical, path, "it cannot be read or is no Slurm plugin, so Slurm will not load it",
        fmt::format("install the ms_spank.so of ms {} there, readable by root on every node", facts.ms_version));
  } else if (has_plugin && slurm_version != 0 && facts.plugin_version >> 8 != slurm_version >> 8) {
    add(problems, "abi", Severity::critical, path,
        fmt::format("it is built for Slurm {}.{:02}, this is Slurm {}: Slurm will not load it",
                    facts.plugin_version >> 16, facts.plugin_version >> 8 & 0xff, slurm_text),
        fmt::format("build ms_spank.so of ms {} with the headers of Slurm {}", facts.ms_version, slurm_text));
  }
  if (has_plugin && !facts.has_program) {
    add(problems, "program", Severity::critical, facts.plugin->program,
        "it is not there, so nothing is checked before jobs",
        fmt::format("install ms-diag there, or correct program= of {} in plugstack.conf", path));
  }
  if (has_plugin && facts.plugin->required) {
    add(problems, "required", Severity::warning, path,
        "it is 'required': when Slurm cannot load it, after an update for example, every job fails",
        fmt::format("write 'optional {} ...' in plugstack.conf: it works as optional", path));
  }
  if (has_plugin && facts.is_slurmd_older) {
    add(problems, "restart", Severity::critical, path, "slurmd here is older than plugstack.conf, which it reads once",
        "restart slurmd on every node, and slurmctld");
  }
  if (has_plugin && has_prolog) {
    add(problems, "twice", Severity::warning, "Prolog", "the plugin and Prolog= both check every node before every job",
        "take ms-prolog out of Prolog= in slurm.conf, or the plugin out of plugstack.conf");
  }
  if (has_plugin || has_prolog) return;
  if (programs.empty() && facts.own_plugin.empty()) {
    add(problems, "none", Severity::critical, "plugstack.conf", "neither the plugin nor ms-prolog runs before jobs",
        "install ms_spank.so, which is not beside this ms-diag (package ms-spank), and name it in plugstack.conf, or "
        "write Prolog= with the path of ms-prolog in slurm.conf");
  } else if (programs.empty()) {
    add(problems, "none", Severity::critical, "plugstack.conf", "neither the plugin nor ms-prolog runs before jobs",
        SiteLine{.file = "plugstack.conf",
                 .text = fmt::format("optional {} config=/etc/ms/ms-diag.toml", facts.own_plugin)},
        ", or Prolog= with the path of ms-prolog in slurm.conf");
  } else {
    add(problems, "none", Severity::warning, "Prolog",
        fmt::format("there is no plugin, and whether {} runs ms-prolog cannot be seen from here", programs.front()),
        "see that it runs ms-prolog and ends with its exit status");
  }
}

// Without a policy the prolog checks nothing and lets the job start.
void check_policy(const SiteFacts& facts, Problems& problems) {
  if (facts.policy_problem.empty()) return;
  add(problems, "policy", Severity::critical, facts.policy,
      facts.policy_problem + ": jobs start without a check, even with --ms-preflight=require",
      facts.has_policy ? "mend this file on every node, as root; its settings need not change"
                       : fmt::format("on every node, as root: ms-diag --sample-policy >{}", facts.policy));
}

void check_flags(const SiteFacts& facts, Problems& problems) {
  const std::vector<std::string> flags = split(value_of(facts.config, "PrologFlags"), ',');
  const SiteLine remedy = line_with("PrologFlags", flags, {"Alloc", "DeferBatch"});
  if (!has_word(flags, "Alloc") && !has_word(flags, "Contain")) {  // Contain includes it
    add(problems, "alloc", Severity::critical, "PrologFlags",
        "without Alloc a node runs its prolog when the first step lands there, in the middle of the job", remedy);
  }
  if (!has_word(flags, "DeferBatch")) {
    add(problems, "deferbatch", Severity::warning, "PrologFlags",
        "without DeferBatch the batch script begins while other nodes are still being checked", remedy);
  }
  const std::vector<std::string> parameters = split(value_of(facts.config, "SchedulerParameters"), ',');
  if (!has_word(parameters, "nohold_on_prolog_fail")) {
    add(problems, "hold", Severity::critical, "SchedulerParameters",
        "without nohold_on_prolog_fail a requeued job is held until somebody releases it",
        line_with("SchedulerParameters", parameters, {"nohold_on_prolog_fail"}));
  }
}

// Whoever starts ms-diag ends it in time. That must not happen in the middle of a drain.
void check_deadline(const SiteFacts& facts, Problems& problems) {
  const double deadline_s = facts.plugin ? facts.plugin->deadline_s : kPluginDeadline_s;
  if (facts.plugin && deadline_s == 0) {
    add(problems, "deadline", Severity::critical, facts.plugin->path,
        "its deadline= is no whole number of seconds from 1 to 600, so it does nothing",
        fmt::format("leave deadline= out in plugstack.conf, for {} s", kPluginDeadline_s));
    return;
  }
  if (deadline_s > facts.longest_prolog_s) return;
  std::string remedy = "write a shorter prolog.deadline in ms-diag.toml";
  if (facts.plugin) {
    remedy =
        fmt::format("write deadline={} on its line in plugstack.conf, or a shorter prolog.deadline in ms-diag.toml",
                    static_cast<long>(facts.longest_prolog_s) + 1);
  }
  add(problems, "deadline", Severity::critical, facts.plugin ? facts.plugin->path : std::string(kPrologName),
      fmt::format("it ends ms-diag after {} s, but ms-diag may take {:g} s: it could be ended in the middle of a drain",
                  deadline_s, facts.longest_prolog_s),
      remedy);
  Finding& finding = problems.findings.back();
  finding.measured = deadline_s;
  finding.limit = facts.longest_prolog_s;
  finding.unit = "s";
}

// Slurm's own time-outs, which the whole prolog must stay below.
struct TimeoutRule {
  std::string_view key;
  double by_default_s;  // where Slurm shows none; 0: there is none
  std::string_view consequence;
};
constexpr std::array<TimeoutRule, 4> kTimeouts = {{
    {"PrologEpilogTimeout", 0, "kills it and drains the node"},
    {"PrologTimeout", 0, "kills it and drains the node"},
    {"EpilogTimeout", 0, "kills it and drains the node"},
    // Later by MessageTimeout, and only if the node happens to register meanwhile.
    {"BatchStartTimeout", 10, "takes the job for lost, starts it again, kills the prolog and drains the node"},
}};

void check_timeouts(const SiteFacts& facts, Problems& problems) {
  const double ours_s = facts.plugin ? facts.plugin->deadline_s : kPluginDeadline_s;
  for (const TimeoutRule& rule : kTimeouts) {
    const double theirs_s = seconds_of(facts.config, rule.key).value_or(rule.by_default_s);
    if (theirs_s == 0 || theirs_s >= kNoTimeout || ours_s < theirs_s) continue;
    add(problems, "timeout", Severity::critical, rule.key,
        fmt::format("ms-diag is ended after {} s, but after {} s Slurm {}", ours_s, theirs_s, rule.consequence),
        SiteLine{.file = kSlurmConf, .text = fmt::format("{}={}", rule.key, static_cast<long>(2 * ours_s) + 1)},
        facts.plugin ? fmt::format(", or a shorter deadline= for {} in plugstack.conf", facts.plugin->path) : "");
    Finding& finding = problems.findings.back();
    finding.measured = theirs_s;
    finding.limit = ours_s;
    finding.unit = "s";
  }
  const auto message_s = seconds_of(facts.config, "MessageTimeout");
  if (!message_s) return;
  const double shown_after_s = std::max(2.0, *message_s - 2);
  if (facts.checks_s >= shown_after_s) {
    add(problems, "hung", Severity::warning, "MessageTimeout",
        fmt::format("users read 'Prolog hung' when a prolog takes {} s, and the checks may take {} s", shown_after_s,
                    facts.checks_s),
        SiteLine{.file = kSlurmConf, .text = fmt::format("MessageTimeout={}", static_cast<long>(facts.checks_s) + 3)},
        ", or a shorter prolog.deadline in ms-diag.toml");
  }
}

// AuthInfo's cred_expire, as Slurm reads it.
double cred_expire_s(const std::vector<std::string>& auth_info) {
  constexpr std::string_view kKey = "cred_expire=";
  for (const std::string& word : auth_info) {
    if (!word.starts_with(kKey)) continue;
    const unsigned seconds = leading_number<unsigned>(word.substr(kKey.size())).value_or(0);
    if (seconds >= kLeastCredExpire_s) return seconds;
  }
  return kDefaultCredExpire_s;
}

void check_requeue(const SiteFacts& facts, Problems& problems) {
  if (value_of(facts.config, "JobRequeue") == "0") {
    add(problems, "requeue", Severity::warning, "JobRequeue",
        "jobs are not requeued unless they ask for it with --requeue; others run on the bad node",
        SiteLine{.file = kSlurmConf, .text = "JobRequeue=1"});
  }
  std::vector<std::string> auth_info = split(value_of(facts.config, "AuthInfo"), ',');
  const double delay_s = cred_expire_s(auth_info) + 1;
  if (delay_s > kLongDelay_s) {
    std::erase_if(auth_info, [](const std::string& word) { return word.starts_with("cred_expire="); });
    add(problems, "delay", Severity::warning, "AuthInfo",
        fmt::format("a requeued job waits {} s before it may start again (cred_expire + 1)", delay_s),
        line_with("AuthInfo", auth_info, {"cred_expire=30"}));
    Finding& finding = problems.findings.back();
    finding.measured = delay_s;
    finding.limit = kLongDelay_s;
    finding.unit = "s";
  }
  if (value_of(facts.config, "ReturnToService") == "2") {
    add(problems, "return", Severity::warning, "ReturnToService",
        "a node that went down comes back by itself however it went down, after a crash for its bad hardware too",
        SiteLine{.file = kSlurmConf, .text = "ReturnToService=1"});
  }
}

void check_gres(const SiteFacts& facts, Problems& problems) {
  if (facts.gpu_files.empty()) return;
  const std::vector<std::string> types = split(value_of(facts.config, "GresTypes"), ',');
  if (!has_word(types, "gpu")) {
    add(problems, "grestypes", Severity::warning, "GresTypes", "without gpu jobs cannot ask Slurm for GPUs",
        line_with("GresTypes", types, {"gpu"}));
  }
  if (!facts.gres_conf_has_gpus) {
    add(problems, "gres", Severity::warning, "gres.conf",
        fmt::format("it names no GPU of {}, which has {}", facts.node, facts.gpu_files.size()),
        SiteLine{.file = "gres.conf",
                 .text = fmt::format("NodeName={} Name=gpu File={}", facts.node, fold_hostlist(facts.gpu_files))},
        fmt::format(", and Gres=gpu:{} in the NodeName= line of slurm.conf", facts.gpu_files.size()));
  }
}

// HealthCheckProgram takes no arguments, so it is our script or another program, which is not judged.
void check_health(const SiteFacts& facts, Problems& problems) {
  const std::string program = value_of(facts.config, "HealthCheckProgram");
  const auto warn = [&](std::string_view key, std::string message, std::string value) {
    add(problems, "health", Severity::warning, key, std::move(message),
        SiteLine{.file = kSlurmConf, .text = fmt::format("{}={}", key, value)});
  };
  const std::string_view name = base_name(std::string_view(program).substr(0, program.find(' ')));
  if (name == "ms-diag") {
    return warn("HealthCheckProgram", "it takes no arguments, and ms-diag without any checks nothing",
                program.substr(0, program.find("/bin/")) + "/libexec/ms/ms-health");
  }
  if (name != "ms-health") return;
  if (!facts.has_health_program) {
    add(problems, "health", Severity::warning, program, "it is not there or cannot be run: nodes are not checked",
        "install ms-health there on every node, or correct HealthCheckProgram in slurm.conf");
  }
  const bool once = value_of(facts.config, "HealthCheckNodeState").ends_with("_ONLY");
  if (!once && seconds_of(facts.config, "HealthCheckInterval").value_or(0) == 0)
    warn("HealthCheckInterval", "with 0, HealthCheckProgram never runs", "300");
  double timeout_s = seconds_of(facts.config, "HealthCheckTimeout").value_or(0);
  if (timeout_s == 0) timeout_s = kDefaultHealthTimeout_s;  // which Slurm shows as "0 sec"
  if (timeout_s <= facts.longest_prolog_s) {
    warn("HealthCheckTimeout",
         fmt::format("Slurm ends ms-health after {:g} s, but it may take {:g} s", timeout_s, facts.longest_prolog_s),
         fmt::format("{}", static_cast<long>(kDefaultHealthTimeout_s)));
  }
}

Problems problems_of(const SiteFacts& facts) {
  Problems problems;
  for (const auto check : {check_version, check_plugin, check_policy, check_flags, check_deadline, check_timeouts,
                           check_requeue, check_gres, check_health})
    check(facts, problems);
  return problems;
}

}  // namespace

unsigned version_number(std::string_view text) {
  const std::vector<std::string> parts = split(text.substr(0, text.find('-')), '.');  // "24.11.5-1"
  if (parts.size() != 3) return 0;
  unsigned version = 0;
  for (const std::string& part : parts) {
    const auto number = whole_number<unsigned>(part);
    if (!number || *number > 0xff) return 0;
    version = version << 8 | *number;
  }
  return version;
}

std::vector<Finding> site_problems(const SiteFacts& facts) { return problems_of(facts).findings; }

std::string site_fix_text(const SiteFacts& facts) {
  const std::vector<SiteLine> lines = problems_of(facts).lines;
  std::string text;
  for (const auto& [file, heading] : std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {kSlurmConf, "slurm.conf, in place of lines with the same key"},
           {"plugstack.conf", "plugstack.conf"},
           {"gres.conf", "gres.conf"},
           {"", "to do, where no line helps"}}) {
    std::string part;
    for (const SiteLine& line : lines) {
      if (line.file == file) part += fmt::format("{}{}\n", file.empty() ? "# " : "", line.text);
    }
    if (!part.empty()) text += fmt::format("{}# {}\n{}", text.empty() ? "" : "\n", heading, part);
  }
  if (text.empty()) return "# nothing is missing\n";
  return text +
         "\n# then: scontrol reconfigure; after changes to PrologFlags, plugstack.conf or gres.conf restart "
         "slurmctld and slurmd\n";
}

}  // namespace ms::slurm
