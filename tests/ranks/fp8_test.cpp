// FP8 GEMMs in whole training runs: the amaxes passed to them are those of their operands, whatever is kept,
// recomputed, split or deferred; and bits depend on none of these.
#include <gtest/gtest.h>

#include <cstring>

#include "tensor/cpu_matmul.h"
#include "tensor/fp8.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

using tensor::Matmul;
using tensor::Operands;
using tensor::Tensor;

train::Settings fp8_settings(const std::string& family, const Layout& layout = {}) {
  train::Settings settings = with(tiny_settings(family), layout);
  settings.train.dtype = "bf16";
  settings.train.fp8 = true;
  return settings;
}

// Compares the amaxes passed to a GEMM with the memory that it read. `in_pieces`: communication overlaps parts of
// GEMMs, whose first operands are slices, or of a ring, which compute their own amaxes.
class Check final : public tensor::OpObserver {
 public:
  explicit Check(bool in_pieces) : in_pieces_(in_pieces) {}
  void ran(const tensor::Op& op, double) override {
    forwards += std::holds_alternative<tensor::AttentionFwd>(op) ? 1 : 0;
    backwards += std::holds_alternative<tensor::AttentionBwd>(op) ? 1 : 0;
    const auto* rounding = std::get_if<tensor::RoundToFp8>(&op);
    const bool reads_gradient = rounding != nullptr && rounding->is_gradient && !rounding->has_amax;
    amax_passes += reads_gradient || std::holds_alternative<tensor::Amax>(op) ? 1 : 0;
    const auto* product = std::get_if<Matmul>(&op);
    if (product == nullptr || product->operands == Operands::as_given) return;
    ++products;
    const Tensor &a = product->a, &known = product->a_amax;
    expect_rounded(a, known, product->a_rounded, tensor::fp8_of_a(product->operands));
    expect_rounded(product->b, product->b_amax, product->b_rounded, tensor::kFp8OfB);
    if (in_pieces_ && !product->transpose_a) {
      if (known) { EXPECT_GE(*known.as<float>(), tensor::amax_of(a)); }
    } else {
      expect_known(a, known);
    }
    expect_known(product->b, product->b_amax);
  }
  int products = 0, ready = 0;      // ready: operands that were rounded before
  int forwards = 0, backwards = 0;  // of layers
  int amax_passes = 0;              // reads of activations and their gradients for an amax alone

 private:
  void expect_rounded(const Tensor& factor, const Tensor& known, const Tensor& rounded, tensor::Fp8 format) {
    if (!rounded) return;
    ++ready;
    std::vector<std::uint16_t> memory(static_cast<std::size_t>(factor.numel()));
    const Tensor want{reinterpret_cast<std::byte*>(memory.data()), factor.rows, factor.cols, factor.cols, factor.dtype};
    tensor::round_tensor_to_fp8(want, factor, *known.as<float>(), format);
    EXPECT_EQ(std::memcmp(want.data, rounded.data, static_cast<std::size_t>(want.size_bytes())), 0)
        << factor.rows << "x" << factor.cols << " in product " << products;
  }
  void expect_known(const Tensor& factor, const Tensor& known) const {
    ASSERT_TRUE(known);
    EXPECT_EQ(*known.as<float>(), tensor::amax_of(factor))
        << factor.rows << "x" << factor.cols << " in product " << products;
  }
  bool in_pieces_;
};

void expect_true_magnitudes(const train::Settings& settings) {
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    Check check(settings.overlap.tp);
    device.set_observer(&check);
    Outcome outcome;
    constexpr int kSteps = 2;  // weights change between them
    run_rank(plan, world, device, kSteps, outcome);
    device.set_observer(nullptr);
    EXPECT_GT(check.products, 0);
    // The weights of the forward and of the input's gradient, of the three matmuls for each; and, where the backward is
    // whole, what both gradients of a layer read.
    const bool is_whole = settings.mesh.tp == 1 && !plan.shape(0).split_backward;
    EXPECT_GE(check.ready, is_whole ? check.products : check.products * 2 / 3);
  });
}

