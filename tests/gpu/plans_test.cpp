// The graphs of attention are such as cuDNN has engines for, on GPUs that need not be here: it is told what they are.
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

// q, k and v side by side in one matrix, as the engine's product gives them.
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
int forward(const AttentionKey& key, const Gpu& gpu) {
  return engines_for(AttentionForward(key).graph.finish(nullptr), json_of(gpu));
}
int backward(const AttentionKey& key, const Gpu& gpu) {
  return engines_for(AttentionBackward(key).graph.finish(nullptr), json_of(gpu));
}

TEST(Plans, EveryShapeOfTheModelsHasAnEngine) {
  for (const Gpu& gpu : {kH200, kA100}) {
    for (const std::int64_t head_dim : {64, 128}) {
      for (const std::int64_t kv_heads : {16, 4}) {
        for (const std::int64_t window : {0, 256}) {
          const AttentionKey key = key_of(1024, 16, kv_heads, head_dim, window);
          SCOPED_TRACE(fmt::format("{}: heads of {}, 16 to {}, window {}", gpu.name, head_dim, kv_heads, window));
          EXPECT_GT(forward(key, gpu), 0);
          EXPECT_GT(backward(key, gpu), 0);
        }
      }
    }
  }
  EXPECT_GT(forward(key_of(8192, 32, 8, 128), kH200), 0);
  EXPECT_GT(backward(key_of(8192, 32, 8, 128), kH200), 0);
  EXPECT_GT(backward(key_of(8192, 32, 8, 128, 0, false), kH200), 0);
  for (const std::int64_t kv_heads : {8, 2}) {
    for (const std::int64_t window : {0, 256}) {
      EXPECT_GT(forward(key_of(1000, 8, kv_heads, 256, window), kH200), 0) << kv_heads << " " << window;
      EXPECT_GT(backward(key_of(1000, 8, kv_heads, 256, window), kH200), 0) << kv_heads << " " << window;
    }
  }
}

TEST(Plans, HeadsThatAreNoMultipleOfEightHaveNone) { EXPECT_EQ(forward(key_of(1024, 8, 8, 100), kH200), 0); }

}  // namespace
}  // namespace ms::tensor
