// soak.hbm: patterns in the memory of every GPU, by its own copies.
#include <algorithm>
#include <chrono>
#include <mutex>

#include "base/hash.h"
#include "base/text.h"
#include "diag/gpu.h"
#include "diag/memory_patterns.h"
#include "diag/rates.h"

namespace ms::diag {
namespace {

using Clock = std::chrono::steady_clock;
using tensor::Tensor;

constexpr std::int64_t kHbmBlock = std::int64_t{16} << 20;
constexpr std::int64_t kMostHbm = std::int64_t{256} << 30;

struct HbmSoak {
  std::int64_t bytes = 0, passes = 0, read_bytes = 0;
  std::int64_t num_wrong = 0;  // blocks
};

// Sends a block of random words to every block of the memory, then reads each back: what is wrong differs in its hash.
// Ends in the middle of a pass where the host, which computes the hashes, would not be done with it in time.
HbmSoak soak(TestGpu& gpu, double seconds, const health::Evidence& evidence) {
  tensor::Device& device = *gpu.device;
  // Nearly all that is free; test_bytes() gives an eighth.
  const std::int64_t blocks = std::max<std::int64_t>(1, 7 * test_bytes(device, kMostHbm / 8) / kHbmBlock);
  HbmSoak soak{.bytes = blocks * kHbmBlock};
  const auto memory = device.allocate(static_cast<std::size_t>(soak.bytes), "patterns");
  const auto sent = device.allocate_host(kHbmBlock, "patterns"), back = device.allocate_host(kHbmBlock, "patterns");
  const auto stream = device.make_stream("patterns", tensor::StreamKind::compute);
  const auto tensor_at = [](std::byte* data) {
    return Tensor{.data = data, .rows = 1, .cols = kHbmBlock / 4, .ld = kHbmBlock / 4, .dtype = tensor::DType::i32};
  };
  const Tensor out = tensor_at(sent->data()), in = tensor_at(back->data());
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  do {
    const std::span<std::uint64_t> words(out.as<std::uint64_t>(), kHbmBlock / 8);
    fill_pattern(words, static_cast<std::size_t>(soak.passes) % kMemoryPatterns,
                 static_cast<std::uint64_t>(soak.passes));
    const std::span<const std::byte> wanted(out.data, kHbmBlock), got(in.data, kHbmBlock);
    const std::uint64_t hash = xxh64(wanted);
    for (std::int64_t i = 0; i < blocks; ++i) {
      stream->submit(tensor::Copy{.dst = tensor_at(memory->data() + i * kHbmBlock), .src = out});
    }
    stream->synchronize();
    for (std::int64_t i = 0; i < blocks; ++i) {
      if (evidence.left_s() <= 0) return soak;
      stream->submit(tensor::Copy{.dst = in, .src = tensor_at(memory->data() + i * kHbmBlock)});
      stream->synchronize();
      if (xxh64(got) != hash) ++soak.num_wrong;
      soak.read_bytes += kHbmBlock;
    }
    ++soak.passes;
  } while (Clock::now() < end);
  return soak;
}

health::Result soak_hbm(health::Evidence& evidence) {
  GpuSet set = find_gpus(evidence, this_share());
  if (set.nothing) return *set.nothing;
  std::mutex mutex;
  std::vector<Finding> wrong;
  std::vector<std::string> done;
  std::vector<Finding> failed = on_each_gpu(set.gpus, [&](TestGpu& gpu) {
    const HbmSoak got = soak(gpu, evidence.asked().soak_s, evidence);
    const std::lock_guard lock(mutex);
    done.push_back(
        fmt::format("{} {} passes over {}", gpu.entity, got.passes, format_size(static_cast<double>(got.bytes))) +
        (got.passes > 0
             ? ""
             : fmt::format(", of which {} were read in time", format_size(static_cast<double>(got.read_bytes)))));
    if (got.num_wrong == 0) return;
    wrong.push_back(about(gpu.entity, kUnseen,
                          fmt::format("{} blocks of 16 MiB are not what was written", got.num_wrong), got.num_wrong, 0,
                          "blocks"));
  });
  health::Result result = with_findings(health::judged(std::move(wrong)), std::move(failed));
  std::sort(done.begin(), done.end());
  result.note = fmt::format("{}", fmt::join(done, ", "));
  return result;
}

}  // namespace

extern constinit const health::Check kSoakHbm = {
    .code = "soak.hbm",
    .level = 3,
    .lane = health::Lane::active,
    .summary = "GPU memory that does not retain its contents",
    .needs = kCuda,
    .deadline_s = 120,
    .blame = Blame::gpu,
    .cost = health::Cost::seconds,
    .takes = health::kGpus | health::kBus,
    .soaks = true,
    .proved = kProvedEmulated,
    .explain =
        "Fills seven eighths of the free memory of all GPUs with the patterns of soak.memory, one per pass, and "
        "compares a hash of every block, for the time given with --soak. At least one pass is complete, unless the "
        "host is too slow, which the note reports.\n\n"
        "gpu.ecc reports errors that ECC corrected. Errors found here were not corrected, or occurred on the way. Not "
        "yet seen on real hardware, so it only warns.",
    .remedy = "Reset the GPU, look at gpu.ecc and gpu.remap, and have it replaced if the fault recurs.",
    .run = soak_hbm};

}  // namespace ms::diag
