// ZeRO and activation formulas against the published tables.
#include <gtest/gtest.h>

#include "cost/activation.h"
#include "cost/zero.h"

namespace ms::cost {
namespace {

TEST(Zero, BytesPerParameter) {
  struct Case {
    const char* name;
    StateBytes state;
    int zero;
    double whole, shared;  // whole + shared / d
  };
  const Case cases[] = {
      {"bf16, Adam, 0", state_bytes(true, false, 2), 0, 18, 0},
      {"bf16, Adam, 1", state_bytes(true, false, 2), 1, 6, 12},
      {"bf16, Adam, 2", state_bytes(true, false, 2), 2, 2, 16},
      {"fp32, Adam, 0", state_bytes(false, false, 2), 0, 16, 0},
      {"fp32, Adam, 1", state_bytes(false, false, 2), 1, 8, 8},
      {"fp32, Adam, 2", state_bytes(false, false, 2), 2, 4, 12},
      {"bf16, one state, 1", state_bytes(true, false, 1), 1, 6, 8},
      {"bf16, bf16 gradients, 1", state_bytes(true, true, 2), 1, 4, 12},
      {"bf16, bf16 gradients, 2", state_bytes(true, true, 2), 2, 2, 14},
  };
  for (const Case& c : cases) {
    for (const int d : {1, 2, 8, 64, 1536}) {
      EXPECT_DOUBLE_EQ(zero_bytes_per_parameter(c.state, c.zero, d), c.whole + c.shared / d) << c.name << ", d " << d;
    }
  }
}

TEST(Activation, Korthikanti) {
  // GPT-3 175B: 5 a s / h = 80. One microbatch of one sequence.
  const ActivationShape gpt3{.seq = 2048, .batch = 1, .hidden = 12288, .heads = 96, .ffn = 4 * 12288};
  const double sbh = 2048.0 * 12288;
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(gpt3, 1, false, Recompute::none), sbh * (34 + 80));
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(gpt3, 8, false, Recompute::none), sbh * (10 + 24.0 / 8 + 80.0 / 8));
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(gpt3, 8, true, Recompute::none), sbh / 8 * (34 + 80));
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(gpt3, 8, false, Recompute::selective), sbh * (10 + 24.0 / 8));
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(gpt3, 8, true, Recompute::selective), 34 * sbh / 8);
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(gpt3, 8, true, Recompute::full), 2 * sbh);
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(gpt3, 8, false, Recompute::full), 2 * sbh);
  // MT-NLG 530B: 5 a s / h = 64.
  const ActivationShape mt_nlg{.seq = 2048, .batch = 2, .hidden = 20480, .heads = 128, .ffn = 4 * 20480};
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(mt_nlg, 1, true, Recompute::none), 2 * 2048.0 * 20480 * (34 + 64));
}

TEST(Activation, ParallelBlocksAndWindows) {
  ActivationShape shape{.seq = 2048, .batch = 1, .hidden = 12288, .heads = 96, .ffn = 4 * 12288};
  const double sbh = 2048.0 * 12288;
  shape.parallel_block = true;
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(shape, 1, false, Recompute::none), sbh * (30 + 80));
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(shape, 8, true, Recompute::selective), 30 * sbh / 8);
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(shape, 8, false, Recompute::selective), sbh * (6 + 24.0 / 8));
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(shape, 8, true, Recompute::full), 2 * sbh);
  EXPECT_DOUBLE_EQ(split_backward_bytes_per_layer(shape, 8), sbh * (2 + 14.0 / 8));
  shape.parallel_block = false;
  EXPECT_DOUBLE_EQ(split_backward_bytes_per_layer(shape, 8), sbh * (4 + 14.0 / 8));
  shape.window = 512;  // a quarter of the matrix
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(shape, 1, false, Recompute::none), sbh * (34 + 20));
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(shape, 8, true, Recompute::selective), 34 * sbh / 8);
  shape.window = 4096;
  EXPECT_DOUBLE_EQ(activation_bytes_per_layer(shape, 1, false, Recompute::none), sbh * (34 + 80));
}

TEST(Activation, MegatronEstimateIsThe34OfAPlainMlp) {
  const ActivationShape shape{.seq = 2048, .batch = 4, .hidden = 4096, .heads = 32, .ffn = 4 * 4096};
  EXPECT_DOUBLE_EQ(activation_bytes_megatron(shape, 4),
                   activation_bytes_per_layer(shape, 4, true, Recompute::selective));
  const ActivationShape wide{.seq = 2048, .batch = 4, .hidden = 4096, .heads = 32, .ffn = 14336};
  EXPECT_DOUBLE_EQ(activation_bytes_megatron(wide, 2), 2048.0 * 4 * 4096 * (18 + 14) / 2);
}

}  // namespace
}  // namespace ms::cost
