// Work of devices and collectives by the tables of names.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "foreign_files.h"
#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
namespace {

RunTrace read_events(const std::string& events) {
  const ForeignFiles files;
  return read_run({files.put("trace.json", "{\"traceEvents\":[" + events + "]}")});
}

// Events of devices by category, by process and by what else tells; what is not known is a share of its own.
TEST(DeviceEvents, AreByCategoryProcessOrStream) {
  const auto event = [](const char* category, const char* name, int pid, const char* args = "") {
    return fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","pid":{},"tid":1,"ts":1,"dur":10,"args":{{{}}}}},)",
                       category, name, pid, args);
  };
  const auto process = [](int pid, const char* key, const char* name) {
    return fmt::format(R"({{"ph":"M","name":"process_{}","pid":{},"tid":0,"args":{{"{}":"{}"}}}},)",
                       key == std::string_view("name") ? "name" : "labels", pid, key, name);
  };
  const RunTrace trace =
      read_events(process(5, "name", "Ascend Hardware") + process(6, "name", "HCCL") +
                  process(7, "name", "Overlap Analysis") + process(8, "labels", "GPU 0") + process(9, "labels", "CPU") +
                  event("kernel", "k", 0) + event("mtia_ccp_events", "m", 1) + event("", "MatMulV2", 5) +
                  event("", "hcom_allReduce__1", 6) + event("", "Notify_Wait", 6) + event("", "Computing", 7) +
                  event("tensor_op", "t", 8) + event("tensor_op", "h", 9) +
                  event("stream_op", "s", 3, R"("stream": 7)") + event("cuda_sync", "Event Sync", 0, R"("stream": 7)") +
                  event("cpu_op", "aten::mm", 4) + R"({"ph":"M","name":"end","pid":0,"tid":0})");
  const auto kind = [&](const char* name) { return trace.info(event_named(trace, name)).kind; };
  EXPECT_EQ(kind("k"), Kind::other_compute);
  EXPECT_EQ(kind("m"), Kind::other_compute);
  EXPECT_EQ(kind("MatMulV2"), Kind::matmul);
  EXPECT_EQ(kind("hcom_allReduce__1"), Kind::all_reduce);
  for (const char* name : {"Notify_Wait", "Computing", "h", "Event Sync", "aten::mm"})
    EXPECT_EQ(kind(name), Kind::other) << name;
  for (const char* name : {"t", "s"}) EXPECT_EQ(kind(name), Kind::other_compute) << name;
  EXPECT_EQ(trace.device_ns, 60'000);
  EXPECT_EQ(trace.unknown_device_ns,
            (std::map<std::string, std::int64_t>{{"stream_op", 10'000}, {"tensor_op", 10'000}}));
}

TEST(IsCommKernel, IsByTheNamesOfLibraries) {
  for (const char* name :
       {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccldevkernel_allreduce_sum_f32",
        "void mscclKernel_Sum_half_Simple_false(ncclDevComm*)", "mscclpp::allreduce7", "oneccl_allreduce_sum_bf16",
        "hcom_allGather__5", "rcclKernel", "void vllm::cross_device_reduce_1stage<bf16, 8>(x)", "deep_ep::dispatch"})
    EXPECT_TRUE(is_comm_kernel(name)) << name;
  for (const char* name :
       {"void gemm(ncclDevComm*)", "sm90_xmma_gemm", "hipMemcpy", "Memcpy HtoD", "", "void ", "occlusion"})
    EXPECT_FALSE(is_comm_kernel(name)) << name;
}

}  // namespace
}  // namespace ms::tracepp
