// Closed formulas for pipelines of p ranks, m microbatches and v chunks, transfers taking no time; t_f and t_b are of a
// full stage. The schedule checker, which runs the real schedules, agrees with every one of them (tests/unit/sched).
// Interleaved means v > 1 with microbatches in groups of `group` >= p; the makespan holds for group = p, m % p == 0.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ms::cost {

// Ideal time m (t_f + t_b), and the bubble (p - 1)(t_f + t_b) / v of filling and draining. GPipe and 1F1B have v = 1.
constexpr double pipeline_makespan(int p, int m, int v, double t_f, double t_b) {
  return m * (t_f + t_b) + (p - 1) * (t_f + t_b) / v;
}
constexpr double bubble_of_ideal(int p, int m, int v) { return (p - 1) / (static_cast<double>(v) * m); }
constexpr double bubble_of_total(int p, int m, int v) { return (p - 1) / (static_cast<double>(v) * m + p - 1); }

// ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2), whose backward is split: t_i for
// the gradient of the input, t_w for the weights. Idle time of a rank, exact where t_w <= min(t_f, t_i), as in the
// paper where t_f = t_i = t_w: the last rank does all forwards and input halves but only those weight halves that
// memory forces on it, then the last gradient goes back through p - 1 ranks. With longer t_w it is a lower bound,
// 1F1B's bubble the upper one. Every rank keeps up to min(p, m) microbatches.
constexpr double bubble_zb_h1(int p, int m, double t_f, double t_i, double t_w) {
  return (p - 1) * (t_f + t_i) - (std::min(p, m) - 1) * t_w;
}
constexpr int peak_chunks_zb_h1(int p, int m) { return std::min(p, m); }

// Forwards (of a chunk) that rank r runs before it starts to alternate.
constexpr int warm_up_1f1b(int p, int m, int r) { return std::min(p - r - 1, m); }
constexpr int warm_up_interleaved(int p, int m, int v, int group, int r) {
  return static_cast<int>(
      std::min<std::int64_t>(std::int64_t{p - r - 1} * 2 + std::int64_t{v - 1} * group, std::int64_t{m} * v));
}

// Most (chunk, microbatch) whose activations rank r keeps at once; divide by v for full stages.
constexpr int peak_chunks_gpipe(int m) { return m; }
constexpr int peak_chunks_1f1b(int p, int m, int r) { return std::min(p - r, m); }
constexpr int peak_chunks_interleaved(int p, int m, int v, int group, int r) {
  return static_cast<int>(
      std::min<std::int64_t>(std::int64_t{warm_up_interleaved(p, m, v, group, r)} + 1, std::int64_t{m} * v));
}

}  // namespace ms::cost
