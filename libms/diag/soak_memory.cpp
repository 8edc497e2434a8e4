// soak.memory: patterns in a large part of the memory, again and again.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <limits>

#include "base/clock.h"
#include "base/host_memory.h"
#include "base/text.h"
#include "diag/memory_patterns.h"
#include "diag/share.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

constexpr std::int64_t kProbeBytes = 16 << 20;  // of each core
constexpr double kLongestPass_s = 40;           // by what the probe took: a third of the deadline

class Chunk {
 public:
  explicit Chunk(std::int64_t bytes)
      : data_(::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
        bytes_(static_cast<std::size_t>(bytes)) {
    if (data_ == MAP_FAILED) throw Error("diag.memory", Blame::node, "cannot have memory: " + errno_text(errno));
    ::madvise(data_, bytes_, MADV_HUGEPAGE);  // only faster
  }
  ~Chunk() { ::munmap(data_, bytes_); }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;
  std::span<std::uint64_t> words() const { return {static_cast<std::uint64_t*>(data_), bytes_ / 8}; }

 private:
  void* data_;
  std::size_t bytes_;
};

// The bytes of a core in a second of a whole pass, of the slowest core, with all of them at it.
double bytes_per_second(const std::vector<int>& cpus) {
  std::vector<std::future<double>> running;
  for (const int cpu : cpus) {
    running.push_back(std::async(std::launch::async, [cpu] {
      const OnCpus bound({cpu});
      const Chunk chunk(kProbeBytes);
      const double started_s = monotonic_s();
      soak_words(chunk.words(), 0, static_cast<std::uint64_t>(cpu), [](std::span<std::uint64_t>) {});
      return static_cast<double>(kProbeBytes) / (monotonic_s() - started_s);
    }));
  }
  double slowest = std::numeric_limits<double>::max();
  for (auto& one : running) slowest = std::min(slowest, one.get());
  return slowest;
}

health::Result soak_memory(health::Evidence& evidence) {
  const Share share = this_share();
  const std::int64_t free = host_memory(evidence.root()).free_bytes;
  const std::int64_t wanted = evidence.asked().memory_bytes;
  if (wanted > free) {
    return health::broken(fmt::format("--memory asks for {}, and {} are free", format_size(static_cast<double>(wanted)),
                                      format_size(static_cast<double>(free))));
  }
  const double all = static_cast<double>(wanted >= 0 ? wanted : free / 2);
  const auto mine = static_cast<std::int64_t>(all * (wanted >= 0 ? 1 : share.part()));
  const auto threads = static_cast<std::int64_t>(share.cpus.size());
  // A thread on each core has a piece of its own: first touched there, so that it is memory of that core's node.
  std::int64_t each = std::max<std::int64_t>(mine / threads / 4096 * 4096, 4096);
  bool is_less = false;
  if (wanted < 0 && each > kProbeBytes) {
    const auto fits = static_cast<std::int64_t>(bytes_per_second(share.cpus) * kLongestPass_s) / 4096 * 4096;
    is_less = fits < each;
    each = std::clamp<std::int64_t>(fits, kProbeBytes, each);
  }
  std::vector<std::future<MemorySoak>> running;
  for (const int cpu : share.cpus) {
    running.push_back(std::async(std::launch::async, [each, cpu, soak_s = evidence.asked().soak_s] {
      const OnCpus bound({cpu});
      const Chunk chunk(each);
      return soak_words(chunk.words(), soak_s, static_cast<std::uint64_t>(cpu), [](std::span<std::uint64_t>) {});
    }));
  }
  MemorySoak total;
  for (auto& one : running) {
    const MemorySoak got = one.get();
    total.num_wrong += got.num_wrong;
    total.flipped |= got.flipped;
    total.words += got.words;
    total.passes = total.passes == 0 ? got.passes : std::min(total.passes, got.passes);
  }
  const double bytes = static_cast<double>(each * threads);
  const std::string how = fmt::format("{} passes of {} over {} ({}){}", total.passes,
                                      plural(kMemoryPatterns, "pattern"), format_size(bytes), share.str(),
                                      is_less ? ", as much as a pass in time can be; --memory asks for more" : "");
  if (total.num_wrong == 0) return health::passed(how);
  return health::judged(
      {{.severity = Severity::critical,
        .entity = "memory",
        .message = fmt::format("{} of {} words are not what was written, bits {:#018x} differ; {}", total.num_wrong,
                               format_count(static_cast<double>(total.words)), total.flipped, how),
        .measured = static_cast<double>(total.num_wrong),
        .limit = 0,
        .unit = "words"}});
}

}  // namespace

extern constinit const health::Check kSoakMemory = {
    .code = "soak.memory",
    .level = 3,
    .lane = health::Lane::active,
    .summary = "memory that does not keep what is written to it",
    .needs = "free memory",
    .deadline_s = 120,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .soaks = true,
    .explain =
        "A thread on each core takes its part of half of the free memory, or of less where a pass over that would take "
        "longer "
        "than 40 seconds by a first look at 16 MiB, or of what --memory says, and for as long as "
        "--soak says fills all of it with patterns and reads them back: walking ones and zeros, each word's own "
        "place and its inverse, and random words that differ in every pass. At least one pass is whole.\n\nMemory "
        "with ECC corrects one flipped bit of a word and host.mce counts it; what this finds was not corrected. "
        "There is no normal number but zero, so one is critical.",
    .remedy = "Take the node out of service; host.mce and the BMC's log tell which DIMM.",
    .run = soak_memory};

}  // namespace ms::diag
