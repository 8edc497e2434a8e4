#include "diag/bits.h"

#include <algorithm>
#include <future>
#include <iterator>

#include "base/clock.h"
#include "base/hash.h"
#include "diag/gemm.h"
#include "diag/share.h"
#include "diag/works.h"
#include "health/checks/check.h"
#include "tensor/cpu_device.h"

namespace ms::diag {
namespace {

constexpr std::size_t kMaxKinds = 16;
constexpr std::uint64_t kOtherKinds = 0;

std::vector<UnitBits> on_core(int cpu, double seconds, const std::function<double()>& left_s, const HashFunction& hash,
                              tensor::MatmulCache& matmuls, tensor::Device& device, std::int64_t side) {
  const OnCpus bound({cpu});
  const std::string core = fmt::format("core {}", cpu);
  const Gemm gemms[] = {{device, tensor::DType::f32, side}, {device, tensor::DType::bf16, side}};
  std::vector<UnitBits> bits{{core, "fp32"}, {core, "bf16"}};
  for (Pace pace(bits_work(seconds)); pace.more();) {
    const double begun_s = monotonic_s();
    for (std::size_t i = 0; i < bits.size(); ++i) {
      matmuls.run(gemms[i].op());
      bits[i].count(hash(core, gemms[i].result()));
    }
    pace.ended(monotonic_s() - begun_s, left_s());
  }
  return bits;
}

}  // namespace

void UnitBits::count(std::uint64_t hash) {
  ++gemms[gemms.size() < kMaxKinds || gemms.contains(hash) ? hash : kOtherKinds];
}

std::size_t num_gemms(const std::vector<UnitBits>& units) {
  std::size_t total = 0;
  for (const UnitBits& unit : units) {
    for (const auto& [hash, count] : unit.gemms) total += count;
  }
  return total;
}

HashFunction plain_hash() {
  return [](const std::string&, std::span<const std::byte> result) { return xxh64(result); };
}

std::vector<UnitBits> compute_bits(const std::vector<int>& cpus, double seconds, const HashFunction& hash,
                                   std::int64_t side, const std::function<double()>& left_s) {
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool({.workers = 1, .threads_per_op = 1});
  std::vector<std::unique_ptr<tensor::CpuDevice>> devices;
  std::vector<std::future<std::vector<UnitBits>>> threads;
  for (const int cpu : cpus) {
    devices.push_back(std::make_unique<tensor::CpuDevice>(pool, matmuls));
    threads.push_back(std::async(std::launch::async, [&, cpu, device = devices.back().get()] {
      return on_core(cpu, seconds, left_s, hash, matmuls, *device, side);
    }));
  }
  std::vector<UnitBits> all;
  for (auto& thread : threads) {
    const std::vector<UnitBits> bits = thread.get();
    all.insert(all.end(), bits.begin(), bits.end());
  }
  return all;
}

std::vector<Finding> judge_bits(const std::vector<UnitBits>& units, Severity severity) {
  std::map<std::string, std::map<std::uint64_t, std::size_t>> totals;
  for (const UnitBits& unit : units) {
    for (const auto& [hash, count] : unit.gemms) totals[unit.type][hash] += count;
  }
  std::vector<Finding> findings;
  for (const auto& [type, total] : totals) {
    const auto right =
        std::max_element(total.begin(), total.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<UnitBits> of_type;
    std::copy_if(units.begin(), units.end(), std::back_inserter(of_type),
                 [&, of = type](const UnitBits& unit) { return unit.type == of; });
    const auto add = [&](const std::string& entity, double num_wrong, const std::string& message) {
      findings.push_back(about(entity, severity, message, num_wrong, 0, "GEMMs"));
    };
    if (2 * right->second <= num_gemms(of_type)) {
      std::vector<std::string> names;
      for (const UnitBits& unit : of_type) names.push_back(unit.unit);
      add(fmt::format("{}", fmt::join(names, ", ")), static_cast<double>(num_gemms(of_type) - right->second),
          fmt::format("{} GEMMs give {} different results, and none has a majority: it is not known who is wrong", type,
                      total.size()));
      continue;
    }
    for (const UnitBits& unit : of_type) {
      const auto agreed = unit.gemms.find(right->first);
      const std::size_t all = num_gemms({unit});
      const std::size_t num_wrong = all - (agreed == unit.gemms.end() ? 0 : agreed->second);
      if (num_wrong == 0) continue;
      add(unit.unit, static_cast<double>(num_wrong),
          fmt::format("{} of {} {} GEMMs differ from what most of all computed", num_wrong, all, type));
    }
  }
  return findings;
}

void require_enough(const std::vector<UnitBits>& units) {
  for (const UnitBits& unit : units) {
    if (num_gemms({unit}) >= kLeastBitsRounds) continue;
    throw health::NotMeasured(fmt::format("{} computed {} {} GEMMs in time, and {} are too few to compare", unit.unit,
                                          num_gemms({unit}), unit.type, num_gemms({unit})));
  }
}

}  // namespace ms::diag
