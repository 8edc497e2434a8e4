// ms-diag collect.
#include <unistd.h>

#include <filesystem>

#include "base/print.h"
#include "base/text.h"
#include "health/act/load_policy.h"
#include "health/commands/commands.h"
#include "health/commands/examine.h"
#include "health/commands/telemetry_report.h"
#include "health/telemetry/store.h"
#include "slurm/job_env.h"

namespace ms::health {
namespace {

// Root writes where the policy says, and loads the library that it names.
Policy collect_policy(const std::string& config) {
  const bool has_file = !config.empty() || ::access(kPolicyPath, F_OK) == 0;
  if (::geteuid() != 0 || !has_file) return policy_for(config);
  return load_policy_as_root(config.empty() ? kPolicyPath : std::filesystem::absolute(config).string());
}

}  // namespace

int collect_command(const Args& args) {
  const Policy policy = collect_policy(args.get("config"));
  const bool keeps = !args.has("print") && !args.has("json");
  if (keeps && policy.telemetry.directory.empty()) {
    throw user_error("collect.directory", "the policy names no directory in which samples are kept",
                     "telemetry.directory in " + (policy.file.empty() ? kPolicyPath : policy.file) +
                         "; ms-diag collect --print shows a sample without keeping it");
  }
  const Sample sample = take_sample(policy, args.get_seconds("deadline"));
  for (const std::string& missing : sample.missing) print_err("ms-diag: warning: missing are {}\n", missing);
  if (sample.values.empty()) throw Error("collect.nothing", Blame::node, "nothing could be read: no sample is kept");
  if (!keeps) {
    write_out(args.has("json") ? sample_json(slurm::this_node(), sample) : sample_text(sample));
    return 0;
  }
  const KeptSample kept = keep_sample(policy.telemetry.directory, slurm::this_node(), sample, policy.telemetry);
  if (kept.dropped_bytes > 0) {
    print_err("ms-diag: warning: {}: {} bytes that an earlier writer did not finish were cut off\n", kept.file,
              kept.dropped_bytes);
  }
  print_out("{}, {} bytes, are kept in {}\n", plural(sample.values.size(), "value"), kept.bytes, kept.file);
  if (kept.removed_days > 0)
    print_out("{} older than telemetry.days were removed\n", plural(kept.removed_days, "file"));
  return 0;
}

}  // namespace ms::health
