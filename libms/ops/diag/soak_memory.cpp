// soak.memory: patterns in a large part of the memory, again and again.
#include <algorithm>
#include <deque>

#include "base/host_memory.h"
#include "base/text.h"
#include "diag/in_step.h"
#include "diag/memory_patterns.h"
#include "diag/pages.h"
#include "diag/share.h"
#include "diag/works.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

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
  const std::int64_t each = std::max<std::int64_t>(mine / threads / 4096 * 4096, 4096);
  std::deque<Pages> pieces;
  for (std::int64_t i = 0; i < threads; ++i) pieces.emplace_back(static_cast<std::size_t>(each));
  std::vector<MemorySoak> soaks(share.cpus.size());
  Pace pace(soak_memory_work(each, evidence.asked().soak_s, wanted >= 0));
  in_step(
      share.cpus, pace, [&] { return evidence.left_s(); },
      [&](std::size_t thread, std::int64_t size) {
        MemorySoak& soak = soaks[thread];
        const std::span<std::uint64_t> words = pieces[thread].as<std::uint64_t>();
        const auto seed =
            static_cast<std::uint64_t>(soak.passes) << 32 | static_cast<std::uint64_t>(share.cpus[thread]);
        const MemorySoak got =
            soak_words(words.first(static_cast<std::size_t>(size) / 8), seed, [](std::span<std::uint64_t>) {});
        ++soak.passes;
        soak.words += got.words;
        soak.num_wrong += got.num_wrong;
        soak.flipped |= got.flipped;
      },
      [](std::size_t) {});
  MemorySoak total;
  for (const MemorySoak& got : soaks) {
    total.num_wrong += got.num_wrong;
    total.flipped |= got.flipped;
    total.words += got.words;
  }
  const double bytes = static_cast<double>(pace.size() * threads);
  const std::string how = fmt::format(
      "{} passes of {} over {} ({}){}", pace.rounds(), plural(kMemoryPatterns, "pattern"), format_size(bytes),
      share.str(), pace.is_less() ? ", as much as a pass in time can be; a longer --soak tests more" : "");
  if (total.num_wrong == 0 && !pace.is_measured()) {
    return health::not_measured(fmt::format("{} cannot be passed over in time: give a longer --soak, or less --memory",
                                            format_size(static_cast<double>(pace.work().least * threads))));
  }
  if (total.num_wrong == 0) return health::passed(how);
  return health::judged(
      {about("memory", Severity::critical,
             fmt::format("{} of {} words are not what was written, bits {:#018x} differ; {}", total.num_wrong,
                         format_count(static_cast<double>(total.words)), total.flipped, how),
             total.num_wrong, 0, "words")});
}

}  // namespace

extern constinit const health::Check kSoakMemory = {
    .code = "soak.memory",
    .level = 3,
    .lane = health::Lane::active,
    .summary = "host memory that does not retain its contents",
    .needs = "free memory",
    .deadline_s = 120,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .soaks = true,
    .on_hang = std::nullopt,
    .explain =
        "For the time given with --soak, a thread on each core fills its share of half of the free memory, or of the "
        "amount given with --memory, with patterns and reads them back: walking ones and zeros, addresses and their "
        "inverse, and random words that change in every pass. Passes start small and grow. Without --memory, a pass "
        "takes at most a quarter of the time until the check is aborted (39 seconds with a soak of a minute), and "
        "covers less memory if necessary.\n\n"
        "ECC memory corrects one flipped bit per word, which host.mce counts. Errors found here were not corrected, "
        "and any error is critical.",
    .remedy = "Take the node out of service; host.mce and the event log of the BMC name the DIMM.",
    .run = soak_memory};

}  // namespace ms::diag
