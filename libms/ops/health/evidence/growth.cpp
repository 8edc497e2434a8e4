#include "health/evidence/growth.h"

#include <algorithm>

namespace ms::health {

std::optional<double> growth_per_window(const Evidence& evidence, const std::string& name, double value,
                                        double window_s, Counters& keep) {
  const double now_s = evidence.now_wall_s();
  const std::optional<Counter> before = evidence.before(name);
  const bool usable = before && before->value <= value && before->wall_s <= now_s;
  if (!usable) {
    keep[name] = {value, now_s};
    return std::nullopt;
  }
  const double elapsed_s = now_s - before->wall_s;
  keep[name] = elapsed_s < window_s ? *before : Counter{value, now_s};
  return (value - before->value) * window_s / std::max(elapsed_s, window_s);
}

}  // namespace ms::health
