#include "train/config_warnings.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "optim/groups.h"
#include "optim/learning_rate.h"

namespace ms::train {
namespace {

std::string endless_ramp(const Settings& settings) {
  const std::int64_t ramp = batch_of(settings).ramp_steps(), steps = settings.train.steps;
  if (ramp <= steps) return "";
  return fmt::format(
      "the batch does not grow to train.global_batch = {} in this run: its ramp-up takes {} steps, and train.steps is "
      "{}",
      settings.train.global_batch, ramp, steps);
}

std::string idle_group(const Settings& settings) {
  std::set<std::string> patterns;
  for (const optim::ParamGroup& group : optim::parse_groups(settings.optim)) {
    if (!patterns.insert(group.pattern).second)
      return fmt::format("optim.groups has '{}' twice: only the first counts", group.pattern);
  }
  return "";
}

std::string short_decay(const Settings& settings) {
  const optim::OptimConfig& config = settings.optim;
  const std::int64_t steps = settings.train.steps, rest = steps - config.warmup_steps;
  const std::int64_t decay = optim::wsd_decay_steps(config, steps);
  if (config.schedule != "wsd" || rest <= 0 || decay <= rest) return "";
  return fmt::format(
      "optim.warmup_steps = {} and a decay of {} steps are more than train.steps = {}: the decay has the last {} only",
      config.warmup_steps, decay, steps, rest);
}

std::string known_validation(const Settings& settings) {
  const auto path = [](const std::string& entry) {
    return std::filesystem::path(data::parse_source(entry).prefix).lexically_normal();
  };
  for (const std::string& valid : settings.data.valid) {
    for (const std::string& train : settings.data.train) {
      if (path(valid) != path(train)) continue;
      return fmt::format("data.valid and data.train both name '{}': the validation loss is on training data",
                         path(valid).string());
    }
  }
  return "";
}

std::string late_weights(const Settings& settings) {
  for (const std::string& entry : settings.data.train) {
    const data::DataSource source = data::parse_source(entry);
    if (source.weights.size() < 2 || source.weights.back().step < settings.train.steps) continue;
    return fmt::format("the weight of '{}' changes once {} steps are done, and train.steps is {}: not in this run",
                       source.prefix, source.weights.back().step, settings.train.steps);
  }
  return "";
}

std::string idle_guard(const Settings& settings) {
  // The norm of a step decides what a spike is two steps later.
  if (settings.guard.spike == "ignore" || settings.guard.window + 2 <= settings.train.steps) return "";
  return fmt::format(
      "guard.spike = \"{}\" never acts in this run: guard.window = {} gradient norms come first, and train.steps is {}",
      settings.guard.spike, settings.guard.window, settings.train.steps);
}

// Knows only of what this start saves; a checkpoint that an earlier one left may be old enough all the same.
std::string idle_rollback(const Settings& settings) {
  const GuardConfig& guard = settings.guard;
  const CheckpointConfig& checkpoint = settings.checkpoint;
  if (!guard.rolls_back() || checkpoint.dir.empty()) return "";
  const bool by_time = checkpoint.every_steps == 0 && (checkpoint.every_s != 0 || checkpoint.mtbf_s > 0);
  if (by_time) return "";
  const std::string_view key = guard.spike == "rollback" ? "guard.spike" : "guard.nonfinite";
  const std::int64_t every = checkpoint.every_steps, steps = settings.train.steps, back = guard.rollback_steps;
  if (every == 0)
    return fmt::format("{} = \"rollback\" has no checkpoint to go back to: only the last step is saved", key);
  if (every + back > steps) {
    return fmt::format(
        "{} = \"rollback\" never acts in this run: the first checkpoint is of step {}, guard.rollback_steps = {}, and "
        "train.steps is {}",
        key, every, back, steps);
  }
  if (checkpoint.keep_last > 0 && checkpoint.keep_every == 0 && checkpoint.keep_last * every < back) {
    return fmt::format(
        "{} = \"rollback\" finds no checkpoint that is guard.rollback_steps = {} steps older: checkpoint.keep_last = "
        "{} "
        "are kept, one each {} steps",
        key, back, checkpoint.keep_last, every);
  }
  return "";
}

constexpr std::string (*kOddities[])(const Settings&) = {endless_ramp, idle_group, short_decay,  known_validation,
                                                         late_weights, idle_guard, idle_rollback};

}  // namespace

std::vector<std::string> oddities(const Settings& settings) {
  std::vector<std::string> found;
  for (const auto& oddity : kOddities) {
    if (std::string text = oddity(settings); !text.empty()) found.push_back(std::move(text));
  }
  return found;
}

}  // namespace ms::train
