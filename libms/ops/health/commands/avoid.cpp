#include "health/commands/avoid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "health/evidence/growth.h"
#include "slurm/hostlist.h"

namespace ms::health {
namespace {

std::string folded(const std::vector<std::string>& nodes) { return slurm::fold_hostlist(nodes); }

}  // namespace

Prediction prediction_in(std::string_view text, const std::string& file) {
  const auto wrong = [&](const std::string& why) {
    return user_error("avoid.file", fmt::format("{}: {}", file, why), "it is what ms-diag predict score --json prints");
  };
  std::string problem;
  const std::optional<Json> json = Json::try_parse(text, {.max_depth = 16, .on_duplicate = {}, .keep = {}}, &problem);
  if (!json) throw wrong("it is no JSON: " + problem);
  Prediction out;
  try {
    if (json->get<int>("schema") != 1) throw wrong("its schema is not 1: it is of another version");
    if (!json->contains("skill") || !json->get<bool>("skill")) {
      throw wrong("it does not say that the model showed skill: its order is no reason to act");
    }
    out.day = json->get<double>("day");
    for (const Json& unit : json->at("units")) {
      const std::string name = unit.get<std::string>("unit");
      const std::string node = name.substr(0, name.find('/'));
      const auto chance = unit.get<double>("chance");
      if (!slurm::is_host_name(node)) throw wrong(fmt::format("'{}' is not the name of a node", name));
      if (!(chance >= 0 && chance <= 1)) throw wrong(fmt::format("{} has the chance {}, not 0 to 1", name, chance));
      const auto [known, fresh] = out.chances.try_emplace(node, chance);
      if (!fresh) known->second = std::max(known->second, chance);
    }
  } catch (const JsonError& error) { throw wrong(error.what()); }
  return out;
}

void check_day(const Prediction& prediction, const std::string& file, double now_s, double max_age_s) {
  constexpr double kClocksDiffer_s = 3600;
  const double age_s = now_s - prediction.day * kDay_s;
  if (!(age_s >= -kClocksDiffer_s)) {
    throw user_error("avoid.old", fmt::format("{}: its day, {:.0f} since 1970, is still to come", file, prediction.day),
                     "are the times of faults and telemetry in UTC, or in seconds since 1970?");
  }
  if (age_s > max_age_s) {
    throw user_error(
        "avoid.old",
        fmt::format("{}: what it says is of data that are {} old, and may no longer hold", file,
                    format_duration(age_s)),
        "its day is that of the last fault or sample: score with telemetry until now, or give a longer --max-age");
  }
}

AvoidPlan plan_avoidance(const std::map<std::string, double>& chances, const std::vector<slurm::Node>& nodes,
                         const AvoidOptions& options) {
  const double part = std::floor(options.most_percent / 100 * static_cast<double>(nodes.size()) + 1e-9);
  const std::size_t most = std::max<std::size_t>(1, static_cast<std::size_t>(part));
  const auto raised = static_cast<std::size_t>(std::ranges::count_if(nodes, &slurm::Node::is_kept_for_last));
  if (raised > most) {
    throw user_error("avoid.weights",
                     fmt::format("{} of {} have weights of a million and more, but at most {} may be kept for last",
                                 raised, plural(nodes.size(), "node"), most),
                     "if these are the site's own weights this command cannot be used; else lower them by a million "
                     "with scontrol, or give the --percent that they were raised with");
  }
  AvoidPlan plan;
  std::set<std::string> known;
  std::vector<const slurm::Node*> likely;
  for (const slurm::Node& node : nodes) {
    known.insert(node.name);
    const auto chance = chances.find(node.name);
    if (chance == chances.end()) {
      if (node.is_kept_for_last()) plan.not_known.push_back(node.name);
    } else if (chance->second >= options.least_chance) {
      likely.push_back(&node);
    }
  }
  std::stable_sort(likely.begin(), likely.end(), [&](const slurm::Node* a, const slurm::Node* b) {
    return chances.at(a->name) > chances.at(b->name);
  });
  // Nodes that cannot be judged now still count.
  const std::size_t room = std::min(likely.size(), most - plan.not_known.size());
  std::set<std::string> wanted;
  for (std::size_t i = 0; i < likely.size(); ++i) {
    if (i < room) {
      wanted.insert(likely[i]->name);
    } else {
      plan.beyond.push_back(likely[i]->name);
    }
  }
  for (const slurm::Node& node : nodes) {
    const auto chance = chances.find(node.name);
    if (chance == chances.end()) continue;
    const bool want = wanted.contains(node.name);
    if (want && node.is_kept_for_last()) plan.stay.push_back(node.name);
    if (want == node.is_kept_for_last()) continue;
    const bool likely_too = chance->second >= options.least_chance;
    plan.changes.push_back({.node = node.name,
                            .chance = chance->second,
                            .from = node.weight,
                            .to = want ? node.weight + kRaised : node.weight - kRaised,
                            .why = want         ? "likely to fail"
                                   : likely_too ? "others are likelier to fail"
                                                : "no longer likely to fail"});
  }
  for (const auto& [node, chance] : chances) {
    if (!known.contains(node)) plan.unknown.push_back(node);
  }
  return plan;
}

std::string avoid_text(const AvoidPlan& plan, bool applied) {
  std::string text;
  if (plan.changes.empty()) {
    text += "no weight is to be changed\n";
  } else {
    TextTable table(columns("NODE|CHANCE>|WEIGHT>|NEW>|WHY"));
    for (const WeightChange& change : plan.changes) {
      table.row({change.node, fmt::format("{:.2f}", change.chance), std::to_string(change.from),
                 std::to_string(change.to), change.why});
    }
    text += table.str();
    text += applied ? "these weights are set\n" : "nothing was changed: --apply sets these weights\n";
  }
  if (!plan.stay.empty()) text += fmt::format("stay last: {}\n", folded(plan.stay));
  std::vector<std::string> to_check = plan.stay;
  for (const WeightChange& change : plan.changes) {
    if (change.to > change.from) to_check.push_back(change.node);
  }
  to_check.insert(to_check.end(), plan.beyond.begin(), plan.beyond.end());
  if (!plan.beyond.empty()) {
    text += fmt::format("likely to fail too, but beyond --percent: {}\n", folded(plan.beyond));
  }
  // Low priority: Slurm begins it when the node is idle. Each node a job of its own, or all would wait for the busiest.
  if (!to_check.empty()) {
    text += fmt::format(
        "to check them as soon as they are idle: for n in $(scontrol show hostnames '{}'); do sbatch --nice -N1 -w $n "
        "diag.sbatch; done\n",
        folded(to_check));
  }
  if (!plan.not_known.empty()) {
    text +=
        fmt::format("last until now, and without a chance in the file: {}: left as they are\n", folded(plan.not_known));
  }
  if (!plan.unknown.empty()) text += fmt::format("not in Slurm: {}\n", folded(plan.unknown));
  return text;
}

}  // namespace ms::health
