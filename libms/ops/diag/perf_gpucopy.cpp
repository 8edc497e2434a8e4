// perf.gpucopy: copies between the host and every GPU, both ways, and from every GPU to every other one.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "base/text.h"
#include "diag/gemm.h"
#include "diag/gpu.h"
#include "diag/rates.h"
#include "tensor/cuda_plugin.h"

namespace ms::diag {
namespace {

using tensor::Tensor;

constexpr double kCopy_s = 0.2;  // of each copy
constexpr std::int64_t kMostCopied = std::int64_t{256} << 20;

// The end of copies on one GPU.
struct End {
  std::unique_ptr<tensor::Memory> memory;
  std::unique_ptr<tensor::Stream> stream;
  Tensor x;
};

Tensor words(tensor::Memory& memory, std::int64_t bytes) {
  return {.data = memory.data(), .rows = 1, .cols = bytes / 4, .ld = bytes / 4, .dtype = tensor::DType::i32};
}

void fill(const Tensor& x, std::uint32_t seed) {
  for (std::int64_t i = 0; i < x.cols; ++i)
    x.as<std::uint32_t>()[i] = seed + static_cast<std::uint32_t>(i) * 2654435761U;
}

class Copies {
 public:
  Copies(std::vector<TestGpu>& gpus, const health::Evidence& evidence)
      : gpus_(gpus), evidence_(evidence), expect_(evidence.policy().active) {}

  // One GPU after the other: several would share the bus.
  void run() {
    for (TestGpu& gpu : gpus_) {
      if (gpu.device != nullptr) host(gpu);
    }
    double longest_s = 0;
    for (TestGpu& from : gpus_) {
      for (TestGpu& to : gpus_) {
        if (&from == &to || from.device == nullptr || to.device == nullptr) continue;
        const double begun_s = monotonic_s();
        if (2 * longest_s >
            evidence_.left_s()) {  // the host fills and compares what is copied: a slow one is no GPU that hangs
          ++not_measured;
          continue;
        }
        peer(from, to);
        longest_s = std::max(longest_s, monotonic_s() - begun_s);
      }
    }
  }

  std::vector<Rate> rates;
  std::vector<Finding> wrong;
  std::size_t staged = 0;        // pairs whose copies go through the host's memory
  std::size_t not_measured = 0;  // pairs for which no time was left

 private:
  double gbps(tensor::Stream& stream, const Tensor& to, const Tensor& from) {
    const double seconds = seconds_of(stream, tensor::Copy{.dst = to, .src = from}, kCopy_s);
    return static_cast<double>(to.size_bytes()) / seconds / 1e9;
  }
  void check(const std::string& entity, const Tensor& got, const Tensor& sent) {
    if (std::memcmp(got.data, sent.data, static_cast<std::size_t>(got.size_bytes())) == 0) return;
    wrong.push_back(about(entity, kUnseen, "what was copied is not what arrived"));
  }

  void host(TestGpu& gpu) {
    const std::int64_t bytes = test_bytes(*gpu.device, kMostCopied);
    End& end = ends_.emplace_back();
    end.memory = gpu.device->allocate(static_cast<std::size_t>(bytes), "copies");
    end.stream = gpu.device->make_stream("copies", tensor::StreamKind::compute);
    end.x = words(*end.memory, bytes);
    const auto sent = gpu.device->allocate_host(static_cast<std::size_t>(bytes), "copies");
    const auto back = gpu.device->allocate_host(static_cast<std::size_t>(bytes), "copies");
    const Tensor out = words(*sent, bytes), in = words(*back, bytes);
    fill(out, static_cast<std::uint32_t>(gpu.number) + 1);
    const double h2d = gbps(*end.stream, end.x, out), d2h = gbps(*end.stream, in, end.x);
    check(gpu.entity, in, out);
    rates.push_back({gpu.entity + " h2d", h2d, expect_.gpu_h2d_gbps, "GB/s", known_limit(gpu.model, "gpu_h2d_gbps")});
    rates.push_back({gpu.entity + " d2h", d2h, expect_.gpu_d2h_gbps, "GB/s", known_limit(gpu.model, "gpu_d2h_gbps")});
    numbers_.push_back(gpu.number);
  }

