#include "tracepp/steps/rank_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace

RankTable::RankTable(const mesh::Mesh& on, std::size_t step_count) : mesh(on), steps(step_count) {
  ranks.assign(static_cast<std::size_t>(mesh.size()), -1);
  hosts.resize(ranks.size());
  for (std::vector<float>* values : {&compute, &pace, &data_wait, &late, &lost, &receive[0], &receive[1]})
    values->assign(ranks.size() * steps, kNaN);
  for (std::vector<float>* values : {&gather, &reduce})
    values->assign(static_cast<std::size_t>(mesh.pp * mesh.tp) * steps, kNaN);
  periods.assign(steps, std::numeric_limits<double>::quiet_NaN());
}

void RankTable::set_works(std::vector<std::vector<std::size_t>> counts) {
  works = std::move(counts);
  computations = 0;
  for (const auto& of_stage : works)
    computations = std::max(computations, std::accumulate(of_stage.begin(), of_stage.end(), std::size_t{0}));
  each.assign(ranks.size() * steps * computations, kNaN);
}

void RankTable::set_computed(int place, std::size_t step, const std::vector<float>& seconds) {
  compute[at(place, step)] = std::accumulate(seconds.begin(), seconds.end(), 0.0F);
  std::ranges::copy(seconds, each.begin() + static_cast<std::ptrdiff_t>(at(place, step) * computations));
  float sum = 0;
  auto from = seconds.begin();
  std::vector<float> same;
  for (const std::size_t count : works[static_cast<std::size_t>(mesh.coord(place).pp)]) {
    same.assign(from, from + static_cast<std::ptrdiff_t>(count));
    from += static_cast<std::ptrdiff_t>(count);
    sum += static_cast<float>(median(same)) * static_cast<float>(count);
  }
  pace[at(place, step)] = sum;
}

RankTable table_of(const StepTrace& steps, const std::vector<double>& measured) {
  RankTable table({.dp = steps.dp, .pp = steps.pp, .tp = steps.tp}, steps.steps.size());
  std::vector<float> received[2];
  for (int pp = 0; pp < steps.pp; ++pp) {
    for (int dp = 0; dp < steps.dp; ++dp) {
      const int place = table.mesh.rank({.dp = dp, .pp = pp, .tp = 0});
      table.ranks[static_cast<std::size_t>(place)] = steps.ranks[static_cast<std::size_t>(pp * steps.dp + dp)];
      for (std::size_t step = 0; step < table.steps; ++step) {
        float compute = 0;
        std::map<std::pair<OpType, int>, std::vector<float>> same_work;  // by type and chunk
        for (auto& of : received) of.clear();
        for (std::size_t op = 0; op < steps.ops.size(); ++op) {
          if (steps.ops[op].stage != pp) continue;
          const OpType type = steps.ops[op].type;
          const auto seconds_of = static_cast<float>(measured[steps.at(op, step, dp)]);
          if (type == OpType::forward_compute || is_backward(type)) {
            compute += seconds_of;
            same_work[{type, steps.ops[op].chunk}].push_back(seconds_of);
          }
          if (type == OpType::forward_recv || type == OpType::backward_recv)
            received[type == OpType::forward_recv ? 0 : 1].push_back(seconds_of);
          if (dp > 0 || !(type == OpType::params_all_gather || type == OpType::grads_reduce_scatter)) continue;
          float& sum = (type == OpType::params_all_gather ? table.gather : table.reduce)[table.at_group(pp, 0, step)];
          sum = (std::isnan(sum) ? 0 : sum) + seconds_of;
        }
        table.compute[table.at(place, step)] = compute;
        float pace = 0;
        for (auto& [key, values] : same_work)
          pace += static_cast<float>(median(values)) * static_cast<float>(values.size());
        table.pace[table.at(place, step)] = pace;
        for (int i = 0; i < 2; ++i)
          table.receive[i][table.at(place, step)] = received[i].empty() ? kNaN : quantile(received[i], 0.5);
      }
    }
  }
  return table;
}

}  // namespace ms::tracepp