TEST(Fp8Amax, EqualsThatOfTheOperands) {
  for (const std::string family : {"gpt", "llama", "neox"}) {
    for (const bool parallel_block : {false, true}) {
      for (const bool fused : {true, false}) {
        for (const char* recompute : {"none", "selective", "full"}) {
          SCOPED_TRACE(testing::Message()
                       << family << (parallel_block ? " parallel" : "") << (fused ? " fused " : " ") << recompute);
          train::Settings settings = fp8_settings(family);
          settings.model.layers = 2;
          settings.model.parallel_block = parallel_block;
          settings.model.fused = fused;
          settings.train.recompute = recompute;
          expect_true_magnitudes(settings);
        }
      }
    }
  }
}

TEST(Fp8Amax, EqualsThatOfTheOperandsOnManyRanks) {
  for (const Layout& layout : {Layout{2, 2, 2, 2, true, 2}, Layout{1, 2, 2, 1, false, 1}}) {
    SCOPED_TRACE(layout.name());
    train::Settings settings = fp8_settings("llama", layout);
    for (const bool overlap : {false, true}) {
      settings.overlap.tp = overlap;
      expect_true_magnitudes(settings);
    }
  }
  for (const bool parallel_block : {false, true}) {
    train::Settings halves = fp8_settings("gpt", {1, 2, 2, 1, true, 1});
    halves.mesh.schedule = "zb-h1";
    halves.model.parallel_block = parallel_block;
    expect_true_magnitudes(halves);
  }
}

// An amax costs a pass of its own only where no kernel of ours makes the operand: what attention makes, what a GEMM
// makes with its GELU, and what is gathered.
struct Passes {
  const char* family;
  const char* recompute;
  Layout layout;
  bool fused;
  int forward, backward;  // of a layer
};
void PrintTo(const Passes& p, std::ostream* out) {
  *out << p.family << " " << p.recompute << " " << p.layout.name() << (p.fused ? "" : " unfused");
}
class Fp8AmaxPasses : public testing::TestWithParam<Passes> {};
TEST_P(Fp8AmaxPasses, AreThoseThatNoOpSaves) {
  const Passes& passes = GetParam();
  train::Settings settings = fp8_settings(passes.family, passes.layout);
  settings.model.layers = 2;
  settings.model.fused = passes.fused;
  settings.train.recompute = passes.recompute;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    Check check(false);
    device.set_observer(&check);
    Outcome outcome;
    run_rank(plan, world, device, 1, outcome);
    device.set_observer(nullptr);
    EXPECT_GT(check.backwards, 0);
    EXPECT_EQ(check.amax_passes, passes.forward * check.forwards + passes.backward * check.backwards);
  });
}
INSTANTIATE_TEST_SUITE_P(All, Fp8AmaxPasses,
                         testing::Values(Passes{"llama", "none", {}, false, 4, 4},
                                         Passes{"llama", "none", {}, true, 1, 1},
                                         Passes{"llama", "selective", {}, true, 1, 1},
                                         Passes{"gpt", "none", {}, false, 4, 4}, Passes{"gpt", "none", {}, true, 2, 2},
                                         Passes{"gpt", "selective", {}, true, 1, 2},
                                         Passes{"llama", "none", {.tp = 2}, true, 3, 3},
                                         Passes{"llama", "none", {.tp = 2, .sequence_parallel = false}, true, 1, 1}));

