#include "tracepp/steps/step_column.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ms::tracepp {
namespace {

using As = Role::As;

float computed_s(const Event& event) {
  return event.detail == kNoDetail ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(event.detail * 1e-6);
}

}  // namespace

Standing stood_still(const StagePattern& stage, const Times* times, std::int64_t updated) {
  const auto first_of = [&](OpType type) -> const Times* {
    return stage.count_of(type) > 0 ? times + stage.slot(type, 0) : nullptr;
  };
  Standing stood{.end = updated};
  const bool is_begin_known = updated > 0;
  // Parameters are gathered as soon as they are updated.
  const Times* const gather = first_of(OpType::params_all_gather);
  if (gather != nullptr && is_begin_known) stood.late_s = seconds(gather->begin - updated);
  const Times* const clip = first_of(OpType::optimizer_clip_main_grad);
  for (const int slot : stage.sections) {
    const Times& section = times[slot];
    const StagePattern::Slot& of = stage.slots[static_cast<std::size_t>(slot)];
    std::int64_t ready = std::max(stood.end, section.before_end);
    if (of.received_by >= 0) ready = std::max(ready, times[of.received_by].end);
    if (of.type == OpType::optimizer && clip != nullptr) ready = std::max(ready, clip->end);
    std::int64_t gathered = 0, gathered_before = 0;  // parameters of the chunk: all, those that it began with
    if (of.type == OpType::forward_compute) {
      for (int k = 0; k < stage.count_of(OpType::params_all_gather); ++k) {
        const int collective = stage.slot(OpType::params_all_gather, k);
        if (stage.slots[static_cast<std::size_t>(collective)].chunk != of.chunk) continue;
        gathered = std::max(gathered, times[collective].end);
        if (times[collective].end <= section.begin) gathered_before = std::max(gathered_before, times[collective].end);
      }
    }
    // Before it began; and until its end, less what it did. On its way it may have waited for parameters.
    const bool is_first = slot == stage.sections.front(), is_known = !is_first || is_begin_known;
    const double before_s = is_known ? seconds(section.begin - std::max(ready, gathered_before)) : 0;
    const std::int64_t from = std::max(is_known ? ready : section.begin, gathered);
    const double all_s = seconds(section.end - from - section.moving - section.waiting) - section.own;
    if (is_first) stood.late_s = std::max(stood.late_s, before_s);
    // Other work opens the step where there is some: it waits for nothing but the host.
    if (is_first && is_known && section.before_begin > 0) {
      stood.late_s = std::max(stood.late_s, seconds(section.before_begin - stood.end));
    }
    stood.worst_s = std::max({stood.worst_s, before_s, all_s});
    stood.end = section.end;
  }
  stood.late_s = std::max(stood.late_s, 0.0);
  stood.worst_s = std::max(stood.worst_s, stood.late_s);
  return stood;
}

Column::Column(const RunPattern& pattern, const mesh::Mesh& mesh)
    : pattern_(pattern), mesh_(mesh), ranks_(static_cast<std::size_t>(mesh.pp * mesh.tp)) {}

const RankTrace* Column::rank(int pp, int tp) const {
  return pattern_.ranks[static_cast<std::size_t>(mesh_.rank({.dp = dp_, .pp = pp, .tp = tp}))];
}

void Column::read(int dp) {
  dp_ = dp;
  for (int pp = 0; pp < mesh_.pp; ++pp) {
    for (int tp = 0; tp < mesh_.tp; ++tp) {
      if (const RankTrace* const from = rank(pp, tp))
        unpack(*from, ranks_[static_cast<std::size_t>(pp * mesh_.tp + tp)]);
    }
    serve(pp);
  }
}

