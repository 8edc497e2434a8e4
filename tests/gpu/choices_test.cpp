// Autotuned matmul algorithms: chosen once, then used by every device that receives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>

#include "tensor/cuda_plugin.h"

namespace ms::tensor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kM = 48, kN = 40, kK = 1000;

// A matmul on one device, with its memory.
struct OneMatmul {
  std::unique_ptr<Device> device = make_cuda_device(0);
  std::unique_ptr<Stream> stream = device->make_stream("test", StreamKind::compute);
  std::unique_ptr<Memory> memory = device->allocate(1 << 20, "test"), host = device->allocate_host(1 << 20, "test");

  static Matmul at(std::byte* data) {
    const auto next = [&](DType dtype, std::int64_t rows, std::int64_t cols) {
      const Tensor t{data, rows, cols, cols, dtype};
      data += (t.size_bytes() + 255) / 256 * 256;
      return t;
    };
    return {.c = next(DType::f32, kM, kN), .a = next(DType::bf16, kM, kK), .b = next(DType::bf16, kK, kN), .bias = {}};
  }
  std::vector<float> run() {
    const Matmul here = at(host->data()), there = at(memory->data());
    std::uint32_t state = 7;
    for (const Tensor& t : {here.a, here.b}) {
      for (std::int64_t i = 0; i < t.numel(); ++i) {
        state = state * 1664525 + 1013904223;
        t.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(0x3f00 | ((state >> 16) & 0x80ff));
      }
    }
    stream->submit(Copy{.dst = there.a, .src = here.a});
    stream->submit(Copy{.dst = there.b, .src = here.b});
    stream->submit(there);
    stream->submit(Copy{.dst = here.c, .src = there.c});
    stream->synchronize();
    return {here.c.as<float>(), here.c.as<float>() + here.c.numel()};
  }
};

class Choices : public testing::Test {
 protected:
  void SetUp() override {
    try {
      make_cuda_device(0);
    } catch (const Error& error) {
      if (error.kind() != "cuda.none") throw;
      GTEST_SKIP() << "needs a GPU: " << error.message();
    }
  }
};

TEST_F(Choices, AreTunedOnceAndReused) {
  setenv("MS_EMULATED_SLOW_FIRST", "1", 1);  // on the emulated GPU the first algorithm is not the fastest
  OneMatmul timed;
  const std::vector<Op> ops{OneMatmul::at(timed.memory->data()), Fill{}};
  MatmulChoices choices;
  const std::int64_t scratch_bytes = timed.device->prepare(ops, choices, true);
  unsetenv("MS_EMULATED_SLOW_FIRST");
  EXPECT_GE(scratch_bytes, 32 << 20);
  EXPECT_FALSE(timed.device->name().empty());
  const DeviceMemory memory = timed.device->memory();
  EXPECT_GT(memory.free_bytes, 0);
  EXPECT_GT(memory.total_bytes, memory.free_bytes);  // the tensors are in it
  ASSERT_EQ(choices.algorithms.size(), 1U);
  EXPECT_THAT(choices.algorithms.begin()->first, HasSubstr("48x40x1000 NN bf16 to f32"));
  if (choices.library.starts_with("emulated")) {
    EXPECT_THAT(choices.algorithms.begin()->second, Not(HasSubstr("1.0.")));
  }

  OneMatmul given;
  MatmulChoices again = MatmulChoices::parse(choices.to_text(), "a test").at(0);
  given.device->prepare(ops, again, true);
  EXPECT_EQ(again, choices);  // nothing was left to tune
  EXPECT_EQ(given.run(), timed.run());
}

// An algorithm that suits a whole GPU is not taken where receives leave less of it.
TEST_F(Choices, AreForTheMultiprocessorsThatReceivesLeave) {
  for (const auto& [receives, says] : {std::pair(std::vector<int>{2, 2}, HasSubstr(" for 128 SMs")),
                                       {std::vector<int>{100, 100}, HasSubstr(" for 1 SMs")}}) {
    const OneMatmul one{.device = make_cuda_device(0, {.receives = receives})};
    const std::vector<Op> ops{OneMatmul::at(one.memory->data())};
    MatmulChoices choices;
    one.device->prepare(ops, choices, true);
    ASSERT_EQ(choices.algorithms.size(), 1U);
    if (choices.library.starts_with("emulated")) { EXPECT_THAT(choices.algorithms.begin()->first, says); }
    EXPECT_THAT(choices.algorithms.begin()->first, HasSubstr(" SMs"));
  }
}

