#include "trace/expert_loads.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace ms::trace {
namespace {

bool is_load(const Json& value) { return value.is_number() && value.get<double>() >= 0; }

std::optional<ExpertLoads> loads_of_line(std::string_view line) {
  const std::optional<Json> json = Json::try_parse(line);
  const Json* const load = json ? json->find("expert_load") : nullptr;
  const Json* const by_layer = load != nullptr ? load->find("layers") : nullptr;
  if (by_layer == nullptr || !by_layer->is_array() || by_layer->empty()) return {};
  ExpertLoads loads;
  for (const Json& layer : *by_layer) {
    if (!layer.is_array() || !std::ranges::all_of(layer, is_load)) return {};
    const std::size_t experts = loads.experts();
    if (experts != 0 && !layer.empty() && layer.size() != experts) return {};
    loads.by_layer.push_back(layer.get<std::vector<double>>());
  }
  if (loads.experts() == 0) return {};
  if (const Json* const step = json->find("step"); step != nullptr && step->is_number_integer())
    loads.step = step->get<std::int64_t>();
  if (const Json* const dropped = load->find("dropped"); dropped != nullptr && is_load(*dropped))
    loads.dropped = dropped->get<double>();
  return loads;
}

}  // namespace

std::size_t ExpertLoads::experts() const {
  const auto has_some = std::ranges::find_if(by_layer, [](const auto& layer) { return !layer.empty(); });
  return has_some == by_layer.end() ? 0 : has_some->size();
}

std::optional<ExpertLoads> last_expert_loads(std::string_view metrics) {
  while (!metrics.empty()) {
    const std::size_t newline = metrics.rfind('\n');  // npos + 1 is 0
    if (auto loads = loads_of_line(metrics.substr(newline + 1))) return loads;
    metrics = metrics.substr(0, newline == std::string_view::npos ? 0 : newline);
  }
  return {};
}

std::string starving_experts(const std::vector<std::vector<double>>& by_layer) {
  constexpr double kStarving = 0.1;
  std::size_t starving = 0, experts = 0, of_layer = 0, at_expert = 0;
  double least = kStarving;
  for (std::size_t layer = 0; layer < by_layer.size(); ++layer) {
    for (std::size_t expert = 0; expert < by_layer[layer].size(); ++expert, ++experts) {
      const double share = by_layer[layer][expert];
      if (share < kStarving) ++starving;
      if (share < least) least = share, of_layer = layer, at_expert = expert;
    }
  }
  if (starving == 0) return {};
  return fmt::format(
      "{} of {} had less than a tenth of an even share of the tokens: the least, {:.1f} %, expert {} of"
      " layer {}; train.moe_aux_loss, or model.router_bias with train.moe_bias_rate, evens the load",
      starving, plural(experts, "expert"), 100 * least, at_expert, of_layer);
}

}  // namespace ms::trace
