// perf.memory: STREAM's triad. A thread on each core owns a piece of the arrays: it touches it first, so that the
// memory is its own node's, and passes over it in step with the others. All elements are verified afterwards.
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <future>

#include "base/handle.h"
#include "base/host_memory.h"
#include "base/text.h"
#include "diag/memory_size.h"
#include "diag/rates.h"

namespace ms::diag {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMemory_s = 1.5;
constexpr int kLeastPasses = 4;  // the first one is not counted
constexpr double kScale = 3;
constexpr int kLeastCoresOfSocket = 48;  // a virtual machine with a few cores of a large socket has not all its memory
constexpr double kBytesAnElement = 24;   // as STREAM counts: two reads and a write

class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      throw Error(
          "diag.memory", Blame::node,
          fmt::format("cannot have {} of memory: {}", format_size(static_cast<double>(bytes)), errno_text(errno)));
    }
    ::madvise(data_, bytes, MADV_HUGEPAGE);  // only faster
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  double* data() const { return static_cast<double*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

struct Measured {
  double best_s = 0;
  std::size_t num_wrong = 0;
};

Measured measure(const std::vector<int>& cpus, std::size_t num_elements) {
  const Pages a(num_elements * sizeof(double)), b(num_elements * sizeof(double)), c(num_elements * sizeof(double));
  std::vector<Clock::time_point> times;
  bool more = true;
  // Called when all threads have met: after the first touch, then after every pass.
  const auto met = [&]() noexcept {
    times.push_back(Clock::now());
    const double elapsed_s = std::chrono::duration<double>(times.back() - times.front()).count();
    more = static_cast<int>(times.size()) <= kLeastPasses || elapsed_s < kMemory_s;
  };
  times.reserve(1 << 16);
  std::barrier barrier(static_cast<std::ptrdiff_t>(cpus.size()), met);
  const auto work = [&](std::size_t thread) -> std::size_t {
    const OnCpus bound({cpus[thread]});
    const std::size_t begin = thread * num_elements / cpus.size(), end = (thread + 1) * num_elements / cpus.size();
    double *const x = a.data(), *const y = b.data(), *const z = c.data();
    for (std::size_t i = begin; i < end; ++i) {
      x[i] = 0;
      y[i] = static_cast<double>(i % 1024);
      z[i] = 1;
    }
    barrier.arrive_and_wait();
    while (more) {
      for (std::size_t i = begin; i < end; ++i) x[i] = y[i] + kScale * z[i];
      barrier.arrive_and_wait();
    }
    std::size_t num_wrong = 0;
    for (std::size_t i = begin; i < end; ++i) num_wrong += x[i] == static_cast<double>(i % 1024) + kScale ? 0 : 1;
    return num_wrong;
  };
  std::vector<std::future<std::size_t>> threads;
  for (std::size_t i = 0; i < cpus.size(); ++i) threads.push_back(std::async(std::launch::async, work, i));
  Measured measured;
  for (auto& thread : threads) measured.num_wrong += thread.get();
  measured.best_s = std::chrono::duration<double>(times[2] - times[1]).count();
  for (std::size_t i = 2; i + 1 < times.size(); ++i) {
    measured.best_s = std::min(measured.best_s, std::chrono::duration<double>(times[i + 1] - times[i]).count());
  }
  return measured;
}

health::Result measure_memory(health::Evidence& evidence) {
  const Share share = this_share();
  const std::int64_t cache_bytes = last_level_cache_bytes(evidence.root());
  const std::int64_t free_bytes = host_memory(evidence.root()).free_bytes;
  const std::optional<std::int64_t> array_bytes = triad_array_bytes(cache_bytes, free_bytes, share.part());
  if (!array_bytes) {
    return health::skipped(fmt::format("{} of memory are free, too little beside {} of cache",
                                       format_size(static_cast<double>(free_bytes)),
                                       format_size(static_cast<double>(cache_bytes))));
  }
  const auto num_elements = static_cast<std::size_t>(*array_bytes) / sizeof(double);
  const Measured measured = measure(share.cpus, num_elements);
  if (measured.num_wrong > 0) {
    return health::judged(
        {{.entity = "memory",
          .message = fmt::format("{} of {} sums are not what was computed", measured.num_wrong, num_elements),
          .measured = static_cast<double>(measured.num_wrong),
          .limit = 0,
          .unit = "words",
          .remedy = "Take the node out of service and test its memory."}});
  }
  const double gbps = kBytesAnElement * static_cast<double>(num_elements) / measured.best_s / 1e9;
  const health::ActiveConfig& expect = evidence.policy().active;
  KnownLimit known = known_limit(cpu_model(evidence.root()), "memory_gbps");
  const int sockets = num_sockets(evidence.root());
  known.least = share.node_cpus < kLeastCoresOfSocket * sockets ? -1 : known.least * sockets;
  return judge_rates({{"triad", gbps, expect.memory_gbps, "GB/s", known}}, expect.min_fraction, share, Scope::cores,
                     fmt::format("{}, arrays of {}", share.str(), format_size(static_cast<double>(*array_bytes))));
}

}  // namespace

extern constinit const health::Check kPerfMemory = {
    .code = "perf.memory",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "memory bandwidth below what is expected",
    .needs = "free memory of twelve times the last cache",
    .deadline_s = 15,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .explain =
        "The triad of STREAM, a = b + s * c, with a thread on each core and arrays that are four times as large as "
        "all last-level caches together, or less where memory is short. The best of many passes counts, at 24 bytes "
        "an element, and afterwards every element is verified.\n\nA missing or slow memory module, a channel that "
        "was not trained, or a wrong NUMA setting in the BIOS shows here long before anything fails. The number is "
        "judged against active.memory_gbps of ms-diag.toml(5), without that key against what is known of the "
        "processor's model, and only where the node's cores are all ours. Several processes on a node measure at the "
        "same time and share what is "
        "expected.",
    .remedy = kLooksSlow,
    .run = measure_memory};

}  // namespace ms::diag
