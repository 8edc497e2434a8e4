// Kernels, copies and MFU of traces of torch.profiler: formulas and names by tables, a hand-made trace whose numbers
// are known, what is withheld, and the published traces of GPUs beside HTA 0.5.
#include "tracepp/steps/kernels.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "foreign_files.h"
#include "tracepp/read/op_shapes.h"
#include "tracepp/report/json.h"
#include "tracepp/report/report.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

namespace fs = std::filesystem;
using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Shaped {
  std::string op, dims, types, values;
  double flops;
  std::int64_t bytes;
};

TEST(OpShapes, CountWhatAnOperatorDoes) {
  const std::string half2 = R"(["c10::BFloat16", "c10::BFloat16"])", none;
  const std::string conv = R"(["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"])";
  const std::string mask = R"(["", "", "", "", "", "", "", "False", "", "1", "[False, True, False]"])";
  const std::vector<Shaped> rows{
      {"aten::mm", "[[8, 16], [16, 4]]", half2, none, 2 * 8 * 16 * 4, 2 * (128 + 64 + 32)},
      {"aten::addmm", "[[4], [8, 16], [16, 4], [], []]", R"(["float", "float", "float", "Scalar", "Scalar"])", none,
       2 * 8 * 16 * 4, 4 * (128 + 64 + 32)},
      {"aten::bmm", "[[3, 8, 16], [3, 16, 4]]", half2, none, 3 * 2 * 8 * 16 * 4, 3 * 2 * (128 + 64 + 32)},
      {"aten::linear", "[[2, 8, 16], [4, 16], [4]]", half2, none, 2 * 16 * 16 * 4, 2 * (256 + 64 + 64)},
      // A grouped GEMM: each of 10 rows meets one of 3 experts; its weights' gradient.
      {"aten::_grouped_mm", "[[10, 16], [3, 16, 4]]", half2, none, 2 * 10 * 16 * 4, 2 * (160 + 192 + 40)},
      {"aten::_grouped_mm", "[[16, 10], [10, 4]]", half2, none, 2 * 10 * 16 * 4, 2 * (160 + 40 + 64)},
      // ResNet's first: 224 -> 112.
      {"aten::convolution", "[[1, 3, 224, 224], [64, 3, 7, 7], []]", R"(["float", "float"])", conv,
       2.0 * 64 * 112 * 112 * 3 * 49, 4 * (3 * 224 * 224 + 64 * 3 * 49 + 64 * 112 * 112)},
      {"aten::convolution_backward", "[[1, 64, 112, 112], [1, 3, 224, 224], [64, 3, 7, 7]]", R"(["float"])", mask,
       2.0 * 64 * 112 * 112 * 3 * 49, -1},
      {"aten::_scaled_dot_product_flash_attention", "[[2, 3, 8, 16], [2, 3, 8, 16], [2, 3, 8, 16]]", half2,
       R"(["", "", "", "0.", "False"])", 4 * 2 * 3 * 8 * 8 * 16, 2 * 4 * 768},
      {"aten::_scaled_dot_product_flash_attention", "[[2, 3, 8, 16], [2, 3, 8, 16], [2, 3, 8, 16]]", half2,
       R"(["", "", "", "0.", "True"])", 4 * 2 * 3 * 36 * 16, 2 * 4 * 768},
      {"aten::_scaled_dot_product_efficient_attention_backward",
       "[[2, 3, 8, 16], [2, 3, 8, 16], [2, 3, 8, 16], [2, 3, 8, 16]]", half2,
       R"(["", "", "", "", "", "", "", "", "", "0.", "", "False"])", 8 * 2 * 3 * 8 * 8 * 16, -1},
      {"aten::add", "[[8, 16], [16], []]", R"(["float", "float", "Scalar"])", none, 0, 4 * (128 + 16 + 128)},
      {"aten::copy_", "[[8, 16], [8, 16], []]", R"(["float", "c10::Half", "Scalar"])", none, 0, 128 * (4 + 2)}};
  for (const Shaped& row : rows) {
    ASSERT_TRUE(has_formula(row.op)) << row.op;
    const auto work = op_work(row.op, row.dims, row.types, row.values);
    ASSERT_TRUE(work) << row.op;
    EXPECT_THAT(work->flops, DoubleEq(row.flops)) << row.op << row.dims;
    EXPECT_EQ(work->bytes, row.bytes) << row.op << row.dims;
  }
}

