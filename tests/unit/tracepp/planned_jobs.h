// Made jobs of GPUs with a planned cause, as torch.profiler records them: four ranks, twelve steps, with noise by a
// seed. Each rank loads a batch, launches three layers, reduces gradients bucket by bucket, and steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kineto_job.h"

namespace ms::tracepp {

enum class Planned : std::uint8_t {
  healthy,
  slow_loader,    // of a rank
  slow_rank,      // its kernels take longer
  item,           // all ranks wait for the device in every layer
  pageable,       // all ranks copy the batch from pageable memory
  no_overlap,     // gradients are reduced at the end, in one
  imbalance,      // another rank has more to compute in each step
  collection,     // of garbage, on a rank
  checkpoints,    // rank 0 saves in every second step
  recompilation,  // on a rank
  loader_and_rank,
};

struct PlannedJob {
  Planned planned = Planned::healthy;
  int rank = 1, other = 2;  // at fault; of two
  unsigned seed = 1;

  std::vector<KinetoJob> jobs() const {
    constexpr int kRanks = 4, kSteps = 12, kLayers = 3;
    std::mt19937 random(seed);
    const auto noise = [&](double us) { return us * (0.98 + 0.04 * static_cast<double>(random() % 1000) / 1000); };
    std::vector<KinetoJob> jobs;
    for (int r = 0; r < kRanks; ++r) jobs.emplace_back(r, kRanks);
    std::vector<double> begins(kRanks, 1000);
    int id = 1;
    for (int s = 0; s < kSteps; ++s) {
      struct Rank {
        double host = 0, device = 0, begun = 0;
        std::vector<double> ready, launched;
      };
      std::vector<Rank> ranks(kRanks);
      const int burdened = static_cast<int>(random() % kRanks);
      for (int r = 0; r < kRanks; ++r) {
        KinetoJob& job = jobs[static_cast<std::size_t>(r)];
        Rank& at = ranks[static_cast<std::size_t>(r)];
        at.begun = at.host = at.device = begins[static_cast<std::size_t>(r)];
        const bool is_late = r == rank;
        const auto pause = [&](const std::string& category, const std::string& name, double us) {
          job.host(category, name, at.host, at.host + us);
          at.host += us;
        };
        const bool slow_loader = planned == Planned::slow_loader || planned == Planned::loader_and_rank;
        pause("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
              noise(is_late && slow_loader ? 3000 : 40));
        if (planned == Planned::collection && is_late) pause("python_function", "Python GC", noise(2500));
        if (planned == Planned::recompilation && is_late)
          pause("python_function", "torch/_dynamo/convert_frame.py(1200): __call__", noise(4000));
        if (planned == Planned::pageable) {
          job.call("cudaMemcpyAsync", at.host, at.host + 1510, id)
              .kernel("Memcpy HtoD (Pageable -> Device)", at.host + 10, at.host + 1500, id);
          ++id;
          at.host += 1510;
          at.device = at.host;
        }
        const bool slow = (planned == Planned::slow_rank && is_late) ||
                          (planned == Planned::loader_and_rank && r == other) ||
                          (planned == Planned::imbalance && r == burdened);
        for (int layer = 0; layer < kLayers; ++layer) {
          const double launch = at.host;
          const double kernel = std::max(at.device + 2, launch + 8), length = noise(slow ? 1500 : 1000);
          job.op("aten::mm", launch, launch + 12).launched(launch + 3, kernel, kernel + length, id++);
          at.host += 15;
          at.device = kernel + length;
          if (planned == Planned::item) {
            job.op("aten::item", at.host, at.device + 10)
                .call("cudaStreamSynchronize", at.host + 2, at.device + 8, id++);
            at.host = at.device + 10;
            job.op("aten::add", at.host, at.host + 600);
            at.host += 600;
          }
          at.launched.push_back(at.host);
          at.ready.push_back(std::max(at.device, at.host + 8));
          at.host += 8;
        }
      }
      double end = 0, free = 0;
      for (int b = 0; b < kLayers; ++b) {
        if (planned == Planned::no_overlap && b + 1 < kLayers) continue;
        const auto bucket = static_cast<std::size_t>(b);
        const double transfer = noise(planned == Planned::no_overlap ? 2400 : 300);
        double last = 0;
        for (const Rank& at : ranks) last = std::max({last, at.ready[bucket] + 3, free + 3});
        for (int r = 0; r < kRanks; ++r) {
          Rank& at = ranks[static_cast<std::size_t>(r)];
          jobs[static_cast<std::size_t>(r)].all_reduce(at.launched[bucket], std::max(at.ready[bucket] + 3, free + 3),
                                                       last + transfer, id++, kLayers * s + b);
        }
        end = free = last + transfer;
      }
      for (int r = 0; r < kRanks; ++r) {
        KinetoJob& job = jobs[static_cast<std::size_t>(r)];
        Rank& at = ranks[static_cast<std::size_t>(r)];
        job.launched(at.host, end + 2, end + 202, id++, "adam");
        job.call("cudaDeviceSynchronize", at.host + 8, end + 210, id++);
        at.host = end + 210;
        if (planned == Planned::checkpoints && r == 0 && s % 2 == 0) {
          job.python("torch/serialization.py(900): save", at.host, at.host + 6000);
          at.host += 6000;
        }
        at.host += 5;
        job.step(s + 1, at.begun, at.host);
        begins[static_cast<std::size_t>(r)] = at.host;
      }
    }
    return jobs;
  }
};

}  // namespace ms::tracepp