void Column::unpack(const RankTrace& from, Rank& to) const {
  const StagePattern& shape = pattern_.stages[static_cast<std::size_t>(from.at.pp)];
  const std::size_t steps = pattern_.steps.size(), collectives = static_cast<std::size_t>(shape.tp_collectives);
  to.times.resize(steps * shape.slots.size());
  to.collectives.resize(steps * collectives);
  to.updated_before.assign(steps, 0);
  to.data_wait.assign(steps, 0);
  to.sums.assign(steps, {});
  std::vector<std::array<int, kOpTypes>> next(steps, shape.first);
  std::vector<std::size_t> next_collective(steps, 0);
  StepOf step_of(pattern_.roles);
  std::int32_t current = kNoStep, updated_step = kNoStep;
  int place = -1;
  float before = 0;
  std::int64_t before_begin = 0, before_end = 0, updated = 0;
  for (const Event& event : from.events) {
    const Role& role = pattern_.roles[event.info];
    if (role.as == As::nothing || role.as == As::step) continue;
    const std::int32_t step = step_of(event);
    if (step != current) {
      current = step;
      const auto found = pattern_.step_at.find(step);
      place = found == pattern_.step_at.end() ? -1 : found->second;
      if (place >= 0 && updated_step == step - 1) to.updated_before[static_cast<std::size_t>(place)] = updated;
    }
    if (role.as == As::op && role.type == OpType::optimizer) {
      updated = event.end_ns();
      updated_step = step;
    }
    if (place < 0) continue;
    const auto at = static_cast<std::size_t>(place);
    switch (role.as) {
      case As::tp_collective:
        to.collectives[at * collectives + next_collective[at]++] = {event.begin_ns, event.duration_ns};
        break;
      case As::sum: {
        Sum& sum = to.sums[at][sum_of(role.type)];
        if (sum.begin == 0) sum.begin = event.begin_ns;
        sum.length += event.duration_ns;
        break;
      }
      case As::data_wait: to.data_wait[at] += static_cast<float>(seconds(event.duration_ns)); break;
      case As::other_work:
        if (before_end == 0) before_begin = event.begin_ns;
        before += event.detail == kNoDetail ? static_cast<float>(seconds(event.duration_ns)) : computed_s(event);
        before_end = event.end_ns();
        break;
      case As::op: {
        const auto slot = static_cast<std::size_t>(next[at][static_cast<std::size_t>(role.type)]++);
        Times& times = to.times[at * shape.slots.size() + slot];
        times = {.begin = event.begin_ns, .end = event.end_ns()};
        if (!is_section(role.type)) break;
        times.own = computed_s(event);
        times.before = std::exchange(before, 0.0F);
        times.before_begin = std::exchange(before_begin, 0);
        times.before_end = std::exchange(before_end, 0);
        break;
      }
      default: break;
    }
  }
}

// All tp ranks of a cell have the same messages in the same order. One serves the section within which it begins.
void Column::serve(int pp) {
  const StagePattern& shape = pattern_.stages[static_cast<std::size_t>(pp)];
  const auto count = static_cast<std::size_t>(shape.tp_collectives);
  std::vector<std::int64_t> moved(count);
  for (std::size_t step = 0; step < pattern_.steps.size(); ++step) {
    std::ranges::fill(moved, std::numeric_limits<std::int64_t>::max());
    for (int tp = 0; tp < mesh_.tp; ++tp) {
      if (rank(pp, tp) == nullptr) continue;
      const Collective* const collectives = at(pp, tp).collectives.data() + step * count;
      for (std::size_t k = 0; k < count; ++k) moved[k] = std::min(moved[k], collectives[k].duration);
    }
    for (int tp = 0; tp < mesh_.tp; ++tp) {
      if (rank(pp, tp) == nullptr) continue;
      Rank& to = ranks_[static_cast<std::size_t>(pp * mesh_.tp + tp)];
      const Collective* const collectives = to.collectives.data() + step * count;
      Times* const times = to.times.data() + step * shape.slots.size();
      std::size_t k = 0;
      for (const int slot : shape.sections) {
        Times& section = times[slot];
        while (k < count && collectives[k].begin < section.begin) ++k;
        for (; k < count && collectives[k].begin < section.end; ++k) {
          section.moving += moved[k];
          section.waiting += collectives[k].duration - moved[k];
        }
        if (std::isnan(section.own)) {
          section.own = static_cast<float>(std::max(0.0, seconds(section.length() - section.moving - section.waiting)));
        }
      }
    }
  }
}

}  // namespace ms::tracepp
