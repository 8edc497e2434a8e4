#include "tracepp/heat/measures.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr float kPale = 0.02F;  // differences below this part of a step, or of a median cell, stay pale
constexpr std::size_t kMostCells = 1 << 20;
constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

// The role of a kind of work: mesh_maps() adds up the measures of a role.
std::string_view role_of_work(Kind kind) {
  switch (kind) {
    case Kind::forward: return "forward";
    case Kind::backward:
    case Kind::backward_input:
    case Kind::backward_weight: return "backward";
    default: return "";
  }
}

struct NamedPart {
  std::string_view name, role;
  std::int64_t (*of)(const StepTime& sum);
};
template <GroupAxis kAxis>
std::int64_t waiting(const StepTime& sum) {
  return sum.axis(kAxis).waiting_ns;
}
// The parts of a step; together they are its length.
constexpr NamedPart kNamedParts[] = {
    {"computing", "", [](const StepTime& sum) { return sum.busy_ns; }},
    {"stalled", "", [](const StepTime& sum) { return sum.stalled_other_ns; }},
    {"waiting for tp", "waiting", waiting<GroupAxis::tp>},
    {"waiting for pp", "waiting", waiting<GroupAxis::pp>},
    {"waiting for dp", "waiting", waiting<GroupAxis::dp>},
    {"waiting for world", "waiting", waiting<GroupAxis::world>},
    {"waiting for other", "waiting", waiting<GroupAxis::other>},
    {"copying", "", [](const StepTime& sum) { return sum.copy_ns; }},
    {"save", "", [](const StepTime& sum) { return sum.save_ns; }},
    {"data wait", "", [](const StepTime& sum) { return sum.data_wait_ns; }},
    {"idle", "waiting", [](const StepTime& sum) { return sum.idle_ns; }},
};

// Returns the median, 0 of none; of an even number the mean of the middle two, so that of two ranks the slower one is
// above it and the faster one below.
float middle_of(std::vector<float>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

std::vector<float> medians_of(const RunTrace& trace, const std::vector<float>& values) {
  const mesh::Mesh mesh = mesh_of(trace);
  std::map<int, std::vector<float>> stages;
  for (std::size_t r = 0; r < values.size(); ++r) stages[stage_of(trace, mesh, r)].push_back(values[r]);
  std::map<int, float> of_stage;
  for (auto& [stage, of] : stages) of_stage[stage] = middle_of(of);
  std::vector<float> medians(values.size());
  for (std::size_t r = 0; r < values.size(); ++r) medians[r] = of_stage[stage_of(trace, mesh, r)];
  return medians;
}

}  // namespace

std::vector<StepShare> shares_of(const Breakdown& breakdown) {
  const StepTime sum = sum_of(breakdown.steps);
  std::vector<StepShare> shares;
  for (const NamedPart& part : kNamedParts) {
    const auto ns = static_cast<double>(part.of(sum));
    if (ns <= 0 || sum.length_ns <= 0) continue;
    shares.push_back({.name = part.name,
                      .s = 1e-9 * ns / static_cast<double>(breakdown.steps.size()),
                      .share = ns / static_cast<double>(sum.length_ns)});
  }
  return shares;
}

mesh::Mesh mesh_of(const RunTrace& trace) {
  if (trace.has_mesh) return trace.mesh;
  constexpr int kMost = std::numeric_limits<int>::max() - 1;  // of the numbers that others wrote
  return {.dp = trace.ranks.empty() ? 1 : std::min(trace.ranks.back().rank, kMost) + 1};
}

int stage_of(const RunTrace& trace, const mesh::Mesh& mesh, std::size_t rank) {
  return std::min(mesh.coord(trace.ranks[rank].rank).pp, mesh.pp - 1);
}

std::vector<Measure> measures_of(const RunTrace& trace, const Breakdown& breakdown) {
  const std::size_t ranks = trace.ranks.size();
  std::vector<double> steps(ranks);
  std::vector<StepTime> sums(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    steps[r] = static_cast<double>(breakdown.of_rank(r).size());
    sums[r] = sum_of(breakdown.of_rank(r));
  }
  std::vector<Measure> measures;
  const auto add = [&](Measure measure, const auto& ns_of) {
    measure.values.resize(ranks);
    for (std::size_t r = 0; r < ranks; ++r)
      measure.values[r] = steps[r] > 0 ? static_cast<float>(seconds(ns_of(r)) / steps[r]) : 0.0F;
    if (std::ranges::none_of(measure.values, [](float value) { return value > 0; })) return;
    measure.medians = medians_of(trace, measure.values);
    measures.push_back(std::move(measure));
  };
  for (const NamedPart& part : kNamedParts) {
    add({.name = std::string(part.name), .role = part.role, .is_part = true, .is_own = part.role.empty()},
        [&](std::size_t r) { return part.of(sums[r]); });
  }
  for (std::size_t k = 0; k < breakdown.kinds.size(); ++k) {
    const KindOfWork& work = breakdown.kinds[k];
    const bool is_twice = trace::to_string(work.kind) == trace::to_string(work.purpose);  // "forward forward"
    add({.name = is_twice ? std::string(trace::to_string(work.kind)) : work_text(work),
         .role = role_of_work(work.kind)},
        [&](std::size_t r) { return breakdown.kinds_of_rank(r)[k].time_ns; });
  }
  return measures;
}

float full_difference(const std::vector<Measure>& measures, double usual_step_s) {
  float full = kPale * static_cast<float>(usual_step_s > 0 ? usual_step_s : 1);
  for (const Measure& measure : measures)
    for (std::size_t r = 0; r < measure.values.size(); ++r) full = std::max(full, std::abs(measure.above(r)));
  return full;
}

std::vector<MeshMap> mesh_maps(const RunTrace& trace, const std::vector<Measure>& measures) {
  const mesh::Mesh mesh = mesh_of(trace);
  const auto count = static_cast<std::size_t>(mesh.dp) * static_cast<std::size_t>(mesh.pp);
  std::vector<MeshMap> maps;
  if (count > kMostCells) return maps;
  // Traces of other programs do not tell forwards from backwards.
  const bool has_sections =
      std::ranges::any_of(measures, [](const Measure& of) { return of.role == "forward" || of.role == "backward"; });
  for (const std::string_view role : {"computing", "forward", "backward", "waiting"}) {
    const auto has_role = [&](const Measure& measure) {
      return role == "computing" ? !has_sections && measure.name == role : measure.role == role;
    };
    if (std::ranges::none_of(measures, has_role)) continue;
    MeshMap& map = maps.emplace_back();
    map.role = role;
    map.cells.assign(count, kUnknown);
    map.slowest.assign(count, -1);
    for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
      float value = 0;
      for (const Measure& measure : measures)
        if (has_role(measure)) value += measure.values[r];
      const auto cell = static_cast<std::size_t>(stage_of(trace, mesh, r)) * static_cast<std::size_t>(mesh.dp) +
                        static_cast<std::size_t>(mesh.coord(trace.ranks[r].rank).dp);
      if (map.slowest[cell] >= 0 && map.cells[cell] >= value) continue;
      map.cells[cell] = value;
      map.slowest[cell] = static_cast<int>(r);
    }
    std::vector<float> known;
    std::ranges::copy_if(map.cells, std::back_inserter(known), [](float value) { return !std::isnan(value); });
    const auto [low, high] = std::ranges::minmax(known);
    map.low = low;
    map.high = high;
    map.middle = middle_of(known);
    map.full = std::max({high - map.middle, map.middle - low, kPale * map.middle});
    if (map.full <= 0) map.full = 1;
  }
  return maps;
}

}  // namespace ms::tracepp
