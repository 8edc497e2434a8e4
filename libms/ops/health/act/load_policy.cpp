#include "health/act/load_policy.h"

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/safe_file.h"
#include "base/text.h"
#include "health/act/remedies.h"
#include "health/checks/registry.h"

namespace ms::health {
namespace {

// Time that a prolog's checks need besides waiting for a mount: to start their processes and hand over their findings.
constexpr double kMountMargin_s = 0.25;

constexpr std::size_t kMaxName = 80;

constexpr std::size_t kMaxPolicyBytes = std::size_t{1} << 20;

// Returns the problem with one code of the allow-list; empty: there is none.
std::string allow_problem(const std::string& code) {
  const Check* check = find_check(passive_checks(), code);
  if (check == nullptr) {
    return fmt::format("there is no check '{}' of level 1, which a prolog runs (ms-diag list shows them)", code);
  }
  if (check->user_can_cause) return fmt::format("'{}' may not drain: a job's user can cause it", code);
  return {};
}

void validate(const Policy& policy, ConfigSchema& schema) {
  const auto absolute = [&](std::string_view key, const std::string& path) {
    if (!path.starts_with('/')) {
      schema.add_problem(key, fmt::format("{}: must be an absolute path, got '{}'", key, path));
    }
  };
  absolute("act.kill_switch", policy.act.kill_switch);
  absolute("paths.state", policy.paths.state);
  if (!policy.paths.site.empty()) absolute("paths.site", policy.paths.site);
  absolute("paths.spool", policy.paths.spool);
  absolute("paths.notes", policy.paths.notes);
  absolute("paths.scontrol", policy.paths.scontrol);
  if (!policy.paths.slurm_conf.empty()) absolute("paths.slurm_conf", policy.paths.slurm_conf);
  absolute("paths.gres_conf", policy.paths.gres_conf);
  if (!policy.paths.checks.empty()) absolute("paths.checks", policy.paths.checks);
  if (!policy.paths.nvml.empty()) absolute("paths.nvml", policy.paths.nvml);
  absolute("paths.sysroot", policy.paths.sysroot);
  absolute("paths.nvidia_smi", policy.paths.nvidia_smi);
  absolute("repair.state", policy.repair.state);
  if (!policy.repair.golden.empty()) absolute("repair.golden", policy.repair.golden);
  for (const std::string& mount : policy.expect.mounts) absolute("expect.mounts", mount);

  if (policy.limits.mount_deadline_s > policy.prolog.deadline_s - kMountMargin_s) {
    const bool by_default = schema.provenance("limits.mount_deadline") == Provenance::by_default;
    schema.add_problem(
        by_default ? "prolog.deadline" : "limits.mount_deadline",
        fmt::format(
            "limits.mount_deadline ({} s) must be at least {} s less than prolog.deadline ({} s): otherwise the prolog "
            "is over before a mount that hangs is found, which then never drains the node",
            policy.limits.mount_deadline_s, kMountMargin_s, policy.prolog.deadline_s));
  }

  for (const std::string& name : policy.repair.remedies) {
    if (find_remedy(name) == nullptr) {
      schema.add_problem("repair.remedies", fmt::format("repair.remedies: there is no remedy '{}' (see ms-diag(1))",
                                                        plain_text(name, kMaxName)));
    }
  }

  if (policy.act.allow.size() > kMaxAllowed) {
    schema.add_problem("act.allow", fmt::format("act.allow: at most {} codes may drain, these are {}", kMaxAllowed,
                                                policy.act.allow.size()));
  }
  std::set<std::string> seen;
  for (const std::string& code : policy.act.allow) {
    if (const std::string problem = allow_problem(code); !problem.empty()) {
      schema.add_problem("act.allow", "act.allow: " + problem);
    } else if (!seen.insert(code).second) {
      schema.add_problem("act.allow", fmt::format("act.allow: '{}' is there twice", code));
    }
  }
}

}  // namespace

Policy load_policy(const std::string& path) {
  Policy policy;
  ConfigSchema schema;
  bind(schema, policy);
  schema.load_file(path);
  validate(policy, schema);
  schema.throw_if_problems();
  policy.file = std::filesystem::absolute(path);
  return policy;
}

Policy load_policy_as_root(const std::string& path) {
  // The owner is checked on the open file that is read: by a second open the name could be another file's.
  const std::string text = read_trusted_file(path, 0, kMaxPolicyBytes, {.kind = "policy.owner", .blame = Blame::user});
  Policy policy;
  ConfigSchema schema;
  bind(schema, policy);
  schema.load_text(text, path);
  validate(policy, schema);
  schema.throw_if_problems();
  policy.file = path;
  return policy;
}

}  // namespace ms::health
