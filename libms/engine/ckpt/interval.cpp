#include "ckpt/interval.h"

#include <cmath>

#include "base/error.h"

namespace ms::ckpt {

double daly_interval_s(double cost_s, double mtbf_s) {
  MS_ASSERT(cost_s > 0 && mtbf_s > 0, "an interval for a cost of {} s and {} s between failures", cost_s, mtbf_s);
  const double ratio = cost_s / (2 * mtbf_s);
  if (ratio >= 1) return mtbf_s;  // saving takes longer than the job lives: the expansion is of no use there
  return std::sqrt(2 * cost_s * mtbf_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - cost_s;
}

}  // namespace ms::ckpt