// Times of ops on a stream do not overlap, though one's end may be another's begin.
TEST_F(Choices, TimesOfOpsAddUp) {
  OneMatmul timed;
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<float> result = timed.run();
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::vector<double> seconds = timed.device->op_seconds();
  EXPECT_GT(seconds[static_cast<std::size_t>(OpClass::matmul)], 0);
  EXPECT_LE(std::accumulate(seconds.begin(), seconds.end(), 0.0), wall_s);
}

// Scratch memory does not need memory pools, and grows without them.
TEST_F(Choices, WorkWithoutMemoryPools) {
  OneMatmul with;
  setenv("MS_EMULATED_GPU_POOLS", "0", 1);
  OneMatmul without;
  const Tensor x = OneMatmul::at(without.memory->data()).a, sum{without.memory->data(), 1, 1, 1, DType::f64};
  without.stream->submit(SumSquares{.out = sum, .x = x});
  const std::vector<float> result = without.run();
  unsetenv("MS_EMULATED_GPU_POOLS");
  EXPECT_EQ(result, with.run());
}

// A separate GELU is a choice too, if it is faster.
TEST_F(Choices, GeluMayBeSeparate) {
  const OneMatmul matmul;
  std::byte* at = matmul.memory->data();
  const auto next = [&at](std::int64_t rows, std::int64_t cols) {
    const Tensor t{at, rows, cols, cols, DType::bf16};
    at += (t.size_bytes() + 255) / 256 * 256;
    return t;
  };
  const Matmul op{.c = next(kM, kN), .a = next(kM, kK), .b = next(kK, kN), .gelu_y = next(kM, kN)};
  MatmulChoices choices;
  matmul.device->prepare(std::vector<Op>{op}, choices, true);
  ASSERT_FALSE(choices.algorithms.empty());
  const auto gelu_bits = [&] {
    const Tensor there = op.gelu_y, here{matmul.host->data(), kM, kN, kN, DType::bf16};
    matmul.stream->submit(Fill{.x = op.a, .value = 0.01F});
    matmul.stream->submit(Fill{.x = op.b, .value = 0.5F});
    matmul.stream->submit(op);
    matmul.stream->submit(Copy{.dst = here, .src = there});
    matmul.stream->synchronize();
    return std::vector<std::uint16_t>(here.as<std::uint16_t>(), here.as<std::uint16_t>() + here.numel());
  };
  const std::vector<std::uint16_t> chosen = gelu_bits();
  const auto joined = std::ranges::find_if(
      choices.algorithms, [](const auto& choice) { return choice.first.find("gelu") != std::string::npos; });
  if (joined == choices.algorithms.end() && !choices.library.starts_with("emulated"))
    GTEST_SKIP() << "needs a GPU: one with a matmul that fuses GELU";
  ASSERT_NE(joined, choices.algorithms.end());
  joined->second = "apart";
  matmul.device->prepare(std::vector<Op>{op}, choices, true);
  EXPECT_EQ(joined->second, "apart");
  EXPECT_EQ(choices.algorithms.size(), 2U);  // the separate matmul needs an algorithm too
  // All terms are equal, and so are their sums in any order; GELU(5) is 5 in bf16.
  EXPECT_EQ(gelu_bits(), chosen);
}

