// Newton-Schulz's iteration on whole matrices, and which rank takes which.
#include "optim/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "mesh/mesh.h"
#include "optim/matrix_layout.h"
#include "tensor/cpu_device.h"

namespace ms::optim {
namespace {

using tensor::DType;
using tensor::Tensor;

class NewtonSchulz : public testing::Test {
 protected:
  // Returns the orthogonalized matrix.
  std::vector<double> run(std::int64_t rows, std::int64_t cols, const std::function<float(std::int64_t)>& element) {
    tensor::Arena arena(*memory_);
    const MatrixScratch scratch = carve_matrix_scratch(arena, rows * cols, std::min(rows, cols));
    const Tensor wide = arena.take(DType::f32, rows, cols), x = arena.take(DType::bf16, rows, cols);
    for (std::int64_t i = 0; i < rows * cols; ++i) wide.as<float>()[i] = element(i);
    stream_->submit(tensor::Copy{x, wide});
    orthogonalize(*stream_, x, scratch);
    stream_->submit(tensor::Copy{wide, x});
    stream_->synchronize();
    return {wide.as<float>(), wide.as<float>() + rows * cols};
  }

  tensor::MatmulCache matmuls_;
  tensor::CpuPool pool_{{.workers = 1, .threads_per_op = 1}};
  tensor::CpuDevice device_{pool_, matmuls_};
  std::unique_ptr<tensor::Memory> memory_ = device_.allocate(1 << 20, "test");
  std::unique_ptr<tensor::Stream> stream_ = device_.make_stream("compute", tensor::StreamKind::compute);
};

// The singular values of x, by Jacobi's rotations of the columns of its longer side.
std::vector<double> singular_values(std::vector<double> x, std::int64_t rows, std::int64_t cols) {
  const std::int64_t count = std::min(rows, cols), length = std::max(rows, cols);
  const auto at = [&](std::int64_t vector, std::int64_t i) -> double& {
    return x[static_cast<std::size_t>(rows <= cols ? vector * cols + i : i * cols + vector)];
  };
  const auto dot = [&](std::int64_t a, std::int64_t b) {
    double sum = 0;
    for (std::int64_t i = 0; i < length; ++i) sum += at(a, i) * at(b, i);
    return sum;
  };
  for (int sweep = 0; sweep < 12; ++sweep) {
    for (std::int64_t a = 0; a < count; ++a) {
      for (std::int64_t b = a + 1; b < count; ++b) {
        const double angle = 0.5 * std::atan2(2 * dot(a, b), dot(a, a) - dot(b, b));
        for (std::int64_t i = 0; i < length; ++i) {
          const double u = at(a, i), v = at(b, i);
          at(a, i) = std::cos(angle) * u + std::sin(angle) * v;
          at(b, i) = std::cos(angle) * v - std::sin(angle) * u;
        }
      }
    }
  }
  std::vector<double> values;
  for (std::int64_t a = 0; a < count; ++a) values.push_back(std::sqrt(dot(a, a)));
  return values;
}

TEST_F(NewtonSchulz, BringsSingularValuesNear1) {
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{16, 16}, {16, 40}, {40, 16}, {2, 64}, {33, 20}}) {
    for (const double size : {1e-3, 1.0, 1e3}) {
      const auto x = run(rows, cols, [&](std::int64_t i) {
        return static_cast<float>(size * normal(3, rng_key("matrix"), static_cast<std::uint64_t>(i)));
      });
      for (const double value : singular_values(x, rows, cols)) {
        EXPECT_GT(value, 0.5) << rows << "x" << cols << " of " << size;
        EXPECT_LT(value, 1.3) << rows << "x" << cols << " of " << size;
      }
    }
  }
}

TEST_F(NewtonSchulz, KeepsSingularVectors) {
  // U D V^T with U = V = 1: a diagonal stays one, with its signs.
  const auto x = run(8, 8, [](std::int64_t i) { return i % 9 == 0 ? (i % 2 == 0 ? 1.0F : -0.5F) : 0.0F; });
  for (std::int64_t i = 0; i < 64; ++i) {
    const double value = x[static_cast<std::size_t>(i)];
    if (i % 9 != 0) {
      EXPECT_EQ(value, 0);
    } else {
      EXPECT_NEAR(value, i % 2 == 0 ? 1 : -1, 0.35);
    }
  }
}

TEST_F(NewtonSchulz, LeavesZerosAndHasNoNaN) {
  for (const double x : run(12, 20, [](std::int64_t) { return 0.0F; })) EXPECT_EQ(x, 0);
  for (const double x : run(12, 20, [](std::int64_t i) { return i == 5 ? 1e-30F : 0.0F; }))
    EXPECT_TRUE(std::isfinite(x));
  for (const double x : run(12, 20, [](std::int64_t) { return 1.0F; })) EXPECT_TRUE(std::isfinite(x));  // rank 1
}

