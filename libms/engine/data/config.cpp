#include "data/config.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace ms::data {
namespace {

// Returns the problem with all entries of `train`, or of `valid`, taken together; nullopt if there is none.
std::optional<std::string> entries_problem(const std::vector<std::string>& entries, bool weights_allowed) {
  std::vector<DataSource> sources;
  for (const std::string& entry : entries) sources.push_back(parse_source(entry));
  const auto weighted = std::ranges::count_if(sources, [](const DataSource& s) { return !s.weights.empty(); });
  if (weighted > 0 && !weights_allowed) return "validation files take no weights: all of them are read evenly";
  if (weighted > 0 && weighted < std::ssize(sources)) return "either every training file has a weight, or none";
  if (weighted > 0) weight_stages(sources);
  return std::nullopt;
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// "WEIGHT" or "STEP:WEIGHT;STEP:WEIGHT"; empty where the word is neither.
std::vector<SourceWeight> parse_weights(std::string_view word) {
  if (const std::optional<double> weight = number_of<double>(word)) return {{0, *weight}};
  std::vector<SourceWeight> weights;
  for (const std::string_view piece : split(word, ';')) {
    const std::size_t colon = piece.find(':');
    if (colon == std::string_view::npos) return {};
    const auto step = number_of<std::int64_t>(piece.substr(0, colon));
    const auto weight = number_of<double>(piece.substr(colon + 1));
    if (!step || !weight) return {};
    weights.push_back({*step, *weight});
  }
  return weights;
}

void check_weights(std::span<const SourceWeight> weights, std::string_view prefix) {
  const auto refuse = [](std::string message) { throw user_error("data.source", std::move(message)); };
  if (weights.size() > Mixture::kMaxStages) {
    refuse(fmt::format("'{}' has {} weights by step, at most {} are possible", prefix, weights.size(),
                       Mixture::kMaxStages));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto [step, weight] = weights[i];
    if (i == 0 && step != 0) {
      refuse(fmt::format("the weights of '{}' begin at step {}, expected step 0", prefix, step));
    }
    if (i > 0 && step <= weights[i - 1].step) {
      refuse(fmt::format("the weights of '{}' have step {} after step {}, expected steps that grow", prefix, step,
                         weights[i - 1].step));
    }
    if (weight != 0 && !Blend::possible(weight)) {
      const std::string from = weights.size() > 1 ? fmt::format(" from step {} on", step) : "";
      refuse(fmt::format("the weight {} of '{}'{} is not between {:f} and {:.0f}", weight, prefix, from,
                         Blend::kMinWeight, Blend::kMaxWeight));
    }
  }
  if (std::ranges::all_of(weights, [](const SourceWeight& piece) { return piece.weight == 0; })) {
    refuse(fmt::format("the weight of '{}' is never above 0, so it would never be read", prefix));
  }
}

}  // namespace

DataSource parse_source(std::string_view entry) {
  const std::string_view text = trim(entry);
  DataSource source{.prefix = std::string(text), .weights = {}};
  const std::size_t space = text.find(' ');
  if (space != std::string_view::npos) source.weights = parse_weights(text.substr(0, space));
  if (!source.weights.empty()) {  // otherwise a path with a space in it
    source.prefix = std::string(trim(text.substr(space)));
    check_weights(source.weights, source.prefix);
  }
  if (source.prefix.empty()) throw user_error("data.source", fmt::format("'{}' names no token file", entry));
  if (source.prefix.ends_with(".bin") || source.prefix.ends_with(".idx")) {
    throw user_error("data.source",
                     fmt::format("'{}' is a file, expected the prefix of a pair of files", source.prefix),
                     fmt::format("use '{}'", source.prefix.substr(0, source.prefix.size() - 4)));
  }
  return source;
}

std::vector<WeightStage> weight_stages(std::span<const DataSource> sources) {
  std::set<std::int64_t> steps;
  for (const DataSource& source : sources) {
    for (const SourceWeight& piece : source.weights) steps.insert(piece.step);
  }
  if (steps.size() > Mixture::kMaxStages) {
    throw user_error("data.weight", fmt::format("the weights of data.train change at {} steps, at most {} are possible",
                                                steps.size(), Mixture::kMaxStages));
  }
  std::vector<WeightStage> stages;
  for (const std::int64_t step : steps) {
    WeightStage& stage = stages.emplace_back(WeightStage{.step = step, .weights = {}});
    for (const DataSource& source : sources) {
      const auto after = std::ranges::upper_bound(source.weights, step, {}, &SourceWeight::step);
      stage.weights.push_back(std::prev(after)->weight);
    }
    if (std::ranges::all_of(stage.weights, [](double weight) { return weight == 0; })) {
      throw user_error("data.weight", fmt::format("from step {} on all weights of data.train are 0", step),
                       "give one source a weight above 0 there");
    }
  }
  return stages;
}

void validate(const DataConfig& config, ConfigSchema& schema) {
  const auto check = [&](std::string_view key, const std::vector<std::string>& entries, bool weights_allowed) {
    try {
      if (const auto problem = entries_problem(entries, weights_allowed)) schema.add_problem(key, *problem);
    } catch (const Error& error) {  // of one entry, reported among all other problems of the configuration
      schema.add_problem(key,
                         error.hint().empty() ? error.message() : fmt::format("{}; {}", error.message(), error.hint()));
    }
  };
  check("data.train", config.train, true);
  check("data.valid", config.valid, false);
}

}  // namespace ms::data
