#include "health/repair/plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "health/act/decide.h"
#include "health/act/remedies.h"

namespace ms::health {
namespace {

constexpr std::string_view kStages[] = {"well",  "gather",    "choose",   "remedy",  "test2",
                                        "test3", "returning", "bundling", "bundled", "released"};
constexpr double kWeek_s = 7 * 86'400;
constexpr int kMostTries = 3;
constexpr std::string_view kRebooted = "reboot complete", kNotRebooted = "reboot timed out";

// Slurm appends to a reason how a reboot goes on.
std::string own_words(std::string_view reason) {
  for (bool cut = true; cut;) {
    cut = false;
    for (const std::string_view words :
         {kRebooted, kNotRebooted, std::string_view("reboot issued"), std::string_view("reboot requested")}) {
      const std::string tail = fmt::format(" : {}", words);
      if (reason.ends_with(tail)) reason.remove_suffix(tail.size()), cut = true;
    }
  }
  return std::string(reason);
}

bool has_any(const slurm::Node& node, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(node.states, [&](const std::string& state) {
    return std::ranges::any_of(beginnings, [&](std::string_view beginning) { return state.starts_with(beginning); });
  });
}
bool reboots(const slurm::Node& node) { return has_any(node, {"REBOOT"}); }

bool same_drain(const Repair& repair, const slurm::Node& node, const std::vector<std::string>& users) {
  return may_take_up(node, users) && own_words(node.reason) == repair.reason;
}

// After our reboot the node is DOWN with our reason, and Slurm (22.05) has taken the drain away. The same is left when
// the drain of such a node is lifted.
bool is_left_down(const Repair& repair, const slurm::Node& node) {
  return (node.has_state("DOWN") || reboots(node)) && !node.is_drained_or_draining() &&
         own_words(node.reason) == repair.reason;
}

bool is_rebooting(const Repair& repair) { return repair.stage == Stage::remedy && repair.remedy == kReboot; }

// Also where the clock was set back by more: a stage would else last until it has caught up.
bool is_late(const Repair& repair, const RepairConfig& policy, double now_wall_s) {
  return std::abs(now_wall_s - repair.since_wall_s) > policy.patience_s;
}

bool is_active(const Repair& repair) { return repair.stage >= Stage::remedy && repair.stage <= Stage::returning; }

Repair at(Repair repair, Stage stage, double now_wall_s, std::string why = {}) {
  if (repair.stage != stage) repair.since_wall_s = now_wall_s;
  repair.stage = stage;
  if (!why.empty()) repair.why = std::move(why);
  return repair;
}

class Planner {
 public:
  Planner(const RepairConfig& policy, const std::vector<std::string>& users, std::size_t nodes, std::size_t active,
          double now_wall_s)
      : policy_(policy), users_(users), active_(active), now_wall_s_(now_wall_s) {
    most_active_ = static_cast<std::size_t>(share_of(policy.max_nodes_percent, static_cast<std::int64_t>(nodes)));
  }

  std::optional<Step> of(const Repair& kept, const slurm::Node& node) {
    if (kept.stage == Stage::well) return take_up(kept, node);
    if (kept.stage == Stage::released && !is_in_service(node)) return std::nullopt;
    if (kept.stage == Stage::returning && is_left_down(kept, node)) return Step{Act::undrain, "undrain", kept};
    if (is_rebooting(kept) && is_left_down(kept, node)) return reboot(kept, node);
    const bool is_given_up = kept.stage == Stage::bundling || kept.stage == Stage::bundled;
    if (!same_drain(kept, node, users_) && !(is_given_up && is_left_down(kept, node))) return released(kept, node);
    if (kept.stage == Stage::bundled) return std::nullopt;
    if (kept.stage == Stage::gather) return Step{Act::gather, "gather", kept};
    if (kept.stage == Stage::bundling) return Step{Act::bundle, "bundle", kept};
    if (is_rebooting(kept)) return reboot(kept, node);
    if (!may_be_loaded(node)) return std::nullopt;
    switch (kept.stage) {
      case Stage::choose: return choose(kept);
      case Stage::remedy: return again(Act::remedy, kept);
      case Stage::test2:
      case Stage::test3: return Step{Act::test, fmt::format("test level {}", kept.stage == Stage::test2 ? 2 : 3), kept};
      default: return Step{Act::undrain, "undrain", kept};
    }
  }