// A bias gradient is a part of the matmul, or separate if that is faster or if cuBLASLt has no such matmul.
TEST_F(Choices, BiasGradientMayBeSeparate) {
  const OneMatmul matmul;
  Matmul op = OneMatmul::at(matmul.memory->data());
  op.a = op.a.flat().reshape(kK, kM), op.transpose_a = true, op.accumulate = true;
  op.a_sums = {op.b.data + op.b.size_bytes(), 1, kM, kM, DType::f32};
  const auto sums = [&] {
    const Tensor here{matmul.host->data(), 1, kM, kM, DType::f32};
    matmul.stream->submit(Fill{.x = op.a, .value = 0.25F});
    matmul.stream->submit(Fill{.x = op.b, .value = 0.5F});
    matmul.stream->submit(Fill{.x = op.c, .value = 0});
    matmul.stream->submit(Fill{.x = op.a_sums, .value = 3});
    matmul.stream->submit(op);
    matmul.stream->submit(Copy{.dst = here, .src = op.a_sums});
    matmul.stream->synchronize();
    return std::vector<float>(here.as<float>(), here.as<float>() + kM);
  };
  const std::vector<float> want(kM, 3 + 0.25F * kK);
  MatmulChoices choices;
  matmul.device->prepare(std::vector<Op>{op}, choices, true);
  EXPECT_EQ(sums(), want);
  const auto joined = std::ranges::find_if(
      choices.algorithms, [](const auto& choice) { return choice.first.find(" sums ") != std::string::npos; });
  if (joined == choices.algorithms.end() && !choices.library.starts_with("emulated"))
    GTEST_SKIP() << "needs a GPU: one with a matmul that sums an operand";
  ASSERT_NE(joined, choices.algorithms.end());
  joined->second = "apart";
  matmul.device->prepare(std::vector<Op>{op}, choices, true);
  EXPECT_EQ(joined->second, "apart");
  EXPECT_EQ(choices.algorithms.size(), 2U);  // the separate matmul needs an algorithm too
  EXPECT_EQ(sums(), want);

  setenv("MS_EMULATED_CUBLASLT_SUMS", "0", 1);
  MatmulChoices none;
  matmul.device->prepare(std::vector<Op>{op}, none, true);
  unsetenv("MS_EMULATED_CUBLASLT_SUMS");
  ASSERT_FALSE(none.algorithms.empty());
  if (none.library.starts_with("emulated")) {
    EXPECT_EQ(none.algorithms.size(), 1U);
    EXPECT_THAT(none.algorithms.begin()->first, Not(HasSubstr(" sums ")));
  }
  EXPECT_EQ(sums(), want);
}

TEST_F(Choices, IgnoresThoseOfAnotherLibrary) {
  OneMatmul matmul;
  const std::vector<Op> ops{OneMatmul::at(matmul.memory->data())};
  const std::vector<float> first = matmul.run();
  MatmulChoices choices;
  matmul.device->prepare(ops, choices, true);
  const std::string form = choices.algorithms.begin()->first;

  MatmulChoices damaged{.library = choices.library, .algorithms = {{form, "77.no algorithm"}}};
  matmul.device->prepare(ops, damaged, false);
  EXPECT_EQ(matmul.run(), first);
  MatmulChoices unknown{.library = choices.library, .algorithms = {{form, "ffff.0.0.0.0.0.0.0"}}};
  matmul.device->prepare(ops, unknown, false);
  EXPECT_EQ(matmul.run(), first);
  MatmulChoices others{.library = "an abacus", .algorithms = {{form, "1.0.0.0.0.0.0.0"}}};
  matmul.device->prepare(ops, others, false);
  EXPECT_TRUE(others.algorithms.empty());
  EXPECT_EQ(matmul.run(), first);
}

TEST(MatmulChoices, RoundTripsThroughText) {
  const MatmulChoices choices{.library = "a GPU, cuBLASLt 1",
                              .algorithms = {{"1x2x3", "a.b"}, {"4x5x6 with bias", "c"}}};
  EXPECT_EQ(choices.to_text(), "library = a GPU, cuBLASLt 1\n1x2x3 = a.b\n4x5x6 with bias = c\n");
  const MatmulChoices other{.library = "another", .algorithms = {{"1x2x3", "d"}}};
  EXPECT_THAT(MatmulChoices::parse(choices.to_text() + other.to_text(), "a test"), ElementsAre(choices, other));
  EXPECT_EQ(MatmulChoices{}.to_text(), "");
  EXPECT_THAT(MatmulChoices::parse("", "a test"), testing::IsEmpty());
  for (const char* text : {"1x2x3 = a\n", "library\n", "library = x\n1x2x3\n",
                           "\x7f"
                           "ELF"}) {
    try {
      MatmulChoices::parse(text, "some file");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.blame(), Blame::user);
      EXPECT_THAT(error.message(), HasSubstr("some file"));
    }
  }
}

}  // namespace
}  // namespace ms::tensor
