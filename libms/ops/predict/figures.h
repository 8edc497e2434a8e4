// How good a ranking of units is. A row is one unit on one day of decision, of which the outcome is known; the rows of
// a day are ranked by score. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::predict {

struct Outcome {
  std::uint32_t unit = 0;
  std::uint32_t decision = 0;  // the number of its day
  float score = 0;             // a number
  bool fails = false;
  float days_to_failure = 0;
};

struct Figures {
  double precision_at_k = 0, recall_at_k = 0;  // of the K with the highest scores of each day
  double pr_auc = 0;                           // average precision over all rows
  double precision_at_recall = 0;              // at the highest threshold that finds that part of the failures
  double precision_beyond_k = 0;               // of all others: the part of them that fails
  double lead_days = 0;                        // median from the decision to the failure, of those among the K
  double flagged = 0, caught = 0;              // rows among the K of each day, and of these that failed
};
struct Estimate {
  Figures value, low, high;  // the interval in which 95 % of resamples lie
};

struct FigureOptions {
  std::size_t k = 20;
  double recall = 0.2;
  int resamples = 200;
  std::uint64_t seed = 0;
};

// `weights`, where given, is how often each unit counts.
Figures figures(std::span<const Outcome> outcomes, const FigureOptions& options,
                std::span<const std::uint32_t> weights = {});

// The mean over `runs` (one a seed), and an interval from resamples of units, each with the run of a random seed:
// the rows of a unit are not independent, and neither are runs.
Estimate estimate(const std::vector<std::vector<Outcome>>& runs, std::size_t units, const FigureOptions& options);

}  // namespace ms::predict
