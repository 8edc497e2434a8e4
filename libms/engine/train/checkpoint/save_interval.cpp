#include "train/checkpoint/save_interval.h"

#include <algorithm>

#include "ckpt/interval.h"

namespace ms::train {

namespace {

constexpr double kLeastStall_s = 1e-3;                   // below that a measurement is noise
constexpr double kFirst_s = 600;                         // of "auto", which then knows what a save costs
constexpr double kLeastAuto_s = 60, kMostAuto_s = 3600;  // a save costs storage, too; and software fails as well
constexpr double kNodes_s = 2048 * 54.0 * 86'400, kFailures = 419;  // of Llama 3 405B

}  // namespace

double usual_mtbf_s(std::size_t nodes) { return kNodes_s / kFailures / static_cast<double>(nodes); }

double save_interval_s(const CheckpointConfig& config, std::optional<double> stall_s, double mtbf_s) {
  const bool is_auto = config.every_s == kNumberWord;
  const auto best_s = [&](double between_s) {
    return ckpt::daly_interval_s(std::max(*stall_s, kLeastStall_s), between_s);
  };
  if (config.mtbf_s > 0 && stall_s) return best_s(config.mtbf_s);
  if (!is_auto) return config.every_s;
  return stall_s ? std::clamp(best_s(mtbf_s), kLeastAuto_s, kMostAuto_s) : kFirst_s;
}

}  // namespace ms::train
