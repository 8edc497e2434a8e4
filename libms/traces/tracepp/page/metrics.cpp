#include "tracepp/page/metrics.h"

#include <optional>

#include "base/json.h"

namespace ms::tracepp {
namespace {

double number_at(const Json& json, std::string_view key) {
  const Json* const value = json.find(key);
  return value != nullptr && value->is_number() ? value->get<double>() : kNotWritten;
}

std::optional<StepMetrics> parse_line(std::string_view line) {
  const std::optional<Json> json = Json::try_parse(line);
  const Json* const step = json ? json->find("step") : nullptr;
  constexpr double kMostSteps = 1e15;
  if (step == nullptr || !step->is_number_integer() || !(step->get<double>() >= 0 && step->get<double>() < kMostSteps))
    return {};
  StepMetrics metrics{.step = step->get<std::int64_t>()};
  metrics.loss = number_at(*json, "loss");
  metrics.step_s = number_at(*json, "step_s");
  metrics.tokens_per_s = number_at(*json, "tokens_per_s");
  if (const Json* const seconds = json->find("seconds")) metrics.data_wait_s = number_at(*seconds, "data_wait");
  return metrics;
}

}  // namespace

MetricsTail parse_metrics(std::string_view text, bool is_cut) {
  MetricsTail tail;
  if (is_cut) {
    const std::size_t end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    if (const std::optional<StepMetrics> step = parse_line(text.substr(0, end))) {
      tail.steps.push_back(*step);
    } else {
      ++tail.not_understood;
    }
  }
  return tail;
}

}  // namespace ms::tracepp
