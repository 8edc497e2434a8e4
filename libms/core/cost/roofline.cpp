#include "cost/roofline.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace ms::cost {
namespace {

// The quantile of the normal distribution: Acklam's rational approximation, 1.15e-9 relative.
double normal_quantile(double p) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02, 6.680131188771972e+01,
                          -1.328068155288572e+01};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00};
  constexpr double kLow = 0.02425;
  if (p > 0.5) return -normal_quantile(1 - p);
  if (p < kLow) {
    const double q = std::sqrt(-2 * std::log(p));
    return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
           ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  }
  const double q = p - 0.5, r = q * q;
  return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
         (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

bool parse_number(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && std::isfinite(value);
}

}  // namespace

Curve parse_curve(const std::vector<std::string>& points, std::string_view key) {
  Curve curve;
  for (const std::string& point : points) {
    const std::size_t colon = point.find(':');
    double size = 0, share = 0;
    if (colon == std::string::npos || !parse_number(std::string_view(point).substr(0, colon), size) ||
        !parse_number(std::string_view(point).substr(colon + 1), share) || size <= 0 || share <= 0 || share > 1) {
      throw user_error("cluster.curve", fmt::format("'{}' of {} is no point of an efficiency curve: \"size:share\", a "
                                                    "size above 0 and a share above 0 and at most 1",
                                                    point, key));
    }
    curve.points.emplace_back(size, share);
  }
  if (curve.points.empty()) throw user_error("cluster.curve", fmt::format("{} has no point", key));
  std::ranges::sort(curve.points);
  return curve;
}

std::array<double, kOpClasses> parse_classes(const std::vector<std::string>& texts) {
  std::array<double, kOpClasses> times;
  times.fill(1);
  for (const std::string& text : texts) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const auto name = std::ranges::find(kOpClassNames, std::string_view(text).substr(0, colon));
    double value = 0;
    if (name - kOpClassNames.begin() < 2 || name == kOpClassNames.end() || colon == text.size() ||
        !parse_number(std::string_view(text).substr(colon + 1), value) || value <= 0) {
      throw user_error("cluster.classes",
                       fmt::format("'{}' of device.classes is no \"class:times\": a class that has no "
                                   "curve of its own, and a number above 0",
                                   text));
    }
    times[static_cast<std::size_t>(name - kOpClassNames.begin())] = value;
  }
  return times;
}

double Curve::at(double size) const {
  const auto above = std::ranges::upper_bound(points, size, {}, &std::pair<double, double>::first);
  if (above == points.begin()) return points.front().second;
  if (above == points.end()) return points.back().second;
  const auto below = above - 1;
  const double f = std::log(size / below->first) / std::log(above->first / below->first);
  return below->second + f * (above->second - below->second);
}

Roofline::Roofline(const DeviceConfig& device)
    : peak_fp8_(device.tflops_fp8 * 1e12),
      peak_half_(device.tflops * 1e12),
      peak_full_(device.tflops_fp32 > 0 ? device.tflops_fp32 * 1e12 : peak_half_ / 16),
      memory_(device.memory_gb_s * 1e9),
      launch_s_(device.launch_s),
      gemm_(parse_curve(device.gemm, "device.gemm")),
      gemm_fp8_(parse_curve(device.gemm_fp8, "device.gemm_fp8")),
      attention_(parse_curve(device.attention, "device.attention")),
      memory_curve_(parse_curve(device.memory, "device.memory")),
      times_(parse_classes(device.classes)) {}

double Roofline::arithmetic_s(const OpCost& op) const {
  if (op.op_class == OpClass::attention) return op.flops / (peak_flops(op.half) * attention_.at(op.flops));
  if (op.op_class != OpClass::matmul) return 0;
  if (op.fp8) {
    MS_ASSERT(peak_fp8_ > 0, "the cluster file has no rate of FP8 GEMMs");
    return op.flops / (peak_fp8_ * gemm_fp8_.at(op.flops / op.gemms));
  }
  return op.flops / (peak_flops(op.half) * gemm_.at(op.flops / op.gemms));
}

double Roofline::memory_s(double bytes, OpClass op_class) const {
  return bytes > 0 ? bytes / (memory_ * memory_curve_.at(bytes)) * times_[static_cast<std::size_t>(op_class)] : 0;
}

double Roofline::seconds(const OpCost& op) const {
  const double cast_s = op.cast_bytes > 0 ? launch_s_ + memory_s(op.cast_bytes, OpClass::elementwise) : 0;
  return cast_s + op.gemms * launch_s_ + std::max(arithmetic_s(op), memory_s(op.bytes - op.cast_bytes, op.op_class));
}

double slowest_deviations(double n, double place, double of) {
  return normal_quantile(std::pow((place - 0.375) / (of + 0.25), 1 / n));
}

}  // namespace ms::cost
