#include "health/world.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "health/decide.h"
#include "health/site_check.h"
#include "slurm/commands.h"

namespace ms::health {
namespace {

constexpr std::size_t kMaxLine = 600;

// The time for all calls together, which begins with the first.
class Budget {
 public:
  Budget(const Policy& policy, Clock& clock) : policy_(policy), clock_(clock) {}

  double left_s() {
    if (!end_s_) end_s_ = clock_.now_s() + kSlurmTotal_s;
    return std::max(0.0, *end_s_ - clock_.now_s());
  }

  // For one call.
  slurm::Commands commands() {
    const double left = left_s();
    if (left <= 0) {
      throw Error("slurm.command", Blame::slurm,
                  fmt::format("Slurm was asked for {:g} s, no time is left", kSlurmTotal_s));
    }
    return slurm::Commands({.scontrol = policy_.paths.scontrol,
                            .conf = policy_.paths.slurm_conf,
                            .deadline_s = std::min(left, kSlurmCall_s)});
  }

  const Policy& policy() const { return policy_; }

 private:
  const Policy& policy_;
  Clock& clock_;
  std::optional<double> end_s_;
};

}  // namespace

void World::say(log::Level level, std::string_view text) const { log(level, plain_text(text, kMaxLine)); }

bool World::attempt(std::string_view what, const std::function<void()>& action) const {
  try {
    action();
    return true;
  } catch (const std::exception& error) {  // the flow goes on without it: first do no harm
    say(log::Level::warn, fmt::format("{}: {}", what, error.what()));
    return false;
  }
}

SlurmCalls slurm_calls(const Policy& policy, Clock& clock) {
  const auto budget = std::make_shared<Budget>(policy, clock);
  return {
      .site_facts = [=] { return site_facts(budget->policy(), budget->commands()); },
      .node = [=](const std::string& name) { return budget->commands().node(name); },
      .nodes = [=] { return budget->commands().nodes(); },
      .job = [=](std::uint32_t id) { return budget->commands().job(id); },
      .drain = [=](const std::string& node, const std::string& reason) { budget->commands().drain(node, reason); },
      .resume = [=](const std::string& node) { budget->commands().resume(node); },
      .set_admin_comment = [=](std::uint32_t job,
                               const std::string& text) { budget->commands().set_admin_comment(job, text); },
      .left_s = [=] { return budget->left_s(); },
  };
}

}  // namespace ms::health
