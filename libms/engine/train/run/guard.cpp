#include "train/run/guard.h"

#include <cmath>

namespace ms::train {
namespace {

// The sign of a NaN means nothing.
std::string plain_number(double value) { return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value); }

}  // namespace

float Guard::limit(std::int64_t step) const {
  const bool leaves_out = config_.spike != "ignore" && config_.spike != "warn";
  return leaves_out ? spike_above_[static_cast<std::size_t>(step % 2)] : std::numeric_limits<float>::infinity();
}

float Guard::spike_above() const {
  if (config_.spike == "ignore" || std::ssize(norms_) < config_.window) return std::numeric_limits<float>::infinity();
  const auto count = static_cast<double>(norms_.size());
  double sum = 0, squares = 0;
  for (const double norm : norms_) sum += norm;
  const double mean = sum / count;
  for (const double norm : norms_) squares += (norm - mean) * (norm - mean);
  return static_cast<float>(mean + config_.spike_zscore * std::sqrt(squares / count));
}

Ruling Guard::judge(std::int64_t step, std::optional<double> loss, double grad_norm) {
  float& above = spike_above_[static_cast<std::size_t>(step % 2)];
  const bool finite = std::isfinite(grad_norm), spike = finite && grad_norm > double{above};
  const std::string& policy = spike ? config_.spike : config_.nonfinite;
  const bool updated = finite && (!spike || policy == "warn");
  if (!updated) ++skips_;
  if (updated && loss) skips_ = 0;

  Ruling ruling;
  const std::string numbers =
      fmt::format("step {}: the gradient norm is {}, {}", step + 1, plain_number(grad_norm),
                  loss ? fmt::format("the loss {}", plain_number(*loss)) : "and the loss ignores all tokens");
  const std::string why =
      spike ? fmt::format("{}: a spike, above {:.6g}, the mean of the last {} norms plus {} standard deviations",
                          numbers, above, norms_.size(), config_.spike_zscore)
            : numbers;
  const std::string look = fmt::format("'ms-data sample CONFIG --step {}' shows the step's data", step + 1);
  if (policy == "stop" && !updated) {
    ruling.stop = user_error(
        spike ? "train.spike" : "train.diverged", why,
        fmt::format(
            "{}; a lower optim.lr or a longer warm-up may help, and guard.{} = \"skip\" continues without such steps",
            look, spike ? "spike" : "nonfinite"));
  } else if (policy == "rollback" && !updated) {
    ruling.rollback = why;
  } else if (skips_ == config_.max_skips) {
    ruling.stop =
        user_error("train.diverged",
                   fmt::format("{}: {} skipped, as many as guard.max_skips allows, and the run has diverged", why,
                               skips_ == 1 ? "the step was" : fmt::format("{} steps in a row were", skips_)),
                   fmt::format("{}; a lower optim.lr, a longer warm-up or optim.clip = 1 may help", look));
  } else if (!updated) {
    ruling.warning = fmt::format("{}; the step was skipped", why);
  } else if (spike) {
    ruling.warning = why;
  }

  if (updated && loss) norms_.push_back(grad_norm);
  if (std::ssize(norms_) > config_.window) norms_.pop_front();
  above = spike_above();
  return ruling;
}

}  // namespace ms::train