 private:
  std::optional<Step> take_up(Repair repair, const slurm::Node& node) const {
    if (!may_take_up(node, users_)) return std::nullopt;
    repair.node = node.name;
    repair.reason = own_words(node.reason);
    repair.taken_wall_s = now_wall_s_;
    repair.remedy.clear();
    repair.tries = 0;
    repair.why = "drained";
    return Step{Act::gather, "taken up", at(repair, Stage::gather, now_wall_s_)};
  }

  std::optional<Step> released(const Repair& kept, const slurm::Node& node) const {
    if (kept.stage == Stage::returning && !node.is_drained_or_draining())
      return Step{Act::none, "returned", at(kept, Stage::well, now_wall_s_, "it passed the tests")};
    return Step{Act::none, "let go",
                is_in_service(node)
                    ? at(kept, Stage::well, now_wall_s_, "someone else has put it back into service")
                    : at(kept, Stage::released, now_wall_s_, "someone else has drained it, or changed the reason")};
  }

  std::optional<Step> choose(Repair repair) {
    const auto& attempts = repair.attempts;
    const auto recent =
        std::ranges::count_if(attempts, [&](const Attempt& attempt) { return now_wall_s_ - attempt.wall_s < kWeek_s; });
    if (recent >= policy_.attempts_per_week) {
      return give_up(repair, fmt::format("{} remedies were tried in a week, and no more may be", recent));
    }
    const std::string code = code_of(repair.reason);
    const std::vector<std::string_view> known = remedies_of(code);
    std::string cooling;
    for (const std::string_view name : known) {
      if (std::ranges::find(policy_.remedies, name) == policy_.remedies.end()) continue;
      if (std::ranges::any_of(attempts, [&](const Attempt& attempt) {
            return attempt.remedy == name &&
                   (attempt.wall_s >= repair.taken_wall_s || now_wall_s_ - attempt.wall_s < policy_.cool_down_s);
          })) {
        cooling += fmt::format("{}{}", cooling.empty() ? "" : ", ", name);
        continue;
      }
      if (active_ >= most_active_) return std::nullopt;
      ++active_;
      repair.remedy = name;
      repair.tries = 0;
      repair.attempts.push_back({.remedy = repair.remedy, .wall_s = now_wall_s_});
      repair = at(repair, Stage::remedy, now_wall_s_);
      return again(name == kReboot ? Act::reboot : Act::remedy, repair);
    }
    return give_up(repair, known.empty()
                               ? fmt::format("only a person can mend {}", code)
                               : fmt::format("no allowed remedy is left for {}{}; {}", code,
                                             cooling.empty() ? "" : " (tried before: " + cooling + ")", repair.why));
  }

  std::optional<Step> give_up(const Repair& repair, const std::string& why) const {
    return Step{Act::bundle, "bundle", at(repair, Stage::bundling, now_wall_s_, why)};
  }

  // A remedy that was begun, and whose end is not known, is done again; one that never ends is given up.
  std::optional<Step> again(Act act, Repair repair) {
    if (++repair.tries > kMostTries) {
      return Step{Act::none, "failed", at(repair, Stage::choose, now_wall_s_, repair.remedy + " did not end")};
    }
    return Step{act, "remedy " + repair.remedy, repair};
  }

  std::optional<Step> reboot(const Repair& kept, const slurm::Node& node) {
    const bool late = is_late(kept, policy_, now_wall_s_);
    if (reboots(node) && !late) return std::nullopt;
    if (kept.tries > 0 && node.reason.ends_with(kRebooted)) {
      if (!is_ours(node)) return Step{Act::redrain, "drained again", kept};
      return Step{Act::none, "rebooted", at(kept, Stage::test2, now_wall_s_)};
    }
    if (late || (kept.tries > 0 && node.reason.ends_with(kNotRebooted))) {
      return give_up(kept, "the node did not come back from a reboot");
    }
    if (!may_be_loaded(node)) return std::nullopt;
    return again(Act::reboot, kept);
  }

