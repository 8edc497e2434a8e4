// Parameters, FLOPs and MFU against published models and the figures of the MegaScale paper.
#include "cost/flops.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cost/mfu.h"
#include "support/model_shapes.h"

namespace ms::cost {
namespace {

// A number as publications print it: 1.0484e12 with digits = 4.
std::string printed(double value, int digits) { return fmt::format("{:.{}e}", value, digits); }

// 6 l a d: what the exact count of causal pairs has over half of full (see flops.h).
double half_diagonal(const ModelShape& shape) {
  return 6.0 * static_cast<double>(shape.layers * shape.heads * shape.head_dim);
}

ModelShape megascale_175b() { return gpt_shape(96, 12288, 128, 64000, 2048); }
ModelShape llama_31_8b(std::int64_t seq) { return llama_shape(32, 4096, 32, 8, 14336, 128256, seq); }
ModelShape gpt2_xl() { return gpt_shape(48, 1600, 25, 50304, 1024); }

TEST(Parameters, PublishedModels) {
  // GPT-2 as released (tied), and Llama as in its model card (untied).
  EXPECT_EQ(count_parameters(gpt_shape(12, 768, 12, 50257, 1024)).total, 124439808);
  EXPECT_EQ(count_parameters(gpt_shape(48, 1600, 25, 50257, 1024)).total, 1557611200);
  EXPECT_EQ(count_parameters(llama_31_8b(8192)).total, 8030261248);
  EXPECT_EQ(count_parameters(llama_shape(80, 8192, 64, 8, 28672, 128256, 8192)).total, 70553706496);
}

ModelShape with_experts(ModelShape shape, std::int64_t experts, std::int64_t per_token) {
  shape.experts = experts, shape.experts_per_token = per_token;
  return shape;
}
ModelShape mixtral_8x7b() { return with_experts(llama_shape(32, 4096, 32, 8, 14336, 32000, 4096), 8, 2); }
ModelShape qwen3_30b() {
  ModelShape shape = with_experts(llama_shape(48, 2048, 32, 4, 768, 151936, 4096), 128, 8);
  shape.head_dim = 128, shape.qk_norm = true;
  return shape;
}

// Mixtral-8x7B and Qwen3-30B-A3B as released, and the FLOPs of a token that Megatron-Bridge's tables imply, which leave
// out the router: 0.3 % where there are many small experts.
TEST(Parameters, PublishedModelsWithExperts) {
  EXPECT_EQ(count_parameters(mixtral_8x7b()).total, 46702792704);
  EXPECT_EQ(count_parameters(qwen3_30b()).total, 30532122624);
  EXPECT_EQ(count_parameters(mixtral_8x7b()).active, 12879925248);
  EXPECT_NEAR(static_cast<double>(count_parameters(qwen3_30b()).active), 3.3e9, 0.06e9);
  EXPECT_NEAR(flops_per_token(mixtral_8x7b()).causal / 79.7e9, 1.0, 0.004);
  EXPECT_NEAR(flops_per_token(qwen3_30b()).causal / 23.01e9, 1.0, 0.004);
}

TEST(Parameters, PartsOfATinyGpt) {
  // hidden 4, ffn 16: by hand.
  const Parameters count = count_parameters(gpt_shape(3, 4, 2, 10, 5));
  EXPECT_EQ(count.gemm_per_layer, 4 * 4 * 4 + 2 * 4 * 16);
  EXPECT_EQ(count.per_layer, count.gemm_per_layer + (4 * 4 + 16 + 4) + 2 * 8);
  EXPECT_EQ(count.embedding, 10 * 4 + 5 * 4);
  EXPECT_EQ(count.final_norm, 8);
  EXPECT_EQ(count.head, 0);
  EXPECT_EQ(count.total, 60 + 3 * count.per_layer + 8);
  EXPECT_EQ(count.gemm, 3 * count.gemm_per_layer + 40) << "the head is a product even where it is tied";
}

TEST(Parameters, PartsOfATinyLlama) {
  const Parameters count = count_parameters(llama_shape(2, 8, 4, 2, 20, 10, 5));
  EXPECT_EQ(count.gemm_per_layer, 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 20);
  EXPECT_EQ(count.per_layer, count.gemm_per_layer + 2 * 8);
  EXPECT_EQ(count.embedding, 80);
  EXPECT_EQ(count.head, 80);
  EXPECT_EQ(count.total, 80 + 2 * count.per_layer + 8 + 80);
}

TEST(Parameters, PublishedRelativesOfLlama) {
  // As transformers counts them: Qwen2.5-0.5B (tied, biases of queries, keys and values), Qwen3-0.6B (tied, heads of
  // 128, norms of heads).
  ModelShape qwen2 = llama_shape(24, 896, 14, 2, 4864, 151936, 32768);
  qwen2.tied = qwen2.qkv_bias = true;
  EXPECT_EQ(count_parameters(qwen2).total, 494032768);
  ModelShape qwen3 = llama_shape(28, 1024, 16, 8, 3072, 151936, 40960);
  qwen3.head_dim = 128;
  qwen3.tied = qwen3.qk_norm = true;
  EXPECT_EQ(count_parameters(qwen3).total, 596049920);
}

TEST(Parameters, AParallelBlockHasOneNorm) {
  for (ModelShape shape : {gpt_shape(3, 4, 2, 10, 5), llama_shape(3, 8, 4, 2, 20, 10, 5)}) {
    const Parameters serial = count_parameters(shape);
    const double flops = flops_per_token(shape).causal;
    shape.parallel_block = true;
    EXPECT_EQ(serial.per_layer - count_parameters(shape).per_layer, serial.final_norm);
    EXPECT_EQ(flops_per_token(shape).causal, flops);
  }
}

TEST(Flops, MegaScale175B) {
  const ModelShape shape = megascale_175b();
  const FlopsPerToken flops = flops_per_token(shape);
  EXPECT_EQ(printed(flops.gemm, 4), "1.0484e+12");
  EXPECT_EQ(printed(flops.causal, 4), "1.0629e+12");
  EXPECT_EQ(printed(flops.full, 4), "1.0774e+12");
  EXPECT_EQ(flops.reported, flops.full) << "no window";
  // The parts: 72 l h^2, 6 V h, 12 l h s.
  const Parameters count = count_parameters(shape);
  EXPECT_EQ(printed(6.0 * static_cast<double>(96 * count.gemm_per_layer), 5), "1.04368e+12");
  EXPECT_EQ(printed(flops.gemm - 6.0 * static_cast<double>(96 * count.gemm_per_layer), 2), "4.72e+09");
  EXPECT_EQ(printed(flops.full - flops.gemm, 3), "2.899e+10");
  EXPECT_EQ(printed(flops.full, 5), "1.07739e+12");
}

TEST(Flops, Llama31_8B) {
  const ModelShape shape = llama_31_8b(8192);
  EXPECT_EQ(printed(static_cast<double>(count_parameters(shape).gemm), 4), "7.5047e+09");
  const FlopsPerToken flops = flops_per_token(shape);
  EXPECT_EQ(printed(flops.gemm, 4), "4.5028e+10");
  EXPECT_EQ(printed(flops.causal - half_diagonal(shape), 4), "5.1470e+10");
  EXPECT_EQ(printed(flops.full, 4), "5.7913e+10");
  EXPECT_NEAR(flops.causal / 5.1470e10, 1.0, 3e-5);
}

TEST(Flops, MegatronFormula) {
  // 72 B s l h^2 (1 + s / (6 h) + V / (12 l h)) per iteration: ours times B s, for a GPT of MLP width 4 h.
  const ModelShape shape = gpt_shape(24, 2048, 16, 51200, 4096);
  const double l = 24, h = 2048, s = 4096, v = 51200;
  EXPECT_NEAR(flops_per_token(shape).full / (72 * l * h * h * (1 + s / (6 * h) + v / (12 * l * h))), 1.0, 1e-12);
}

TEST(Flops, PairsAreThoseOfTheMask) {
  for (std::int64_t seq = 1; seq <= 40; ++seq) {
    for (std::int64_t window = 0; window <= 45; ++window) {
      std::int64_t pairs = 0;
      for (std::int64_t query = 0; query < seq; ++query) {
        for (std::int64_t key = 0; key <= query; ++key) pairs += window == 0 || key > query - window;
      }
      ASSERT_EQ(causal_pairs(seq, window), pairs) << seq << " " << window;
    }
  }
}

TEST(Flops, PairsOfSomeQueriesAndKeys) {
  for (const auto& [queries, keys] : {std::pair{7, 3}, {3, 7}, {7, 0}, {0, 7}, {12, 11}}) {
    for (std::int64_t window = 0; window <= 14; ++window) {
      std::int64_t pairs = 0;
      for (std::int64_t query = 0; query < queries; ++query) {
        for (std::int64_t key = 0; key < keys; ++key) pairs += key <= query && (window == 0 || key > query - window);
      }
      EXPECT_EQ(causal_pairs(queries, window, keys), pairs) << queries << " " << keys << " " << window;
    }
  }
}

TEST(Flops, WindowsCountInCausalAndReportedOnly) {
  ModelShape shape = megascale_175b();
  const FlopsPerToken plain = flops_per_token(shape);
  shape.window = 512;
  const FlopsPerToken windowed = flops_per_token(shape);
  EXPECT_EQ(windowed.gemm, plain.gemm);
  EXPECT_EQ(windowed.full, plain.full);
  EXPECT_DOUBLE_EQ(windowed.reported - windowed.gemm, (plain.full - plain.gemm) / 4);
  const double pairs = 512.0 * 513 / 2 + (2048 - 512) * 512.0;
  EXPECT_DOUBLE_EQ(windowed.causal, windowed.gemm + 12.0 * 96 * 12288 * pairs / 2048);
  shape.window = 4096;  // longer than the sequence: no window
  EXPECT_EQ(flops_per_token(shape).reported, plain.reported);
  EXPECT_EQ(flops_per_token(shape).causal, plain.causal);
}

TEST(Flops, AttentionFollowsTheHeadsAndNotHidden) {
  ModelShape shape = llama_31_8b(8192);
  shape.head_dim = 256;  // heads * head_dim twice hidden
  EXPECT_EQ(flops_per_token(shape).full - flops_per_token(shape).gemm, 12.0 * 32 * 8192 * 8192);
}

TEST(Mfu, MegaScaleTable2) {
  const double full = flops_per_token(megascale_175b()).full;
  const double a100 = known_peak_flops("NVIDIA A100-SXM4-80GB").value();
  // The Megatron rows at batch 6,144, to 0.2 %.
  EXPECT_NEAR(mfu(full, 433.6e3, a100, 3072) / 0.487, 1.0, 0.002);
  EXPECT_NEAR(mfu(full, 1466.8e3, a100, 12288) / 0.412, 1.0, 0.002);
  EXPECT_EQ(fmt::format("{:.1f}", 100 * mfu(full, 1466.8e3, a100, 12288)), "41.2");
  // FLOP/token that the paper's own PFLOP/s and tokens/s imply for those rows.
  EXPECT_NEAR(full / 1.0764e12, 1.0, 0.001);
}

TEST(Mfu, LlamaOn8H100AndGpt2XlOfLlmC) {
  const double h100 = known_peak_flops("NVIDIA H100 80GB HBM3").value();
  // Quoted as 59.99 %, but the quoted rate, FLOPs and peak multiply to 60.04 %: 0.1 % is all that can be asked.
  const double llama = mfu(flops_per_token(llama_31_8b(8192)).full, 82028, h100, 8);
  EXPECT_NEAR(llama / 0.5999, 1.0, 0.001);
  EXPECT_NEAR(llama, 5.7913e10 * 82028 / (8 * 989e12), 1e-5);
  // 2.8 s for 2^20 tokens on 8 GPUs.
  EXPECT_EQ(fmt::format("{:.1f}", 100 * mfu(flops_per_token(gpt2_xl()).causal, 1048576 / 2.8, h100, 8)), "46.4");
}

TEST(Mfu, KnownDevices) {
  struct Case {
    const char* name;
    double tflops;  // 0: unknown
  };
  const Case cases[] = {
      {"NVIDIA A100-SXM4-80GB", 312},
      {"NVIDIA A100-PCIE-40GB", 312},
      {"NVIDIA A800-SXM4-80GB", 312},
      {"NVIDIA H100 80GB HBM3", 989},
      {"NVIDIA H100 PCIe", 756},
      {"NVIDIA H100 NVL", 835},
      {"NVIDIA H200", 989},
      {"NVIDIA H200 NVL", 835},
      {"NVIDIA GH200 480GB", 989},
      {"NVIDIA RTX A1000", 0},
      {"NVIDIA H1000", 0},
      {"NVIDIA A100-SXM4-40GB MIG 1g.5gb", 0},
      {"Intel Xeon", 0},
      {"cpu", 0},
      {"", 0},
  };
  for (const Case& c : cases) {
    const auto peak = known_peak_flops(c.name);
    EXPECT_EQ(peak.has_value(), c.tflops != 0) << c.name;
    if (peak) { EXPECT_EQ(*peak, c.tflops * 1e12) << c.name; }
  }
}

TEST(Mfu, CeilingsOfDevices) {
  EXPECT_EQ(known_ceilings("h200")->bytes_per_s, 4.8e12);
  EXPECT_EQ(known_ceilings("NVIDIA H100 80GB HBM3")->bytes_per_s, 3.35e12);
  EXPECT_EQ(known_ceilings("a100")->fp8_flops, 312e12);  // it has no fp8
  for (const char* pcie : {"H100 PCIe", "h100 pcie", "NVIDIA H100 PCIe"}) {
    EXPECT_EQ(known_ceilings(pcie)->bf16_flops, 756e12) << pcie;
    EXPECT_EQ(known_peak_flops(pcie), 756e12) << pcie;
  }
  EXPECT_FALSE(known_ceilings("h300"));
}

}  // namespace
}  // namespace ms::cost