// Layers of five matrices each in one span, with vectors between them; and a span of experts.
std::vector<SpanLayout> spans_of(const MatrixPlace& place, bool has_experts = false, int expert_tp = 1) {
  std::vector<SpanLayout> spans;
  for (const bool experts : {false, true}) {
    if (experts && !has_experts) continue;
    const int tp = experts ? expert_tp : place.tp, replicas = experts ? place.edp : place.dp;
    SpanLayout& span = spans.emplace_back();
    span.experts = experts;
    std::int64_t end = 0;
    const auto add = [&](std::int64_t rows, std::int64_t cols, int shards, bool by_cols, bool is_matrix) {
      const std::int64_t size = rows * cols / shards;
      span.params.push_back({"p", end, end + size, is_matrix});
      if (is_matrix) span.params.back().matrix = {rows, cols, shards, by_cols};
      end += size;
    };
    for (int layer = 0; layer < 6; ++layer) {
      add(8, 24, 1, false, true);
      add(1, 24, 1, false, false);
      add(48, 24, tp, false, true);
      add(24, 48, tp, true, true);
      add(72, 24, tp, false, true);
    }
    const std::int64_t unit = std::int64_t{64} * replicas;
    span.numel = (end + unit - 1) / unit * unit;
  }
  return spans;
}

TEST(MatrixLayouts, SendEachElementToOneOwner) {
  for (const auto& [dp, tp, ep, zero, folds] : {std::array{1, 1, 1, 1, 0},
                                                {4, 1, 1, 1, 0},
                                                {8, 2, 1, 2, 0},
                                                {4, 2, 2, 1, 0},
                                                {4, 1, 2, 0, 0},
                                                {3, 4, 1, 0, 0},
                                                {1, 4, 1, 1, 0},
                                                {4, 2, 4, 1, 1},
                                                {2, 4, 2, 2, 1},
                                                {1, 4, 1, 0, 1}}) {
    SCOPED_TRACE(fmt::format("dp {} tp {} ep {} zero {} folds {}", dp, tp, ep, zero, folds));
    const mesh::Mesh mesh{.dp = dp, .tp = tp, .ep = ep, .folds_tp = folds == 1};
    OptimConfig config;
    config.zero = zero;
    std::vector<double> flops;                                 // by rank
    std::map<std::pair<std::size_t, std::int64_t>, int> seen;  // pieces that arrive, by span and element
    std::size_t matrices = 0;
    std::set<std::int64_t> rows;  // of buffers, which are alike on all ranks
    for (int d = 0; d < dp; ++d) {
      for (int t = 0; t < tp; ++t) {
        const mesh::Coord at{.dp = d, .tp = t};
        const MatrixPlace place{
            .dp = dp, .dp_rank = d, .edp = mesh.edp(), .edp_rank = mesh.edp_rank(at), .tp = tp, .tp_rank = t};
        const std::vector<SpanLayout> spans = spans_of(place, mesh.has_expert_groups(), mesh.expert_tp());
        const MatrixLayout layout = matrix_layout(config, spans, place);
        double& mine = flops.emplace_back();
        matrices = 0;
        std::int64_t sum_of_rows = 0;
        for (const MatrixGroup& group : layout.groups) {
          matrices += group.matrices.size();
          sum_of_rows = 1000 * sum_of_rows + group.between_replicas.rows + group.over_tp.rows;
          for (std::size_t i = 0; i < group.matrices.size(); ++i) {
            const OwnedMatrix& matrix = group.matrices[i];
            const bool owns = matrix.owner == group.replica;
            EXPECT_EQ(group.between_replicas.received[i].empty(), !owns);
            if (owns && (matrix.tp_owner == OwnedMatrix::kEach || matrix.tp_owner == t))
              mine += orthogonalize_flops(matrix.cut.rows, matrix.cut.cols);
            if (t > 0 && !(group.experts && mesh.folds_tp)) continue;
            for (const Exchange::Arrival& arrival : group.between_replicas.received[i]) {
              const mesh::Range piece = matrix.piece(arrival.from);
              for (std::int64_t e = piece.begin; e < piece.end; ++e)
                ++seen[{matrix.span + (group.experts ? 10 * static_cast<std::size_t>(mesh.ep_rank(at)) : 0), e}];
            }
          }
        }
        rows.insert(sum_of_rows);
      }
    }
    for (const auto& [element, times] : seen) ASSERT_EQ(times, 1) << element.first << " " << element.second;
    EXPECT_EQ(rows.size(), 1U);
    const double most = std::ranges::max(flops),
                 mean = std::accumulate(flops.begin(), flops.end(), 0.0) / static_cast<double>(flops.size());
    // No rank has more than a matrix above its share.
    EXPECT_LE(most, mean + orthogonalize_flops(72, 24));
  }
}

TEST(MatrixLayouts, NeedNothingToPutTogetherOnOneRank) {
  const MatrixPlace one{};
  EXPECT_TRUE(matrix_layout({}, spans_of(one), one).in_place());
  const MatrixPlace two{.dp = 2};
  EXPECT_FALSE(matrix_layout({}, spans_of(two), two).in_place());
  EXPECT_TRUE(matrix_layout({}, {}, one).groups.empty());
}

}  // namespace
}  // namespace ms::optim
