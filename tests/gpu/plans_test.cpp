// cuDNN has engines for the attention graphs, on GPUs that need not be present: the test passes their descriptions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tensor/cuda/attention_graph.h"

namespace ms::tensor {
namespace {

struct Gpu {
  const char* name;
  int version, processors, shared_bytes, shared_optin_bytes, l2_bytes;
};
constexpr Gpu kH200{"H200", 900, 132, 49152, 232448, 62914560};
constexpr Gpu kA100{"A100", 800, 108, 49152, 166912, 41943040};

std::string json_of(const Gpu& gpu) {
  return fmt::format(
      R"({{"cudaDeviceId":0,"deviceName":"NVIDIA {}","deviceVer":{},"driverVer":13000,"isTccDriver":0,"l2CacheSize":{},"maxBlockSize":[1024,1024,64],)"
      R"("maxCtasPerSM":32,"maxGridSize":[2147483647,65535,65535],"maxRegistersPerSM":65536,"maxSharedMemoryPerBlock":{},)"
      R"("maxSharedMemoryPerBlockOptin":{},"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"memClockRateKHz":3201000,)"
      R"("multiProcessorCount":{},"pciDeviceId":0,"regsPerBlock":65536,"reservedSharedMemoryPerBlock":1024,)"
      R"("smClockRateKHz":1980000,"supportCoopLaunch":1,"totalGlobalMem":150000000000,"warpSize":32}})",
      gpu.name, gpu.version, gpu.l2_bytes, gpu.shared_bytes, gpu.shared_optin_bytes, gpu.processors);
}

// q, k and v side by side in one matrix, as the engine's matmul writes them.
AttentionKey key_of(std::int64_t seq, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                    std::int64_t window = 0, bool deterministic = true) {
  const std::int64_t ld = (heads + 2 * kv_heads) * head_dim, out = heads * head_dim;
  return {.batch = 2,
          .seq = seq,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .window = window,
          .q_ld = ld,
          .k_ld = ld,
          .v_ld = ld,
          .o_ld = out,
          .dq_ld = ld,
          .dk_ld = ld,
          .dv_ld = ld,
          .dout_ld = out,
          .deterministic = deterministic};
}
template <class Graph>
CudnnOffer offer(const AttentionKey& key, const Gpu& gpu) {
  return offer_for(Graph(key).graph.finish(nullptr), json_of(gpu));
}
// Succeeds if cuDNN has an engine and has compiled its kernels; only a driver may be missing.
template <class Graph>
testing::AssertionResult compiles(const AttentionKey& key, const Gpu& gpu) {
  const CudnnOffer made = offer<Graph>(key, gpu);
  if (made.planned == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER || made.planned == CUDNN_STATUS_SUCCESS)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << fmt::format(
             "{}: batch {} of {}, heads {} to {} of {}, window {}: {} engines, {}", gpu.name, key.batch, key.seq,
             key.heads, key.kv_heads, key.head_dim, key.window, made.engines, cudnnGetErrorString(made.planned));
}
void expect_both(const AttentionKey& key, const Gpu& gpu) {
  EXPECT_TRUE(compiles<AttentionForward>(key, gpu));
  EXPECT_TRUE(compiles<AttentionBackward>(key, gpu));
}

TEST(Plans, EveryShapeOfTheModelsCompiles) {
  for (const std::int64_t kv_heads : {16, 4}) {
    for (const std::int64_t window : {0, 256}) {
      for (const std::int64_t head_dim : {64, 128}) expect_both(key_of(1024, 16, kv_heads, head_dim, window), kH200);
      expect_both(key_of(1024, 16, kv_heads, kv_heads == 16 ? 64 : 128, window), kA100);
    }
  }
  expect_both(key_of(8192, 32, 8, 128), kH200);
  for (const AttentionKey& in_any_order :
       {key_of(8192, 32, 8, 128, 0, false), key_of(1024, 25, 25, 64, 0, false), key_of(2048, 96, 96, 128, 0, false)}) {
    EXPECT_TRUE(compiles<AttentionBackward>(in_any_order, kH200));
  }
  for (const std::int64_t kv_heads : {8, 2}) {
    for (const std::int64_t window : {0, 256}) expect_both(key_of(1000, 8, kv_heads, 256, window), kH200);
  }
}

AttentionKey of_documents(AttentionKey key) {
  key.documents = true;
  return key;
}

TEST(Plans, OneOfEachKindCompiles) {
  expect_both(key_of(1024, 16, 16, 64), kA100);
  expect_both(key_of(1024, 16, 4, 128, 256), kH200);
  EXPECT_TRUE(compiles<AttentionBackward>(key_of(2048, 96, 96, 128, 0, false), kH200));
  expect_both(of_documents(key_of(1024, 16, 4, 128, 256)), kH200);
  expect_both(of_documents(key_of(130, 4, 2, 24)), kH200);
  EXPECT_EQ(offer<AttentionBackward>(of_documents(key_of(1024, 16, 16, 64)), kA100).engines, 0);
}

// The mask of documents: alone, in a window, with shared heads, in any order of sums.
TEST(Plans, EveryShapeOfDocumentsCompiles) {
  for (const std::int64_t kv_heads : {16, 4}) {
    for (const std::int64_t window : {0, 256}) {
      for (const std::int64_t head_dim : {64, 128})
        expect_both(of_documents(key_of(1024, 16, kv_heads, head_dim, window)), kH200);
      const AttentionKey on_a100 = of_documents(key_of(1024, 16, kv_heads, kv_heads == 16 ? 64 : 128, window));
      EXPECT_TRUE(compiles<AttentionForward>(on_a100, kA100));
      EXPECT_EQ(offer<AttentionBackward>(on_a100, kA100).engines, 0);  // what the hint of CudaAttention says
    }
  }
  expect_both(of_documents(key_of(8192, 32, 8, 128)), kH200);
  expect_both(of_documents(key_of(130, 4, 2, 24)), kH200);
  expect_both(of_documents(key_of(1000, 8, 2, 256)), kH200);
  EXPECT_TRUE(compiles<AttentionBackward>(of_documents(key_of(8192, 32, 8, 128, 0, false)), kH200));
}

// Shapes of tests that run on a GPU: tests/ops/attention_test.cpp, with gaps between rows; gpu_parity's models, whole
// and on one of eight ranks; train.py's small ones.
TEST(Plans, ShapesOfTestsCompile) {
  for (AttentionKey key : {key_of(64, 2, 2, 64), key_of(65, 1, 1, 64), key_of(200, 2, 1, 32, 17),
                           key_of(129, 2, 2, 128, 64), key_of(70, 1, 1, 256, 1), key_of(96, 3, 1, 96)}) {
    constexpr std::int64_t kGap = 8;
    for (std::int64_t* ld : {&key.q_ld, &key.k_ld, &key.v_ld, &key.dq_ld, &key.dk_ld, &key.dv_ld}) *ld += kGap;
    key.o_ld += 2 * kGap, key.dout_ld += 3 * kGap;
    expect_both(key, kH200);
  }
  for (const AttentionKey& key :
       {key_of(16, 8, 8, 8), key_of(16, 8, 4, 8), key_of(16, 1, 1, 8), key_of(32, 8, 8, 8), key_of(256, 4, 4, 64)}) {
    expect_both(key, kH200);
  }
  for (const AttentionKey& in_any_order : {key_of(16, 8, 8, 8, 0, false), key_of(16, 8, 4, 8, 0, false)}) {
    EXPECT_TRUE(compiles<AttentionBackward>(in_any_order, kH200));
  }
}

TEST(Plans, RefusesHeadsThatAreNotMultiplesOfEight) {
  EXPECT_EQ(offer<AttentionForward>(key_of(1024, 8, 8, 100), kH200).engines, 0);
}

}  // namespace
}  // namespace ms::tensor
