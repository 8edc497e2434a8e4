// ms-diag avoid.
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/print.h"
#include "base/text.h"
#include "health/commands/avoid.h"
#include "health/commands/commands.h"
#include "health/commands/examine.h"
#include "slurm/commands.h"

namespace ms::health {

int avoid_command(const Args& args) {
  const std::string file = args.get("FILE");
  const AvoidOptions options{.least_chance = args.get_double("chance"), .most_percent = args.get_double("percent")};
  if (!(options.least_chance > 0 && options.least_chance <= 1)) {
    throw user_error("cli.value", "--chance: a number above 0, and at most 1");
  }
  if (!(options.most_percent > 0 && options.most_percent <= 50)) {
    throw user_error("cli.value",
                     "--percent: above 0, at most 50: what most nodes are kept for last from is no choice");
  }
  const std::string text = read_file(file, Blame::user);
  struct stat status {};
  const bool has_status = ::stat(file.c_str(), &status) == 0;
  const double age_s = has_status ? SystemClock().wall_s() - static_cast<double>(status.st_mtime) : 0;
  if (age_s > args.get_seconds("max-age")) {
    throw user_error("avoid.old",
                     fmt::format("{} is {} old: what it says may no longer hold", file, format_duration(age_s)),
                     "score again; or give a longer --max-age");
  }
  const Policy policy = policy_for(args.get("config"));
  const slurm::Commands slurm(
      {.scontrol = policy.paths.scontrol, .conf = policy.paths.slurm_conf, .deadline_s = args.get_seconds("deadline")});
  const AvoidPlan plan = plan_avoidance(chances_in(text, file), slurm.nodes(), options);
  if (args.has("apply")) {
    for (const WeightChange& change : plan.changes) slurm.set_weight(change.node, change.to);
  }
  write_out(avoid_text(plan, args.has("apply")));
  return 0;
}

}  // namespace ms::health
