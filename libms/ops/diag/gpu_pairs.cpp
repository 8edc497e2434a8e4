#include "diag/gpu_pairs.h"

#include <fmt/format.h>

namespace ms::diag {
namespace {

constexpr double kSlowShare = 0.5;
constexpr std::size_t kLeastGpus = 4;  // without one of them, three pairs are left to compare with

double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Finding wrong_words(std::string entity, std::size_t words, std::string_view what) {
  return {.severity = Severity::warning,
          .entity = std::move(entity),
          .message = fmt::format("{} words {}", words, what),
          .measured = static_cast<double>(words),
          .limit = 0,
          .unit = "words",
          .remedy =
              "Take the GPU out of service, reset it and run this again, with perf.gpubits and soak.hbm; if words "
              "are wrong again, have it replaced."};
}

}  // namespace

double typical_gbps(const GpuPairs& pairs, std::size_t gpu) {
  std::vector<double> rates;
  for (std::size_t other = 0; other < pairs.gpus.size(); ++other) {
    if (other != gpu) rates.push_back(pairs.slower_way(gpu, other));
  }
  return lower_median(std::move(rates));
}

std::vector<Finding> wrong_gpus(const GpuPairs& pairs) {
  const std::size_t gpus = pairs.gpus.size();
  std::vector<Finding> findings;
  std::vector<std::vector<std::size_t>> left = pairs.wrong;  // what no GPU explains yet
  const auto explain = [&](std::size_t gpu, bool as_sender) {
    const auto of = [&](std::size_t other) -> std::size_t& { return as_sender ? left[gpu][other] : left[other][gpu]; };
    std::size_t words = 0;
    for (std::size_t other = 0; other < gpus; ++other) {
      if (other != gpu && of(other) == 0) return;
      words += of(other);
    }
    for (std::size_t other = 0; other < gpus; ++other) of(other) = 0;
    findings.push_back(wrong_words(
        pairs.gpus[gpu], words,
        as_sender ? "that it sent arrived wrong at all other GPUs" : "that all other GPUs sent it arrived wrong"));
  };
  for (std::size_t gpu = 0; gpus > 2 && gpu < gpus; ++gpu) explain(gpu, true);
  for (std::size_t gpu = 0; gpus > 2 && gpu < gpus; ++gpu) explain(gpu, false);
  for (std::size_t from = 0; from < gpus; ++from) {
    for (std::size_t to = 0; to < gpus; ++to) {
      if (left[from][to] == 0) continue;
      findings.push_back(wrong_words(fmt::format("{} to {}", pairs.gpus[from], pairs.gpus[to]), left[from][to],
                                     "that arrived are not what was sent"));
    }
  }
  return findings;
}

std::vector<Finding> slow_gpus(const GpuPairs& pairs) {
  const std::size_t gpus = pairs.gpus.size();
  std::vector<Finding> findings;
  if (gpus < kLeastGpus) return findings;
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
    double best = 0;
    std::vector<double> others;
    for (std::size_t a = 0; a < gpus; ++a) {
      if (a != gpu) best = std::max(best, pairs.slower_way(gpu, a));
      for (std::size_t b = a + 1; b < gpus; ++b) {
        if (a != gpu && b != gpu) others.push_back(pairs.slower_way(a, b));
      }
    }
    const double usual = lower_median(std::move(others));
    if (best >= kSlowShare * usual) continue;
    findings.push_back(about(pairs.gpus[gpu], Severity::warning,
                             fmt::format("slow with every other GPU: {:.3g} GB/s at best each way, and pairs "
                                         "without it reach {:.3g}",
                                         best, usual),
                             best, kSlowShare * usual, "GB/s"));
  }
  return findings;
}

}  // namespace ms::diag