TEST(OpShapes, AreNotGuessed) {
  const std::vector<std::array<std::string, 3>> refused{
      {"aten::mm", "[[8, 16], [15, 4]]", ""},
      {"aten::mm", "[[8, 16]]", ""},
      {"aten::mm", "", ""},
      {"aten::mm", "[[8, -16], [-16, 4]]", ""},
      {"aten::mm", "[[[8, 16], [16, 4]]]", ""},
      {"aten::mm", "[[99999999999, 99999999999], [99999999999, 2]]", ""},
      {"aten::mm", "[[0, 0], [0, 4]]", ""},
      {"aten::mm", "]]][[[", ""},
      {"aten::unknown", "[[8, 16], [16, 4]]", ""},
      // Without the values: is it strided, is it causal?
      {"aten::convolution", "[[1, 3, 224, 224], [64, 3, 7, 7], []]", ""},
      {"aten::convolution", "[[1, 3, 4, 4], [64, 3, 7, 7], []]",
       R"(["", "", "", "[1]", "[0]", "[1]", "False", "[0]", "1"])"},
      {"aten::_scaled_dot_product_flash_attention", "[[2, 3, 8, 16], [2, 3, 8, 16], [2, 3, 8, 16]]", ""}};
  for (const auto& [op, dims, values] : refused) EXPECT_FALSE(op_work(op, dims, R"(["float"])", values)) << op << dims;
  const auto huge = op_work("aten::mm", "[[1000000000, 1], [1, 1000000000]]", R"(["float", "float"])", "");
  ASSERT_TRUE(huge);
  EXPECT_EQ(huge->bytes, -1);
}

TEST(KernelNames, TellTensorCores) {
  const std::vector<std::pair<std::string, TensorCores>> rows{
      {"ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", TensorCores::used},
      {"volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", TensorCores::used},
      {"volta_h884gemm_256x64_ldg8_tn", TensorCores::used},
      {"void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(cutlass::Params)", TensorCores::used},
      {"sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x32x64_stage3_warpsize2x1x2_tensor16x8x8_kernel",
       TensorCores::used},
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cgasize1x1x1_stage4_gmmastage2_kernel",
       TensorCores::used},
      {"nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", TensorCores::used},
      {"Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0", TensorCores::used},
      {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>(params)",
       TensorCores::used},
      {"volta_sgemm_128x64_tn", TensorCores::not_used},
      {"ampere_sgemm_32x32_sliced1x4_tn", TensorCores::not_used},
      {"cutlass_80_simt_sgemm_128x64_8x5_nt_align1", TensorCores::not_used},
      {"void gemvNSP_kernel<float, float, float, float, 1, 32, 4, 1024>(cublasGemvParams)", TensorCores::not_used},
      {"triton_tem_fused_mm_0", TensorCores::unknown},
      {"ampere_gcgemm_64x64_nt", TensorCores::unknown},
      {"Cijk_Ailk_Bljk_SB_MT64x64x16_SE_1LDSB0", TensorCores::unknown},
      {"kernel_1688", TensorCores::unknown}};
  for (const auto& [name, cores] : rows) EXPECT_EQ(tensor_cores_of(name), cores) << name;
}

TEST(KernelNames, AreShortened) {
  const std::vector<std::pair<std::string, std::string>> rows{
      {"void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
       "at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 3> >(int, at::native::X)",
       "vectorized_elementwise_kernel<MulFunctor>"},
      {"void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_"
       "cuda(at::TensorIteratorBase&)::{lambda()#3}>(int)::{lambda(int)#1}>(int, at::native::Y)",
       "elementwise_kernel<direct_copy_kernel_cuda>"},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, "
       "at::native::AdamFunctor<float> >(A, B)",
       "multi_tensor_apply_kernel<AdamFunctor>"},
      {"void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(P)",
       "Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>"},
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
       "ncclDevKernel_AllReduce_Sum_f32_RING_LL"},
      {"void splitKreduce_kernel<float, true>(int)", "splitKreduce_kernel<...>"},
      {"volta_sgemm_128x64_tn", "volta_sgemm_128x64_tn"},
      {"", ""},
      {"<<>(", "<...>"}};
  for (const auto& [name, shown] : rows) EXPECT_EQ(short_kernel_name(name), shown);
}

