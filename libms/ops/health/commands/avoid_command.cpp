// ms-diag avoid.
#include "base/clock.h"
#include "base/print.h"
#include "base/user_path.h"
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
  constexpr std::size_t kMaxFileBytes = std::size_t{1} << 28;
  const Prediction prediction = prediction_in(read_user_file(file, kMaxFileBytes), file);
  check_day(prediction, file, SystemClock().wall_s(), args.get_seconds("max-age"));
  const Policy policy = policy_for(args.get("config"));
  const slurm::Commands slurm(
      {.scontrol = policy.paths.scontrol, .conf = policy.paths.slurm_conf, .deadline_s = args.get_seconds("deadline")});
  const AvoidPlan plan = plan_avoidance(prediction.chances, slurm.nodes(), options);
  if (args.has("apply")) {
    for (const WeightChange& change : plan.changes) slurm.set_weight(change.node, change.to);
  }
  write_out(avoid_text(plan, args.has("apply")));
  return 0;
}

}  // namespace ms::health
