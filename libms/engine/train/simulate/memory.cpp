#include "train/simulate/memory.h"

#include <optional>

#include "base/text.h"
#include "train/engine/rank_tensors.h"

namespace ms::train {

StageMemory largest_stage(const Plan& plan) {
  StageMemory largest;
  for (int p = 0; p < plan.mesh.pp; ++p) {
    const std::int64_t bytes = rank_memory(plan, {.dp = 0, .pp = p, .tp = 0}).total_bytes;
    if (bytes > largest.bytes) largest = {p, bytes};
  }
  return largest;
}

namespace {

std::optional<std::int64_t> needs(const Settings& settings) {
  if (!problems_between(settings).empty()) return std::nullopt;
  try {
    const mesh::MeshConfig& mesh = settings.mesh;
    return largest_stage(make_plan(settings, static_cast<int>(mesh.ranks()))).bytes;
  } catch (const Error&) {
    return std::nullopt;  // no schedule for it
  }
}

// Other settings, from those that cost least.
std::string what_fits(const Plan& plan, std::int64_t capacity) {
  struct Change {
    std::string text;
    Settings settings;
  };
  std::vector<Change> changes;
  const auto change = [&](std::string text, auto&& make) {
    changes.push_back({std::move(text), plan.settings});
    make(changes.back().settings);
  };
  const TrainConfig& train = plan.settings.train;
  if (train.microbatch > 1) change("train.microbatch=1", [](Settings& s) { s.train.microbatch = 1; });
  if (train.recompute == "none")
    change("train.recompute=selective", [](Settings& s) { s.train.recompute = "selective"; });
  if (plan.settings.optim.zero == 0) change("optim.zero=1", [](Settings& s) { s.optim.zero = 1; });
  if (plan.settings.optim.zero < 3) change("optim.zero=3", [](Settings& s) { s.optim.zero = 3; });
  if (train.recompute != "full") change("train.recompute=full", [](Settings& s) { s.train.recompute = "full"; });
  if (plan.settings.optim.shard_group > 0) change("optim.shard_group=0", [](Settings& s) { s.optim.shard_group = 0; });
  for (const std::int64_t times : {2, 4, 8, 16}) {
    for (const bool full : {false, true}) {
      const std::string also = full ? " train.recompute=full" : "";
      const auto with = [full](Settings& s) {
        if (full) s.train.recompute = "full";
      };
      change(fmt::format("mesh.tp={}{}", plan.mesh.tp * times, also),
             [&](Settings& s) { s.mesh.tp *= times, with(s); });
      change(fmt::format("mesh.pp={}{}", plan.mesh.pp * times, also),
             [&](Settings& s) { s.mesh.pp *= times, with(s); });
    }
  }
  for (const Change& c : changes) {
    const std::optional<std::int64_t> bytes = needs(c.settings);
    if (bytes && *bytes <= capacity)
      return fmt::format("--set {} would need {}", c.text, format_size(static_cast<double>(*bytes)));
  }
  return "nothing that was tried fits: more stages, more tp ranks and recomputing everything together may";
}

}  // namespace

void require_memory(const Plan& plan, const cost::Cluster& cluster) {
  const StageMemory stage = largest_stage(plan);
  const std::int64_t capacity = cluster.device.memory_bytes;
  if (stage.bytes <= capacity) return;
  throw user_error("simulate.memory",
                   fmt::format("stage {} of {} needs {} a rank, and a {} has {}", stage.pp, plan.mesh.pp,
                               format_size(static_cast<double>(stage.bytes)), cluster.device.name,
                               format_size(static_cast<double>(capacity))),
                   what_fits(plan, capacity));
}

}  // namespace ms::train
