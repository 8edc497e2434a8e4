#include "optim/muon.h"

#include <algorithm>
#include <cmath>

#include "optim/adamw.h"

namespace ms::optim {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

constexpr std::array<std::string_view, 1> kMomentum{"momentum_buffer"};
// The published coefficients: a polynomial that is steep at 0, and maps [0, 1] near 1 when applied so many times.
constexpr int kIterations = 5;
constexpr float kLinear = 3.4445F, kCubic = -4.7750F, kQuintic = 2.0315F;
constexpr float kLeastNorm = 1e-7F;

Tensor first_of(const Tensor& all, std::int64_t rows, std::int64_t cols) {
  return all.slice_cols(0, rows * cols).reshape(rows, cols);
}

}  // namespace

MatrixScratch carve_matrix_scratch(Arena& arena, std::int64_t elements, std::int64_t short_side) {
  return {arena.take(DType::f32, 1, elements), arena.take(DType::bf16, 1, short_side * short_side),
          arena.take(DType::f32, 1, short_side * short_side), arena.take(DType::f64, 1, 1)};
}

void issue_momentum(Stream& stream, const Update& update, const Tensor& direction) {
  stream.submit(MuonMomentum{.u = direction,
                             .m = update.states.front(),
                             .grad = update.grad,
                             .factor = update.factor,
                             .momentum = static_cast<float>(update.config.muon_momentum)});
}

void orthogonalize(Stream& stream, const Tensor& x, const MatrixScratch& scratch) {
  const bool is_wide = x.rows <= x.cols;  // the Gram matrix is that of the short side
  const std::int64_t side = std::min(x.rows, x.cols);
  const Tensor gram = first_of(scratch.gram, side, side), squared = first_of(scratch.gram_squared, side, side);
  const Tensor multiplied = first_of(scratch.multiplied, x.rows, x.cols);
  stream.submit(Fill{scratch.sum_squares});
  stream.submit(SumSquares{scratch.sum_squares, x.flat()});
  stream.submit(Normalize{.y = x, .x = x, .sum_squares = scratch.sum_squares, .eps = kLeastNorm});
  for (int i = 0; i < kIterations; ++i) {
    stream.submit(Matmul{.c = gram, .a = x, .b = x, .transpose_a = !is_wide, .transpose_b = is_wide});
    stream.submit(Matmul{.c = squared, .a = gram, .b = gram});
    stream.submit(Blend{.y = gram, .a = gram, .b = squared, .alpha = kCubic, .beta = kQuintic});
    stream.submit(Matmul{.c = multiplied, .a = is_wide ? gram : x, .b = is_wide ? x : gram});
    stream.submit(Blend{.y = x, .a = x, .b = multiplied, .alpha = kLinear});
  }
}

double orthogonalize_flops(std::int64_t rows, std::int64_t cols) {
  const auto m = static_cast<double>(std::min(rows, cols)), n = static_cast<double>(std::max(rows, cols));
  return kIterations * (4 * m * m * n + 2 * m * m * m);
}

void issue_muon_step(Stream& stream, const Update& update, const Tensor& direction, std::int64_t rows,
                     std::int64_t cols) {
  const auto m = static_cast<double>(rows), n = static_cast<double>(cols);
  const bool original = update.config.muon_scale == "original";
  const double scale = original ? std::sqrt(std::max(1.0, m / n)) : 0.2 * std::sqrt(std::max(m, n));
  stream.submit(MuonApply{.param = update.param,
                          .master = update.master,
                          .u = direction,
                          .factor = update.factor,
                          .lr = update.lr,
                          .weight_decay = update.weight_decay,
                          .scale = static_cast<float>(scale)});
}

std::vector<std::pair<std::string, std::string>> muon_manual() {
  return {
      {"matrices",
       "optim.name = \"muon\" orthogonalizes the updates of the matrices of layers: the projections of attention and "
       "MLP, those of each expert, and routers. Query, key and value are three matrices, and gate and up are two: "
       "Megatron-LM splits query, key and value likewise (muon_split_qkv). Embeddings, positions, the head, norms, "
       "biases and the gate of a shared expert, which is one row, have adamw, with beta1, beta2 and eps."},
      {"update",
       "As torch.optim.Muon: momentum in Nesterov's form, then five steps of Newton-Schulz's iteration with the "
       "published coefficients 3.4445, -4.7750 and 2.0315, in bf16 with sums in f32. Weight decay is decoupled. "
       "optim.muon_scale sets the size of the update. There is no QK-clip."},
      {"learning rate",
       "Both parts have the schedule and the learning rate of [optim]. optim.groups changes either: groups = "
       "[\"embed.* lr=0.1\", \"head.* lr=0.1\"]."},
      {"ranks",
       "Each matrix belongs to one of the dp x tp ranks that share it (an expert's to one of the ranks that hold the "
       "expert), which orthogonalizes it whole. The ranks have equal FLOPs, as far as whole matrices divide: 4 m^2 n + "
       "2 m^3 for each of the five steps, m being the shorter side. With zero 1 and 2, a rank that updates k elements "
       "of matrices sends 2 k bytes to owners over dp and gets as many back; with tp, owners' tp groups move as much "
       "again, a dp-th of the matrices each. With zero 0, owners broadcast 2 bytes an element. Nothing overlaps this. "
       "The ranks of each optim.shard_group share all matrices, so that no matrix crosses groups."},
      {"bits",
       "An update has the bits that one rank computes from the same gradient: neither dp, tp, pp, ep nor optim.zero "
       "changes them. Gradients are sums over microbatches and ranks, whose order a layout decides. On a GPU the "
       "bits of a matrix also depend on the algorithms of run.matmul_choices."},
      {"memory",
       "A matrix has one state, momentum_buffer, in place of exp_avg and exp_avg_sq. On top, a rank holds 2 bytes for "
       "each element that it updates, 2 for each that it owns, 4 with tp, and what one matrix takes: 'ms-train plan' "
       "lists it. A checkpoint loads in every layout, but only into a run with the same optimizer."},
  };
}

extern const OptimizerKind kMuon{.name = "muon",
                                 .doc =
                                     "momentum with orthogonalized updates for the matrices of layers, adamw for all "
                                     "other parameters; MUON in ms-train(1)",
                                 .states = kMoments,
                                 .matrix_states = kMomentum,
                                 .issue_update = issue_adamw};

}  // namespace ms::optim