// A gradient that is rounded once for both of its matmuls is summed by the rounding, for the gradient of a bias. The
// parallel block has two biases at its end, and rounds their gradient once. A ColumnSum sums the rest.
struct BiasSums {
  const char* name;
  bool parallel_block, fused;
  Layout layout;
  const char* schedule;
  int rounded, apart;  // of a layer
};
void PrintTo(const BiasSums& sums, std::ostream* out) { *out << sums.name; }
class Fp8BiasSums : public testing::TestWithParam<BiasSums> {};
TEST_P(Fp8BiasSums, ArePartsOfRoundings) {
  const BiasSums& sums = GetParam();
  train::Settings settings = fp8_settings("gpt", sums.layout);
  settings.model.parallel_block = sums.parallel_block, settings.model.fused = sums.fused;
  settings.mesh.schedule = sums.schedule;
  struct Count final : tensor::OpObserver {
    void ran(const tensor::Op& op, double) override {
      const auto* rounding = std::get_if<tensor::RoundToFp8>(&op);
      rounded += rounding != nullptr && rounding->sums ? 1 : 0;
      apart += std::holds_alternative<tensor::ColumnSum>(op) ? 1 : 0;
      layers += std::holds_alternative<tensor::AttentionBwd>(op) ? 1 : 0;
    }
    int rounded = 0, apart = 0, layers = 0;
  };
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    Count count;
    observe_step(plan, world, device, count);
    EXPECT_GT(count.layers, 0);
    EXPECT_EQ(count.rounded, sums.rounded * count.layers);
    EXPECT_EQ(count.apart, sums.apart * count.layers);
  });
}
INSTANTIATE_TEST_SUITE_P(All, Fp8BiasSums,
                         testing::Values(BiasSums{"serial", false, true, {}, "1f1b", 4, 0},
                                         BiasSums{"parallel", true, true, {}, "1f1b", 2, 1},
                                         BiasSums{"unfused", false, false, {}, "1f1b", 0, 4},
                                         BiasSums{"tp2", false, true, {.tp = 2}, "1f1b", 0, 4},
                                         BiasSums{"split", false, true, {1, 1, 2, 1, true, 1}, "zb-h1", 0, 4}));

void expect_same(const train::Settings& a, const train::Settings& b) {
  constexpr int kSteps = 2;
  const Outcome one = run_threads(a, kSteps), other = run_threads(b, kSteps);
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_TRUE(same_bits(one.gradients, other.gradients));
  EXPECT_TRUE(same_bits(one.parameters, other.parameters));
}

TEST(Fp8Bits, DoNotDependOnRecomputationOrSplitBackward) {
  const train::Settings plain = fp8_settings("gpt", {1, 1, 2, 1, true, 1});
  train::Settings again = plain, halves = plain;
  again.train.recompute = "full";
  expect_same(plain, again);
  halves.mesh.schedule = "zb-h1";
  expect_same(plain, halves);
}

// An amax is the same number whichever op finds it.
TEST(Fp8Bits, DoNotDependOnFusion) {
  for (const std::string family : {"gpt", "llama"}) {
    SCOPED_TRACE(family);
    const train::Settings fused = fp8_settings(family, {1, 1, 2, 1, true, 1});
    train::Settings apart = fused;
    apart.model.fused = false;
    expect_same(fused, apart);
  }
}

// Parts of a GEMM whose operand the rank holds completely are quantised like the whole.
TEST(Fp8Bits, DoNotDependOnSplittingForOverlap) {
  const train::Settings plain = fp8_settings("llama", {1, 2, 1, 1, false, 1});
  train::Settings overlapped = plain;
  overlapped.overlap.tp = true;
  expect_same(plain, overlapped);
}

// Around a ring, parts are quantised as they arrive, which is another rounding of the same numbers.
TEST(Fp8Bits, RingIsCloseToTheUnsplitGemm) {
  const train::Settings plain = fp8_settings("llama", {1, 2, 1, 1, true, 1});
  train::Settings ring = plain;
  ring.overlap.tp = true;
  constexpr int kSteps = 2;
  const Outcome one = run_threads(plain, kSteps), other = run_threads(ring, kSteps);
  for (std::size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(one.losses[i], other.losses[i], 0.04);
  EXPECT_LE(distance(one.gradients, other.gradients).value, 0.25);
}

}  // namespace
}  // namespace ms::testing_case
