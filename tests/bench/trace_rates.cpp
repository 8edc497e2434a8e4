// How fast traces are read, and what they take: events a second of one core, bytes of memory an event. trace_rates.sh
// runs it, and a peer in Python, on the same file.
// usage: trace_rates make FILE EVENTS [RANK]   a trace as PyTorch's profiler writes it
//        trace_rates read PATH...              events, CPU seconds, and the most memory that was in use, in bytes
#include <fmt/format.h>
#include <sys/resource.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "tracepp/read/read.h"

namespace {

std::string kineto_header(int rank) {
  return fmt::format(R"({{
  "schemaVersion": 1,
  "deviceProperties": [{{"id": 0, "name": "GPU", "totalGlobalMem": 84942979072}}],
  "distributedInfo": {{"backend": "nccl", "rank": {}, "world_size": 8, "pg_count": 1, "pg_config": [{{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 8, "ranks": [0, 1, 2, 3, 4, 5, 6, 7]}}], "nccl_version": "2.21.5"}},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1727971194000000000,
  "traceEvents": [
)",
                     rank);
}

// Of ten events: five operators, two launches, two kernels (one in fifty of them NCCL's), one arrow between them.
void make(const std::string& path, int events, int rank) {
  static constexpr std::array<const char*, 4> kOps{"aten::mm", "aten::add_", "aten::linear", "aten::native_layer_norm"};
  static constexpr std::array<const char*, 3> kKernels{
      "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, "
      "3> "
      ">(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)",
      "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
      "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >"};
  std::mt19937 random(1);
  std::ofstream file(path, std::ios::binary);
  file << kineto_header(rank);
  double time_us = 1000;
  std::string text;
  for (int i = 0; i < events; ++i) {
    time_us += 1e-3 * static_cast<double>(random() % 20'000);
    const double duration_us = 1e-3 * static_cast<double>(random() % 10'000);
    const auto begin = [&](const char* category, const char* name, int pid, int tid) {
      text += fmt::format(
          "  {{\n    \"ph\": \"X\", \"cat\": \"{}\", \"name\": \"{}\", \"pid\": {}, \"tid\": {},\n    \"ts\": {:.3f}, "
          "\"dur\": "
          "{:.3f},\n    \"args\": {{\n      \"External id\": {}",
          category, name, pid, tid, time_us, duration_us, i);
    };
    const int turn = i % 10;
    if (turn < 5) {
      begin("cpu_op", kOps[static_cast<std::size_t>(i) % 4], 4711, 4711);
      text += fmt::format(",\"Record function id\": 0, \"Ev Idx\": {}\n    }}\n  }}", i);
    } else if (turn < 7) {
      begin("cuda_runtime", "cudaLaunchKernel", 4711, 4711);
      text += fmt::format(",\"cbid\": 211, \"correlation\": {}\n    }}\n  }}", i);
    } else if (turn == 9) {
      text += fmt::format(
          "  {{\n    \"ph\": \"s\", \"id\": {}, \"pid\": 4711, \"tid\": 4711, \"ts\": {:.3f},\n    \"cat\": \"ac2g\", "
          "\"name\": "
          "\"ac2g\"\n  }}",
          i, time_us);
    } else if (i % 500 == 7) {
      begin("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 20);
      text += fmt::format(
          ",\"device\": 0, \"stream\": 20, \"correlation\": {}, \"Collective name\": \"allreduce\", \"In msg nelems\": "
          "1048576, \"Out msg nelems\": 1048576, \"Group size\": 8, \"dtype\": \"BFloat16\", \"Process Group Name\": "
          "\"0\", \"Process Group Description\": \"default_pg\", \"Process Group Ranks\": \"[0, 1, 2, 3, 4, 5, 6, "
          "7]\", "
          "\"Seq\": {}\n    }}\n  }}",
          i, i / 500);
    } else {
      begin("kernel", kKernels[static_cast<std::size_t>(i) % 3], 0, 7);
      text += fmt::format(
          ",\"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": {}, \"registers per thread\": 32, \"shared "
          "memory\": 0, \"blocks per SM\": 2.4, \"warps per SM\": 9.6, \"grid\": [264, 1, 1], \"block\": [128, 1, 1], "
          "\"est. achieved occupancy %\": 15\n    }}\n  }}",
          i);
    }
    text += i + 1 < events ? ",\n" : "\n";
    if (text.size() > 1 << 20) {
      file << text;
      text.clear();
    }
  }
  file << text << "  ],\n  \"traceName\": \"trace.json\"\n}\n";
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::int64_t peak_bytes() {
  ::rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

void read(const std::vector<std::string>& paths) {
  const std::int64_t before_bytes = peak_bytes();
  const double begin_s = cpu_seconds();
  const ms::tracepp::RunTrace trace = ms::tracepp::read_run(paths, {.threads = 1});
  const double seconds = cpu_seconds() - begin_s;
  // Arrows are read, and seen to be of no use.
  std::uint64_t events = trace.event_count();
  const auto skipped = trace.problems.find("instants, counters and flow arrows that were skipped");
  if (skipped != trace.problems.end()) events += skipped->second;
  fmt::print("{} {:.4f} {}\n", events, seconds, peak_bytes() - before_bytes);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.size() >= 3 && args[0] == "make") {
      make(args[1], std::atoi(args[2].c_str()), args.size() > 3 ? std::atoi(args[3].c_str()) : 0);
      return 0;
    }
    if (args.size() >= 2 && args[0] == "read") {
      read({args.begin() + 1, args.end()});
      return 0;
    }
  } catch (const ms::Error& error) {
    fmt::print(stderr, "trace_rates: {}\n", error.message());
    return 1;
  }
  fmt::print(stderr, "usage: trace_rates make FILE EVENTS [RANK] | trace_rates read PATH...\n");
  return 2;
}
