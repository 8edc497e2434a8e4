#include "health/commands/site_history.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/print.h"
#include "health/act/site.h"
#include "health/commands/examine.h"
#include "health/commands/lemons.h"
#include "health/commands/telemetry_report.h"
#include "health/evidence/growth.h"
#include "slurm/commands.h"
#include "slurm/hostlist.h"

namespace ms::health {
namespace {

constexpr int kMostDays = 36'500;

std::string policy_name(const Policy& policy) { return policy.file.empty() ? "ms-diag.toml" : policy.file; }

}  // namespace

int site_history(const Args& args) {
  const Policy policy = policy_for(args.get("config"));
  const bool has_samples = !policy.telemetry.directory.empty();
  bool has_drains = !policy.paths.site.empty();
  if (!has_drains && !has_samples) {
    throw user_error("history.site", "the policy names no directory in which all nodes' drains or samples are kept",
                     "paths.site and telemetry.directory in " + policy_name(policy));
  }
  if (has_drains && has_samples && ::access(policy.paths.site.c_str(), F_OK) != 0) {  // the first drain makes it
    print_err("ms-diag: warning: no drains are shown: there is no directory '{}'\n", policy.paths.site);
    has_drains = false;
  }
  const double now_s = SystemClock().wall_s();
  Json json{{"schema", 1}};
  std::string text;
  if (has_drains) {
    const slurm::Commands slurm({.scontrol = policy.paths.scontrol,
                                 .conf = policy.paths.slurm_conf,
                                 .deadline_s = args.get_seconds("deadline")});
    const std::size_t nodes = slurm.nodes().size();
    const double since_s = now_s - static_cast<double>(args.get_int("days", 1, kMostDays)) * kDay_s;
    const std::vector<SiteRow> rows = site_rows(read_site(policy.paths.site), nodes, since_s);
    json.update(site_json(rows, nodes));
    text = site_text(rows, nodes);
  }
  if (has_samples) {
    const SiteTrends trends = site_trends(policy.telemetry.directory, now_s);
    json["telemetry"] = trends_json(trends);
    text += trends_text(trends);
  }
  write_out(args.has("json") ? json.dump(2) + "\n" : text);
  return 0;
}

int sample_history(const Args& args) {
  const Policy policy = policy_for(args.get("config"));
  if (policy.telemetry.directory.empty()) {
    throw user_error("history.samples", "the policy names no directory in which samples are kept",
                     "telemetry.directory in " + policy_name(policy));
  }
  if (args.has("json")) throw user_error("history.form", "samples are printed as CSV: --json is not for --samples");
  const double now_s = SystemClock().wall_s();
  const double from_s = now_s - static_cast<double>(args.get_int("days", 1, kMostDays)) * kDay_s;
  std::vector<std::string> notes;
  const std::vector<std::string> nodes = slurm::expand_hostlist_or_throw(args.get("samples"));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::vector<Series> all =
        read_telemetry(policy.telemetry.directory, nodes[i], from_s, now_s + kDay_s, &notes);
    if (i == 0) write_bytes(kSamplesTitle);
    for (const Series& series : all) write_bytes(samples_csv(series));
  }
  for (const std::string& note : notes) print_err("ms-diag: warning: {}\n", note);
  return 0;
}

}  // namespace ms::health
