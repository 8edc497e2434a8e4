#include "health/act/world.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "health/act/decide.h"
#include "health/act/site_check.h"
#include "slurm/commands.h"

namespace ms::health {
namespace {

constexpr std::size_t kMaxLine = 600;

// Slurm's commands, each with what it may still take of the time for all.
class Budget {
 public:
  Budget(const Policy& policy, Clock& clock, const SlurmTime& time)
      : policy_(policy),
        clock_(clock),
        time_(time),
        end_s_(clock.now_s() + time.total_s),
        commands_({.scontrol = policy.paths.scontrol, .conf = policy.paths.slurm_conf}) {}

  double left_s() const { return std::max(0.0, end_s_ - clock_.now_s()); }

  // For something that takes so many commands.
  const slurm::Commands& commands(int count = 1) {
    const double left = left_s();
    if (left <= 0) {
      throw Error("slurm.command", Blame::slurm, fmt::format("no time is left of {:g} s to ask Slurm", time_.total_s));
    }
    commands_.set_deadline(std::min(left / count, time_.call_s));
    return commands_;
  }

  const Policy& policy() const { return policy_; }

 private:
  const Policy& policy_;
  Clock& clock_;
  SlurmTime time_;
  double end_s_;
  slurm::Commands commands_;
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

SlurmCalls slurm_calls(const Policy& policy, Clock& clock, const SlurmTime& time) {
  const auto budget = std::make_shared<Budget>(policy, clock, time);
  return {
      .site_facts = [=] { return site_facts(budget->policy(), budget->commands()); },
      .node = [=](const std::string& name) { return budget->commands().node(name); },
      .nodes = [=] { return budget->commands().nodes(); },
      .job = [=](std::uint32_t id) { return budget->commands(2).job(id); },
      .drain = [=](const std::string& node, const std::string& reason) { budget->commands().drain(node, reason); },
      .resume = [=](const std::string& node) { budget->commands().resume(node); },
      .set_admin_comment = [=](std::uint32_t job,
                               const std::string& text) { budget->commands().set_admin_comment(job, text); },
      .notify = [=](std::uint32_t job, const std::string& text) { budget->commands().notify(job, text); },
      .requeue = [=](std::uint32_t job) { budget->commands().requeue(job); },
      .left_s = [=] { return budget->left_s(); },
  };
}

}  // namespace ms::health
