// How long an operation takes on a device: as long as its arithmetic or its memory, whichever takes longer (Williams,
// Waterman, Patterson: "Roofline", CACM 2009), each at the share of the peak that operations of its kind and size
// reach. And how slow the slowest of many is. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "cost/cluster.h"
#include "cost/op_class.h"

namespace ms::cost {

// "size:share" points; parse_curve() gives them by rising size, and throws Error("cluster.curve", user).
struct Curve {
  std::vector<std::pair<double, double>> points;
  double at(double size) const;
};
Curve parse_curve(const std::vector<std::string>& points, std::string_view key);

// "class:times" of [device] classes: how many times as long as the memory curve says, by OpClass. Throws
// Error("cluster.classes", user).
std::array<double, kOpClasses> parse_classes(const std::vector<std::string>& texts);

// The cost of an operation, independent of any device.
struct OpCost {
  OpClass op_class = OpClass::elementwise;
  bool half = false;  // operands of a GEMM have 16 bits
  bool fp8 = false;   // they are rounded to 8 bits first
  // GEMMs and attention only. A multiply-add counts twice; attention counts the pairs that the mask leaves.
  double flops = 0;
  double gemms = 1;       // GEMMs, one after the other, that share the FLOPs evenly
  double bytes = 0;       // each element read once and written once; what is added into, both
  double cast_bytes = 0;  // those among them that are moved before the GEMM itself, to round its operands to FP8
  bool operator==(const OpCost&) const = default;
};

class Roofline {
 public:
  explicit Roofline(const DeviceConfig& device);
  double seconds(const OpCost& op) const;
  double peak_flops(bool half) const { return half ? peak_half_ : peak_full_; }

 private:
  double arithmetic_s(const OpCost& op) const;
  double memory_s(double bytes, OpClass op_class) const;

  double peak_fp8_, peak_half_, peak_full_, memory_, launch_s_;  // FLOP/s, bytes/s
  Curve gemm_, gemm_fp8_, attention_, memory_curve_;
  std::array<double, kOpClasses> times_;
};

// The slowest of each of `of` groups of n nodes, in rising order: how many standard deviations the one at `place`, from
// 1 on, is slower than average. At its median where there is one group; of more at (place - 0.375) / (of + 0.25) of the
// distribution of the maximum of n standard normal variables (Blom: Statistical Estimates and Transformed
// Beta-Variables, 1958). 0 where there is one node.
double slowest_deviations(double n, double place = 1, double of = 1);
// How many times as long as a node of average speed it needs.
inline double slowest_of(const NoiseConfig& noise, double n, double place = 1, double of = 1) {
  return std::max(0.1, 1 + noise.spread * slowest_deviations(n, place, of));
}

}  // namespace ms::cost