// One rank, in microseconds. Each step: a linear whose GEMM takes 100 us, its backward of 2, a small kernel, a copy.
struct MadeTrace {
  std::string device = "NVIDIA H100 80GB HBM3", type = "c10::BFloat16", backward = "AddmmBackward0";
  bool has_shapes = true;
  int steps = 2;

  std::string text() const {
    std::string events;
    int correlation = 1;
    const auto add = [&](const std::string& category, const std::string& name, double begin, double length, int pid,
                         int tid, const std::string& args) {
      events += fmt::format(
          R"({}{{"ph":"X","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
          events.empty() ? "" : ",", category, name, pid, tid, begin, length, args);
    };
    const auto op = [&](const std::string& name, double begin, double length, const std::string& dims) {
      const std::string shapes = fmt::format(
          R"("External id":1,"Concrete Inputs":["",""],"Input type":["{0}","{0}","{0}"],"Input Dims":{1})", type, dims);
      add("cpu_op", name, begin, length, 100, 100, has_shapes && !dims.empty() ? shapes : "");
    };
    const auto launch = [&](const std::string& kernel, double call, double begin, double length) {
      const bool is_copy = kernel.starts_with("Memcpy");
      add("cuda_runtime", is_copy ? "cudaMemcpyAsync" : "cudaLaunchKernel", call, 5, 100, 100,
          fmt::format(R"("correlation":{})", correlation));
      add(is_copy ? "gpu_memcpy" : "kernel", kernel, begin, length, 0, 7,
          fmt::format(R"("device":0,"stream":7,"correlation":{}{})", correlation,
                      is_copy ? R"(,"bytes":1000000)" : ""));
      ++correlation;
    };
    // Launched before the trace began.
    add("kernel", "before", 0, 50, 0, 7, R"("device":0,"stream":7,"correlation":99999)");
    for (int s = 0; s < steps; ++s) {
      const double t = 1000 + 1000 * s;
      add("user_annotation", fmt::format("ProfilerStep#{}", s), t, 1000, 100, 100, "");
      op("aten::linear", t + 10, 40, "[[64,1000],[1000,1000],[1000]]");
      op("aten::addmm", t + 15, 30, "[[1000],[64,1000],[1000,1000],[],[]]");
      launch("sm80_s16816gemm_bf16", t + 20, t + 30, 100);
      op("autograd::engine::evaluate_function: " + backward, t + 60, 100, "");
      op(backward, t + 61, 98, "");
      op("aten::mm", t + 70, 30, "[[64,1000],[1000,1000]]");
      launch("sm80_s16816gemm_bf16", t + 75, t + 130, 100);
      op("aten::mm", t + 110, 30, "[[1000,64],[64,1000]]");
      launch("sm80_s16816gemm_bf16", t + 115, t + 230, 100);
      op("aten::add_", t + 200, 20, "[[1000,1000],[1000,1000],[]]");
      launch("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)", t + 205, t + 400,
             4);
      launch("Memcpy HtoD (Pageable -> Device)", t + 500, t + 510, 100);
    }
    return fmt::format(R"({{"schemaVersion":1,"deviceProperties":[{{"id":0,"name":"{}"}},{{"id":1,"name":"{}"}}],)"
                       R"("distributedInfo":{{"rank":0,"world_size":1}},"traceEvents":[{}]}})",
                       device, device, events);
  }
};

struct Measured {
  explicit Measured(const MadeTrace& made) : trace(read(made)), ranks(measure_kernels(trace)) {}
  static RunTrace read(const MadeTrace& made) {
    const ForeignFiles files;
    return read_run({files.put("rank0.json", made.text())});
  }
  RunTrace trace;
  std::vector<RankKernels> ranks;
};

