#include "diag/bits.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "base/hash.h"
#include "diag/gemm.h"
#include "diag/share.h"
#include "tensor/cpu_device.h"

namespace ms::diag {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastRounds = 8;  // however slow: what is right is a matter of majority
// A core that never gives the same twice must not fill the memory.
constexpr std::size_t kMaxKinds = 16;
constexpr std::uint64_t kOtherKinds = 0;

std::vector<CoreBits> on_core(int cpu, double seconds, const HashFunction& hash, tensor::MatmulCache& matmuls,
                              tensor::Device& device) {
  const OnCpus bound({cpu});
  const Gemm gemms[] = {{device, tensor::DType::f32, kBitsSide}, {device, tensor::DType::bf16, kBitsSide}};
  std::vector<CoreBits> bits{{cpu, "fp32", {}}, {cpu, "bf16", {}}};
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (int round = 0; round < kLeastRounds || Clock::now() < end; ++round) {
    for (std::size_t i = 0; i < bits.size(); ++i) {
      matmuls.run(gemms[i].op());
      const std::uint64_t got = hash(cpu, gemms[i].result());
      std::map<std::uint64_t, std::size_t>& counts = bits[i].gemms;
      ++counts[counts.size() < kMaxKinds || counts.contains(got) ? got : kOtherKinds];
    }
  }
  return bits;
}

}  // namespace

HashFunction plain_hash() {
  return [](int, std::span<const std::byte> result) { return xxh64(result); };
}

std::vector<CoreBits> compute_bits(const std::vector<int>& cpus, double seconds, const HashFunction& hash) {
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool({.workers = 1, .threads_per_op = 1});
  std::vector<std::unique_ptr<tensor::CpuDevice>> devices;
  std::vector<std::future<std::vector<CoreBits>>> threads;
  for (const int cpu : cpus) {
    devices.push_back(std::make_unique<tensor::CpuDevice>(pool, matmuls));
    threads.push_back(std::async(std::launch::async, [&, cpu, device = devices.back().get()] {
      return on_core(cpu, seconds, hash, matmuls, *device);
    }));
  }
  std::vector<CoreBits> all;
  for (auto& thread : threads) {
    const std::vector<CoreBits> bits = thread.get();
    all.insert(all.end(), bits.begin(), bits.end());
  }
  return all;
}

std::vector<Finding> judge_bits(const std::vector<CoreBits>& cores) {
  std::map<std::string, std::map<std::uint64_t, std::size_t>> totals;
  for (const CoreBits& core : cores) {
    for (const auto& [hash, count] : core.gemms) totals[core.type][hash] += count;
  }
  std::vector<Finding> findings;
  for (const CoreBits& core : cores) {
    const std::map<std::uint64_t, std::size_t>& total = totals[core.type];
    const auto right =
        std::max_element(total.begin(), total.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::size_t num_gemms = 0, num_wrong = 0;
    for (const auto& [hash, count] : core.gemms) {
      num_gemms += count;
      if (hash != right->first) num_wrong += count;
    }
    if (num_wrong == 0) continue;
    findings.push_back({.severity = Severity::critical,
                        .entity = fmt::format("core {}", core.cpu),
                        .message = fmt::format("{} of {} {} GEMMs differ from what most cores computed", num_wrong,
                                               num_gemms, core.type),
                        .measured = static_cast<double>(num_wrong),
                        .limit = 0,
                        .unit = "GEMMs"});
  }
  return findings;
}

}  // namespace ms::diag
