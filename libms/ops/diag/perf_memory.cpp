// perf.memory: STREAM's triad. A thread on each core owns a piece of the arrays: it touches it first, so that the
// memory is its own node's, and passes over it in step with the others. All elements are verified afterwards.
#include <atomic>

#include "base/host_memory.h"
#include "base/text.h"
#include "diag/in_step.h"
#include "diag/memory_size.h"
#include "diag/pages.h"
#include "diag/rates.h"

namespace ms::diag {
namespace {

constexpr double kScale = 3;
constexpr double kBytesAnElement = 24;  // as STREAM counts: two reads and a write

// A round touches what it is larger than the one before, and passes over all of it. Returns the number of wrong sums.
std::size_t measure(const std::vector<int>& cpus, Pace& pace, const health::Evidence& evidence) {
  const auto elements = [&](std::int64_t bytes) {
    return static_cast<std::size_t>(bytes) / sizeof(double) / cpus.size();  // of a thread
  };
  const std::size_t most = elements(pace.work().most);
  const Pages a(most * cpus.size() * sizeof(double)), b(most * cpus.size() * sizeof(double)),
      c(most * cpus.size() * sizeof(double));
  const auto piece_of = [&](const Pages& pages, std::size_t thread) {
    return pages.as<double>().data() + thread * most;
  };
  std::vector<std::size_t> touched(cpus.size());
  std::atomic<std::size_t> num_wrong{0};
  in_step(
      cpus, pace, [&] { return evidence.left_s(); },
      [&](std::size_t thread, std::int64_t bytes) {
        double *const x = piece_of(a, thread), *const y = piece_of(b, thread), *const z = piece_of(c, thread);
        const std::size_t length = elements(bytes);
        for (std::size_t i = touched[thread]; i < length; ++i) {
          x[i] = 0;
          y[i] = static_cast<double>(i % 1024);
          z[i] = 1;
        }
        touched[thread] = length;
        for (std::size_t i = 0; i < length; ++i) x[i] = y[i] + kScale * z[i];
      },
      [&](std::size_t thread) {
        if (!pace.is_measured()) return;
        const double* const x = piece_of(a, thread);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < touched[thread]; ++i)
          wrong += x[i] == static_cast<double>(i % 1024) + kScale ? 0 : 1;
        num_wrong += wrong;
      });
  return num_wrong;
}

health::Result measure_memory(health::Evidence& evidence) {
  const Share share = this_share();
  const Caches caches = last_level_caches(evidence.root());
  const std::int64_t free_bytes = host_memory(evidence.root()).free_bytes;
  const std::optional<Work> work = triad_work(caches.counted_bytes, free_bytes, share.part());
  if (!work) {
    return health::skipped(fmt::format("{} of memory are free, too little beside {} of cache",
                                       format_size(static_cast<double>(free_bytes)),
                                       format_size(static_cast<double>(caches.counted_bytes))));
  }
  Pace pace(*work);
  const std::size_t num_wrong = measure(share.cpus, pace, evidence);
  const auto array_bytes = static_cast<double>(pace.size());
  if (num_wrong > 0) {
    return health::judged({{.entity = "memory",
                            .message = fmt::format("{} sums of arrays of {} are not what was computed", num_wrong,
                                                   format_size(array_bytes)),
                            .measured = static_cast<double>(num_wrong),
                            .limit = 0,
                            .unit = "words",
                            .remedy = "Take the node out of service and test its memory."}});
  }
  pace.require_measured();
  const double gbps = kBytesAnElement * array_bytes / sizeof(double) / pace.best_s() / 1e9;
  const health::ActiveConfig& expect = evidence.policy().active;
  KnownLimit known = known_limit(cpu_model(evidence.root()), "memory_gbps");
  const int sockets = num_sockets(evidence.root());
  const bool is_whole = share.node_cpus >= known.cores * sockets && !caches.is_slice();
  known.least = is_whole ? known.least * sockets : -1;
  std::string how = fmt::format("{}, arrays of {}", share.str(), format_size(array_bytes)) + caches.note();
  if (pace.is_less()) {
    how += fmt::format(", not the usual {}, which would take too long",
                       format_size(static_cast<double>(pace.work().most)));
  }
  return judge_rates({{"triad", gbps, expect.memory_gbps, "GB/s", known}}, expect.min_fraction, share, Scope::cores,
                     how);
}

}  // namespace

extern constinit const health::Check kPerfMemory = {
    .code = "perf.memory",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "memory bandwidth below the expected value",
    .needs = "free memory of twelve times the last cache",
    .deadline_s = 15,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .on_hang = std::nullopt,
    .explain =
        "Runs the STREAM triad, a = b + s * c, with a thread on each core. The arrays are four times as large as all "
        "last-level caches together, or smaller if memory or time is short. The result is the best of many passes, at "
        "24 bytes per element; afterwards every element is verified. A virtual machine may report the whole cache of a "
        "large socket. Therefore at most 16 MiB of cache per core are counted in a virtual machine, and 96 MiB per "
        "core otherwise, but never more than a 64th of the memory. The note reports such a limit.\n\n"
        "It finds a missing or slow DIMM, an untrained channel, or a wrong NUMA setting in the BIOS long before "
        "anything fails. The limit is active.memory_gbps of ms-diag.toml(5), or a built-in value of the CPU model, if "
        "the check has all cores of the node. Several processes on a node measure concurrently and share the expected "
        "value.",
    .remedy = kLooksSlow,
    .run = measure_memory};

}  // namespace ms::diag