  void peer(TestGpu& from, TestGpu& to) {
    End &source = end_of(from), &target = end_of(to);
    const std::int64_t bytes = std::min(source.x.size_bytes(), target.x.size_bytes());
    const auto sent = from.device->allocate_host(static_cast<std::size_t>(bytes), "copies");
    const auto back = to.device->allocate_host(static_cast<std::size_t>(bytes), "copies");
    const Tensor out = words(*sent, bytes), in = words(*back, bytes);
    Tensor a = source.x, b = target.x;
    a.cols = a.ld = b.cols = b.ld = bytes / 4;
    fill(out, static_cast<std::uint32_t>(from.number * 256 + to.number));
    source.stream->submit(tensor::Copy{.dst = a, .src = out});
    source.stream->synchronize();
    const bool direct = tensor::enable_cuda_peer(from.number, to.number);
    staged += direct ? 0 : 1;
    const std::string entity = fmt::format("{} to {}", from.entity, to.entity);
    // The limit of a model is that of direct copies.
    rates.push_back({entity, gbps(*source.stream, b, a), expect_.gpu_peer_gbps, "GB/s",
                     direct ? known_limit(from.model, "gpu_peer_gbps") : KnownLimit{}});
    target.stream->submit(tensor::Copy{.dst = in, .src = b});
    target.stream->synchronize();
    check(entity, in, out);
  }

  End& end_of(const TestGpu& gpu) {
    const auto at = std::find(numbers_.begin(), numbers_.end(), gpu.number) - numbers_.begin();
    return ends_.at(static_cast<std::size_t>(at));
  }

  std::vector<TestGpu>& gpus_;
  const health::Evidence& evidence_;
  const health::ActiveConfig& expect_;
  std::vector<End> ends_;
  std::vector<int> numbers_;  // of the GPUs of ends_
};

health::Result measure_gpucopy(health::Evidence& evidence) {
  const Share share = this_share();
  GpuSet set = find_gpus(evidence, share);
  if (set.nothing) return *set.nothing;
  std::vector<Finding> failed = on_each_gpu(set.gpus, [](TestGpu&) {});
  const health::ActiveConfig& expect = evidence.policy().active;
  Copies copies(set.gpus, evidence);
  copies.run();
  failed.insert(failed.end(), copies.wrong.begin(), copies.wrong.end());
  std::string how = "pinned memory";
  if (copies.staged > 0) how += fmt::format(", {} through the host", plural(copies.staged, "pair"));
  if (copies.not_measured > 0) how += fmt::format(", no time for {}", plural(copies.not_measured, "more pair"));
  return with_findings(judge_rates(copies.rates, expect.min_fraction, share, Scope::whole, how, kUnseen),
                       std::move(failed));
}

}  // namespace

extern constinit const health::Check kPerfGpucopy = {
    .code = "perf.gpucopy",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "copies between the host and GPUs, or between GPUs, slower than expected, or wrong",
    .needs = kCuda,
    .deadline_s = 60,
    .blame = Blame::gpu,
    .cost = health::Cost::seconds,
    .takes = health::kGpus | health::kBus,
    .proved = kProvedEmulated,
    .explain =
        "Copies up to 256 MiB between pinned host memory and every GPU in both directions, one GPU after the other, "
        "then between every pair of GPUs, peer to peer if the driver allows it, for a fifth of a second each. Every "
        "received byte is compared.\n\n"
        "A PCIe link with lost lanes or speed, a slot behind a slow bridge, or an NVLink that is down appears as a "
        "slow row of the matrix. The limits are active.gpu_h2d_gbps, active.gpu_d2h_gbps and active.gpu_peer_gbps, or "
        "built-in values of the model. Not yet seen on real hardware, so it only warns.",
    .remedy =
        "Compare nvidia-smi topo -m, and the link's state in gpu.pcie and gpu.nvlink, with a node that is not slow.",
    .run = measure_gpucopy};

}  // namespace ms::diag
