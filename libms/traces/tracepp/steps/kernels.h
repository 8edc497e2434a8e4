// The kernels and copies of the device of a rank: how long, how often, launched how late, and by which operator; what
// they compute where shapes are recorded, and the MFU of the steps. For traces of torch.profiler. Pure.
//
// Counted are kernels launched until the last step ends. Those that were launched before the trace began, and so run
// first on their stream, are not. FLOPs are those of operators (read/op_shapes.h) that launched
// a kernel; without a device, of all. An operator inside another that has a formula counts, not the outer one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tracepp/read/kernel_names.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Lengths of events. Times of many are added up.
struct Lengths {
  std::uint64_t count = 0;
  std::int64_t ns = 0, least_ns = 0, most_ns = 0;
  void add(std::int64_t one_ns);
  void add(const Lengths& other);
  double mean_ns() const { return count == 0 ? 0 : static_cast<double>(ns) / static_cast<double>(count); }
};

// FLOPs and bytes of some kernels, and the time of those whose are known.
struct Achieved {
  double flops = 0, bytes = 0;
  std::int64_t flops_ns = 0, bytes_ns = 0;
  void add(const Achieved& other);
  double tflops() const { return flops_ns == 0 ? 0 : 1e-3 * flops / static_cast<double>(flops_ns); }
  double gb_s() const { return bytes_ns == 0 ? 0 : bytes / static_cast<double>(bytes_ns); }
};

// Kernels of one name, or copies and settings of memory: "Memcpy HtoD (Pageable -> Device)".
struct KernelTime {
  std::uint32_t name = 0;  // string
  Kind kind = Kind::other_compute;
  TensorCores cores = TensorCores::unknown;
  Lengths time;
  Achieved achieved;
  void add(const KernelTime& other) {
    time.add(other.time);
    achieved.add(other.achieved);
  }
};

// An operator that no other one encloses.
struct OpTime {
  std::uint32_t name = 0;  // string
  Lengths host;
  std::uint64_t kernels = 0;
  std::int64_t device_ns = 0;  // of the kernels and copies launched inside
  double flops = 0;
};

struct LaunchTimes {
  std::uint64_t count = 0, late = 0;                    // late: more than 100 us after the launch returned
  std::int64_t calls_ns = 0;                            // of the host, in the calls
  std::int64_t median_ns = 0, p90_ns = 0, most_ns = 0;  // from the end of the call to the kernel's begin, at least 0
};

// The kernels and copies of a stream that are launched and have not begun.
struct QueueLength {
  std::uint8_t lane = 0;
  std::uint32_t most = 0;
  double mean = 0;  // over the time from the first launch to the last begin
};

// Kernels under 5 us, and how long the device was idle just before one of them.
inline constexpr std::int64_t kShortKernel_ns = 5000;
struct ShortKernels {
  std::uint64_t count = 0;
  std::int64_t ns = 0, idle_before_ns = 0;
};

struct StepFlops {
  std::int32_t step = kNoStep;
  std::int64_t length_ns = 0;
  double flops = 0;
};

struct RankKernels {
  bool has_device = false;
  std::vector<KernelTime> kernels;  // the longest first
  std::vector<KernelTime> copies;
  std::vector<OpTime> ops;  // by time of the device; without one, of the host
  LaunchTimes launches;
  std::vector<QueueLength> queues;
  ShortKernels short_ones;
  // MFU. Kernels that may hold GEMMs: by their names, or because their operator has a formula.
  std::vector<StepFlops> steps;
  std::int64_t overhang_ns = 0;                   // from the end of the last step to the end of its last kernel
  std::map<std::uint32_t, double> flops_by_type;  // strings: of operands, in steps
  double recomputed_flops = 0;                    // of activations, left out of the steps
  bool may_recompute = false;                     // activations are computed again, and not all of it could be left out
  std::int64_t gemm_ns = 0, shaped_ns = 0;        // time of such kernels, and of those whose operator has shapes

  double shaped_share() const {
    return gemm_ns == 0 ? 0 : static_cast<double>(shaped_ns) / static_cast<double>(gemm_ns);
  }
};

// Returns one for every rank; none if the trace is not of torch.profiler.
std::vector<RankKernels> measure_kernels(const RunTrace& trace);

// MFU is a lower bound if the shapes cover less of the time of kernels that may hold GEMMs, and withheld if hardly any.
inline constexpr double kMostlyShaped = 0.95, kLeastShaped = 0.2;
// Model FLOPs utilisation of a rank's steps.
struct Mfu {
  double mfu = 0;                 // 0: withheld, `why` says why
  double peak = 0, fp8_peak = 0;  // FLOP/s of dense GEMMs with 16-bit, and with 8-bit operands
  std::string why;
  bool is_lower_bound = false;
};
// The peak is RunTrace::peak_flops, with operands of any type, or else known by the device's name.
Mfu mfu_of(const RunTrace& trace, std::size_t rank, const RankKernels& kernels);

}  // namespace ms::tracepp
