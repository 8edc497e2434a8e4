#include "train/simulate/expert_load.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "base/user_path.h"
#include "trace/expert_loads.h"

namespace ms::train {
namespace {

// Loads of a layer's experts, in even shares.
using Loads = std::vector<double>;

constexpr double kMostExponent = 10;

// The most chosen expert comes first. A token chooses an expert once, which so has at most 1 / k of all rows; what a
// more chosen one would have above that goes to the others.
Loads zipf_loads(const nn::ModelConfig& model, double exponent) {
  const auto experts = static_cast<double>(model.experts),
             most = experts / static_cast<double>(model.experts_per_token);
  Loads weights;
  for (std::int64_t n = 1; n <= model.experts; ++n) weights.push_back(std::pow(static_cast<double>(n), -exponent));
  double weight = std::accumulate(weights.begin(), weights.end(), 0.0), rows = experts;
  Loads loads;
  for (const double own : weights) {
    loads.push_back(std::min(most, rows * own / weight));
    rows -= loads.back(), weight -= own;
  }
  return loads;
}

// The same loads, of experts that are drawn.
Loads drawn(const Loads& loads, std::int64_t seed, std::size_t layer) {
  static constexpr std::uint64_t kKey = rng_key("simulated experts");
  std::vector<std::pair<double, double>> order;  // a number by chance, and a load
  for (std::size_t i = 0; i < loads.size(); ++i)
    order.emplace_back(uniform(static_cast<std::uint64_t>(seed), kKey, layer * loads.size() + i), loads[i]);
  std::ranges::sort(order);
  Loads result;
  for (const auto& [chance, load] : order) result.push_back(load);
  return result;
}

std::vector<Loads> loads_of_zipf(std::string_view exponent_text, const Plan& plan) {
  double exponent = 0;
  const auto [end, error] =
      std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  if (error != std::errc{} || end != exponent_text.data() + exponent_text.size() ||
      !(exponent >= 0 && exponent <= kMostExponent)) {
    throw user_error("cli.value",
                     fmt::format("--expert-load zipf={}: the exponent must be 0 to {}", exponent_text, kMostExponent));
  }
  const nn::ModelConfig& model = plan.settings.model;
  const Loads loads = zipf_loads(model, exponent);
  std::vector<Loads> layers;
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(model.layers); ++layer)
    layers.push_back(drawn(loads, plan.settings.train.seed, layer));
  return layers;
}

std::vector<Loads> loads_of_file(const std::string& path, const nn::ModelConfig& model) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  const auto read = trace::last_expert_loads(read_user_file_end(path, kMostBytes));
  if (!read) {
    throw user_error("cli.value", fmt::format("--expert-load: no line of '{}' has the load of experts", path),
                     "ms-train run writes it into metrics.jsonl with metrics.expert_load_every");
  }
  bool is_of_model = static_cast<std::int64_t>(read->layers()) == model.layers;
  for (std::int64_t layer = 0; is_of_model && layer < model.layers; ++layer) {
    const Loads& loads = read->by_layer[static_cast<std::size_t>(layer)];
    is_of_model =
        model.has_experts(layer) ? std::ranges::any_of(loads, [](double load) { return load > 0; }) : loads.empty();
  }
  if (!is_of_model || static_cast<std::int64_t>(read->experts()) != model.experts) {
    throw user_error("cli.value",
                     fmt::format("--expert-load: '{}' does not have loads of {} layers of {} experts each, as the "
                                 "model has",
                                 path, model.layers, model.experts));
  }
  return read->by_layer;
}

double busiest_rank(const Loads& loads, std::int64_t ranks) {
  const std::ptrdiff_t held = std::ssize(loads) / ranks;
  double most = 0;
  for (auto begin = loads.begin(); begin != loads.end(); begin += held)
    most = std::max(most, std::accumulate(begin, begin + held, 0.0));
  return most * static_cast<double>(ranks) / std::accumulate(loads.begin(), loads.end(), 0.0);
}

}  // namespace

std::vector<double> busiest_ranks(const std::string& load, const Plan& plan) {
  const nn::ModelConfig& model = plan.settings.model;
  if (model.experts == 0) throw user_error("cli.value", "--expert-load: the model has no experts (model.experts is 0)");
  const std::string_view zipf = "zipf=";
  std::vector<double> busiest(static_cast<std::size_t>(model.layers), 1.0);
  if (load == "uniform") return busiest;
  const std::vector<Loads> layers =
      load.starts_with(zipf) ? loads_of_zipf(load.substr(zipf.size()), plan) : loads_of_file(load, model);
  const nn::Shape shape = plan.shape(0);
  const double room = shape.drops() ? shape.moe_capacity : static_cast<double>(plan.mesh.ep);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (model.has_experts(static_cast<std::int64_t>(layer)))
      busiest[layer] = std::min(room, busiest_rank(layers[layer], plan.mesh.ep));
  }
  return busiest;
}

}  // namespace ms::train
