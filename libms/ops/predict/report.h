// The tables and documents that ms-diag predict prints.
#pragma once

#include <string>
#include <vector>

#include "predict/evaluate.h"
#include "predict/predictor.h"

namespace ms::predict {

// The costs of acting on a prediction, and of a failure that was not predicted.
struct Costs {
  double out_hours = 4;  // that a flagged node is out of service
  double gpus_per_node = 8;
  double failure_gpu_hours = 0;  // 0: not given
};

std::string evaluation_text(const Evaluation& evaluation, const EvaluateOptions& options, const Costs& costs);
std::string evaluation_json(const Evaluation& evaluation, const EvaluateOptions& options, const Costs& costs);

struct ScoredUnit {
  std::string name = {};
  double chance = 0;  // at most what the evaluation allows; 0 where no skill was shown
  std::vector<Reason> reasons = {};
};
struct Scores {
  std::vector<ScoredUnit> units = {};      // the likeliest first
  std::vector<std::string> unscored = {};  // in service, without what the model has to see
  std::size_t unnamed = 0;                 // among the likeliest, of units that only were counted
  bool skill = false;                      // else this is an order without chances
  double day = 0;
};

std::string scores_text(const Scores& scores, const Predictor& predictor);
std::string scores_csv(const Scores& scores);
std::string scores_json(const Scores& scores, const Predictor& predictor);

}  // namespace ms::predict