TEST(Kernels, OfAMadeTrace) {
  const Measured measured({});
  ASSERT_THAT(measured.ranks, SizeIs(1));
  const RankKernels& of = measured.ranks[0];
  EXPECT_TRUE(of.has_device);
  ASSERT_THAT(of.kernels, SizeIs(2));  // without the one that was launched before
  EXPECT_EQ(of.kernels[0].time.count, 6);
  EXPECT_EQ(of.kernels[0].time.ns, 600'000);
  EXPECT_EQ(of.kernels[0].cores, TensorCores::used);
  EXPECT_EQ(of.kernels[0].kind, Kind::matmul);
  EXPECT_THAT(of.kernels[0].achieved.tflops(), DoubleNear(2e-12 * 64e6 / 100e-6, 1e-9));
  EXPECT_THAT(of.kernels[1].achieved.gb_s(), DoubleNear(1e-9 * 3 * 2e6 / 4e-6, 1e-6));
  ASSERT_THAT(of.copies, SizeIs(1));
  EXPECT_THAT(of.copies[0].achieved.gb_s(), DoubleNear(1e-9 * 1e6 / 100e-6, 1e-9));
  EXPECT_EQ(of.short_ones.count, 2);
  EXPECT_EQ(of.short_ones.ns, 8'000);
  EXPECT_EQ(of.short_ones.idle_before_ns, 2 * 70'000);
  EXPECT_EQ(of.launches.count, 8);
  EXPECT_EQ(of.launches.late, 4);  // 5, 50, 110 and 190 us a step
  EXPECT_EQ(of.launches.most_ns, 190'000);
  EXPECT_EQ(of.launches.median_ns, 110'000);
  ASSERT_THAT(of.queues, SizeIs(1));
  EXPECT_EQ(of.queues[0].most, 2);
  // Operators that no other encloses.
  ASSERT_THAT(of.ops, SizeIs(3));
  EXPECT_EQ(measured.trace.strings.text(of.ops[0].name), "autograd::engine::evaluate_function: AddmmBackward0");
  EXPECT_EQ(of.ops[0].device_ns, 400'000);
  EXPECT_EQ(of.ops[0].kernels, 4);
  EXPECT_EQ(measured.trace.strings.text(of.ops[1].name), "aten::linear");
  EXPECT_EQ(of.ops[1].host.ns, 80'000);
}

TEST(Kernels, TellTheMfuOfSteps) {
  const Measured measured({});
  const RankKernels& of = measured.ranks.at(0);
  const Mfu mfu = mfu_of(measured.trace, 0, of);
  EXPECT_EQ(mfu.peak, 989e12);
  // Forward and both backward GEMMs in each step of 1 ms; aten::linear around aten::addmm does not count again.
  EXPECT_THAT(mfu.mfu, DoubleNear(3 * 2 * 64e6 / 1e-3 / 989e12, 1e-9));
  EXPECT_FALSE(mfu.is_lower_bound);
  EXPECT_THAT(of.shaped_share(), DoubleEq(1));
  EXPECT_EQ(of.steps.size(), 2U);
  // In FP8, of the peak of FP8.
  const Measured fp8({.type = "c10::Float8_e4m3fn"});
  EXPECT_THAT(mfu_of(fp8.trace, 0, fp8.ranks.at(0)).mfu, DoubleNear(3 * 2 * 64e6 / 1e-3 / 1979e12, 1e-9));
}

TEST(Kernels, WithholdAnMfu) {
  Measured unknown({.device = "NVIDIA Quadro 12"});
  EXPECT_EQ(mfu_of(unknown.trace, 0, unknown.ranks.at(0)).mfu, 0);
  EXPECT_NE(mfu_of(unknown.trace, 0, unknown.ranks.at(0)).why, "");
  unknown.trace.peak_flops = 100e12;
  EXPECT_THAT(mfu_of(unknown.trace, 0, unknown.ranks.at(0)).mfu, DoubleNear(3 * 2 * 64e6 / 1e-3 / 100e12, 1e-9));
  unknown.trace.peak_flops = 1e9;  // less than what was computed
  EXPECT_EQ(mfu_of(unknown.trace, 0, unknown.ranks.at(0)).mfu, 0);
  const Measured unshaped({.has_shapes = false});
  EXPECT_EQ(mfu_of(unshaped.trace, 0, unshaped.ranks.at(0)).mfu, 0);
  EXPECT_NE(mfu_of(unshaped.trace, 0, unshaped.ranks.at(0)).why, "");
}

TEST(Kernels, LeaveRecomputationOut) {
  MadeTrace made{.backward = "CheckpointFunctionBackward"};
  const Measured measured(made);
  const RankKernels& of = measured.ranks.at(0);
  EXPECT_THAT(of.recomputed_flops, DoubleEq(2 * 2 * 2 * 64e6));
  EXPECT_THAT(mfu_of(measured.trace, 0, of).mfu, DoubleNear(2 * 64e6 / 1e-3 / 989e12, 1e-9));
}

TEST(Kernels, AreInTheReport) {
  const ForeignFiles files;
  RunTrace trace = read_run({files.put("rank0.json", MadeTrace{}.text())});
  const Analysis analysis = analyse(trace);
  const Json kernels = report_json(trace, analysis).at("kernels");
  ASSERT_EQ(kernels.at("names").size(), 2U);
  EXPECT_EQ(kernels.at("names").at(0).at("tensor_cores"), true);
  EXPECT_EQ(kernels.at("ranks").at(0).at("device"), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(kernels.at("ranks").at(0).at("kernels").at(0).at("count"), 6);
  EXPECT_EQ(kernels.at("ranks").at(0).at("mfu").at("peak_flops"), 989e12);
  EXPECT_EQ(kernels.at("ranks").at(0).at("mfu").at("flops").at("c10::BFloat16"), 2.0 * 3 * 2 * 64e6);
  EXPECT_THAT(kernels_text(trace, analysis.kernels), ::testing::HasSubstr("vectorized_elementwise_kernel<AddFunctor>"));
}

TEST(Kernels, OfOtherTracesAreNotKnown) {
  const ForeignFiles files;
  const std::string text = R"([{"ph":"X","cat":"c","name":"a","pid":1,"tid":2,"ts":1,"dur":2}])";
  EXPECT_THAT(measure_kernels(read_run({files.put("trace.json", text)})), IsEmpty());
}

// HTA 0.5 with include_last_profiler_step and HTA_DISABLE_NS_ROUNDING=1: kernels and copies, their sum in microseconds;
// of alexnet without its "Stream Wait Event" and the like, which are no work.
TEST(Kernels, AreThoseOfHta) {
  const fs::path folder = fs::path(MS_SOURCE_DIR) / "../shared/data/kineto";
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/data/kineto is not here";
  struct PublishedSum {
    std::string file;
    std::size_t names;
    std::uint64_t count;
    double us;
  };
  for (const PublishedSum& of : {PublishedSum{"ddp_resnet_rank0_of_2.json.gz", 72, 3774, 165185.838},
                                 {"rank0_of_16.json.gz", 90, 6875, 390237},
                                 {"ns_resolution_rank0.pt.trace.json.gz", 79, 6095, 472454.441},
                                 {"sampled_rank0_of_128.json.gz", 199, 1204, 607844},
                                 {"sampled_rank1_of_128.json.gz", 188, 1154, 667530},
                                 {"alexnet.json.gz", 18, 98, 66203}}) {
    const std::vector<RankKernels> ranks = measure_kernels(read_run({folder / of.file}));
    ASSERT_THAT(ranks, SizeIs(1)) << of.file;
    Lengths all;
    for (const KernelTime& kernel : ranks[0].kernels) all.add(kernel.time);
    for (const KernelTime& copy : ranks[0].copies) all.add(copy.time);
    EXPECT_EQ(ranks[0].kernels.size() + ranks[0].copies.size(), of.names) << of.file;
    EXPECT_EQ(all.count, of.count) << of.file;
    EXPECT_THAT(1e-3 * static_cast<double>(all.ns), DoubleNear(of.us, 0.01)) << of.file;
  }
}

}  // namespace
}  // namespace ms::tracepp