  const RepairConfig& policy_;
  const std::vector<std::string>& users_;
  std::size_t active_;
  double now_wall_s_;
  std::size_t most_active_ = 1;
};

}  // namespace

std::string_view to_string(Stage stage) { return kStages[static_cast<std::size_t>(stage)]; }

std::string rebooted_reason(const Repair& repair) { return fmt::format("{} : {}", repair.reason, kRebooted); }

std::string code_of(std::string_view reason) {
  reason.remove_prefix(std::min(reason.size(), kReasonPrefix.size()));
  return std::string(reason.substr(0, reason.find_first_of(" ;:")));
}

std::string to_json(const Repair& repair) {
  Json attempts = Json::array();
  for (const Attempt& attempt : repair.attempts) {
    attempts.push_back({{"remedy", attempt.remedy}, {"time", attempt.wall_s}});
  }
  return Json{{"schema", 1},
              {"node", repair.node},
              {"reason", repair.reason},
              {"stage", to_string(repair.stage)},
              {"remedy", repair.remedy},
              {"tries", repair.tries},
              {"taken", repair.taken_wall_s},
              {"since", repair.since_wall_s},
              {"why", repair.why},
              {"attempts", attempts}}
             .dump(2) +
         "\n";
}

Repair repair_from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    Repair repair{.node = json.get<std::string>("node"),
                  .reason = json.get<std::string>("reason"),
                  .remedy = json.get<std::string>("remedy"),
                  .tries = json.get<int>("tries"),
                  .taken_wall_s = json.get<double>("taken"),
                  .since_wall_s = json.get<double>("since"),
                  .why = json.get<std::string>("why"),
                  .attempts = {}};
    const auto stage = std::ranges::find(kStages, json.get<std::string>("stage"));
    if (stage == std::end(kStages)) throw JsonError("stage: no such stage");
    repair.stage = static_cast<Stage>(stage - std::begin(kStages));
    for (const Json& attempt : json.at("attempts")) {
      repair.attempts.push_back({.remedy = attempt.get<std::string>("remedy"), .wall_s = attempt.get<double>("time")});
    }
    return repair;
  } catch (const JsonError& error) {
    throw Error("repair.state", Blame::node, fmt::format("the state of a repair cannot be read: {}", error.what()));
  }
}

bool is_slurms(const slurm::Node& node) {
  return reboots(node) || has_any(node, {"POWER", "MAINT", "FUTURE", "INVAL", "BLOCKED"});
}
bool may_be_loaded(const slurm::Node& node) { return !has_jobs(node) && !is_slurms(node); }

bool is_in_service(const slurm::Node& node) {
  return has_any(node, {"IDLE", "MIX", "ALLOC"}) && !node.is_drained_or_draining() && !node.has_state("DOWN");
}
bool may_take_up(const slurm::Node& node, const std::vector<std::string>& users) {
  return is_ours(node) && is_free_of_people(own_words(node.reason), node, users);
}

bool may_touch(const Repair& repair, const slurm::Node& node, const std::vector<std::string>& users) {
  const bool left_down = (repair.stage == Stage::returning || is_rebooting(repair)) && is_left_down(repair, node);
  return may_be_loaded(node) && (same_drain(repair, node, users) || left_down);
}

std::vector<Step> plan(const std::map<std::string, Repair>& repairs, const std::vector<slurm::Node>& nodes,
                       const RepairConfig& policy, const std::vector<std::string>& users, double now_wall_s) {
  const auto active = std::ranges::count_if(nodes, [&](const slurm::Node& node) {
    const auto kept = repairs.find(node.name);
    return kept != repairs.end() && is_active(kept->second);
  });
  Planner planner(policy, users, nodes.size(), static_cast<std::size_t>(active), now_wall_s);
  std::vector<Step> steps;
  for (const slurm::Node& node : nodes) {
    const auto kept = repairs.find(node.name);
    std::optional<Step> step = planner.of(kept == repairs.end() ? Repair{} : kept->second, node);
    if (step) steps.push_back(std::move(*step));
  }
  return steps;
}

Repair after(const Step& step, Outcome3 outcome, const std::string& why, const RepairConfig& policy,
             double now_wall_s) {
  const Repair& repair = step.repair;
  const auto to = [&](Stage stage) {
    Repair next = at(repair, stage, now_wall_s, why);
    const double keep_s = std::max(kWeek_s, policy.cool_down_s);
    std::erase_if(next.attempts, [&](const Attempt& attempt) { return now_wall_s - attempt.wall_s > keep_s; });
    return next;
  };
  const bool late = is_late(repair, policy, now_wall_s);
  if (outcome == Outcome3::unknown && !late) return to(repair.stage);
  const bool good = outcome == Outcome3::good;
  switch (step.act) {
    case Act::none: return repair;
    case Act::gather: return to(Stage::choose);
    case Act::remedy: return to(good ? Stage::test2 : Stage::choose);
    case Act::redrain: return to(Stage::remedy);
    case Act::reboot: return to(good ? Stage::remedy : Stage::choose);
    case Act::test:
      if (!good) return to(Stage::choose);
      return to(repair.stage == Stage::test2 && policy.level >= 3 ? Stage::test3 : Stage::returning);
    case Act::undrain: return to(good ? Stage::returning : Stage::bundling);
    case Act::bundle: return to(good ? Stage::bundled : Stage::bundling);
  }
  return repair;
}

}  // namespace ms::health
