#include "tracepp/findings/last_comers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/text.h"
#include "tracepp/findings/slow_work.h"
#include "tracepp/robust.h"
#include "tracepp/steps/device_paths.h"

namespace ms::tracepp {
namespace {

constexpr std::uint64_t kLeastCollectives = 2, kFewCollectives = 8;
constexpr double kSure = 0.9, kMany = 0.95;
constexpr std::uint64_t kManyCollectives = 64;
// Equal ranks also differ. One of them comes last in many steps by chance; that costs little.
constexpr double kMostChance = 0.01, kLittle = 0.01, kMuch = 0.05;
// The most confidence where a rank that is not there may come later still, or it is a guess who meets whom.
constexpr double kMostInDoubt = 0.5, kMostGuessed = 0.6, kMostBehindOthers = 0.7;

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Returns the part of a step by which a rank computes longer than the median of the ranks with its work.
double more_computing(const RunTrace& trace, const Breakdown& breakdown, std::size_t rank) {
  std::vector<double> busy;
  double own = 0, length = 0;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    if (trace.has_mesh && trace.ranks[r].at.pp != trace.ranks[rank].at.pp) continue;
    const StepTime sum = sum_of(breakdown.of_rank(r));
    busy.push_back(share(static_cast<double>(sum.busy_ns), static_cast<double>(sum.length_ns)));
    if (r == rank) {
      own = static_cast<double>(sum.busy_ns);
      length = static_cast<double>(sum.length_ns);
    }
  }
  return share(own, length) - median(busy);
}

// Returns the probability that some of `ranks` equal ranks comes last in this part of the steps, if each is as likely
// as any other in each step. Collectives of one step depend on each other.
double chance_of(double part_last, double steps, std::size_t ranks) {
  const double p = 1 / static_cast<double>(ranks);
  const double least = std::ceil(part_last * steps - 1e-9);
  double chance = 0;
  for (double k = least; k <= steps; ++k) {
    chance += std::exp(std::lgamma(steps + 1) - std::lgamma(k + 1) - std::lgamma(steps - k + 1) + k * std::log(p) +
                       (steps - k) * std::log1p(-p));
  }
  return std::min(1.0, chance * static_cast<double>(ranks));
}

// Returns the part of the rank's steps in which others waited longest for it.
double led_steps(const std::vector<Lateness>& by_rank, std::size_t rank, double steps) {
  double led = 0;
  for (const auto& mine : by_rank[rank].caused_in) {
    led += std::ranges::none_of(by_rank,
                                [&](const Lateness& other) {
                                  const auto of = other.caused_in.find(mine.first);
                                  return of != other.caused_in.end() && of->second > mine.second;
                                })
               ? 1
               : 0;
  }
  return std::min(1.0, led / steps);
}

// Says what the rank did meanwhile.
std::string instead_text(const LateRank& late, const LateCause& cause, double steps) {
  const LateCause* const inside = late.inside(cause);
  const bool is_named = inside != nullptr && !inside->name.empty() && 2 * inside->more_ns >= cause.more_ns;
  return fmt::format("meanwhile, {:.3g} ms a step more than the others, it is at: {}{}",
                     1e3 * seconds(cause.more_ns) / steps, cause.of,
                     is_named ? " (" + plain_text(inside->name, 100) + ")" : "");
}

}  // namespace

std::optional<Finding> find_last_comer(const RunTrace& trace, const Breakdown& breakdown, const CommReport& comms,
                                       const std::vector<LateRank>& late) {
  const std::vector<Lateness>& by_rank = comms.by_rank;
  const auto most = std::ranges::max_element(by_rank, {}, &Lateness::caused_ns);
  if (most == by_rank.end() || most->collectives < kLeastCollectives) return std::nullopt;
  // A rank that waits for others before it comes last passes their delay on: only what it adds counts against others.
  double all_ns = 0, added_ns = 0;
  for (const Lateness& rank : by_rank) {
    all_ns += static_cast<double>(rank.caused_ns);
    added_ns += static_cast<double>(std::max<std::int64_t>(rank.caused_ns - rank.waited_ns, 0));
  }
  const auto own_ns = static_cast<double>(most->caused_ns - most->waited_ns);
  const bool waits_little = own_ns > 0.7 * static_cast<double>(most->caused_ns);
  // Being last once is chance; it must be last repeatedly.
  const double by_chance = 1.0 / static_cast<double>(by_rank.size());
  const double caused =
      std::max(share(static_cast<double>(most->caused_ns), all_ns), waits_little ? share(own_ns, added_ns) : 0.0);
  const double last = share(static_cast<double>(most->last), static_cast<double>(most->collectives));
  // Ranks that share cores often come last, without a fault.
  const std::vector<RankTrace>& ranks = trace.ranks;
  const bool shares_cores = ranks.size() > 1 && ranks[0].device.starts_with("cpu") && !ranks[0].host.empty() &&
                            ranks[0].host == ranks[1].host;
  const double least_caused = shares_cores ? 0.9 : std::clamp(3 * by_chance, 0.5, 0.9);
  const double least_last = shares_cores ? 0.8 : std::clamp(2 * by_chance, 0.25, 0.8);
  if (caused < least_caused || last < least_last) return std::nullopt;

  const auto rank = static_cast<std::size_t>(most - by_rank.begin());
  const StepTime sum = sum_of(breakdown.steps);
  const auto steps = static_cast<double>(std::max<std::size_t>(breakdown.of_rank(rank).size(), 1));
  Finding found;
  found.ranks = {ranks[rank].rank};
  found.cost_share = share(static_cast<double>(most->caused_ns), static_cast<double>(sum.length_ns));
  found.cost_s = seconds(most->caused_ns) / steps / static_cast<double>(std::max<std::size_t>(by_rank.size() - 1, 1));
  const bool has_steps = breakdown.of_rank(rank).size() > 1;
  const double led = most->caused_in.empty() ? last : led_steps(by_rank, rank, steps);
  const bool is_chance = ranks.size() > 1 && (has_steps ? chance_of(led, steps, ranks.size())
                                                        : chance_of(last, static_cast<double>(most->collectives),
                                                                    ranks.size())) > kMostChance;
  const bool is_short = most->collectives < kFewCollectives;
  if (is_chance && found.cost_share < kLittle) return std::nullopt;
  if (is_short && (most->last < most->collectives || found.cost_share < kMuch)) return std::nullopt;
  if (!breakdown.of_rank(rank).empty()) {
    found.first_step = breakdown.of_rank(rank).front().step;
    found.last_step = breakdown.of_rank(rank).back().step;
  }
  const auto of_rank = std::ranges::find(late, rank, &LateRank::rank);
  const LateCause* const cause = of_rank == late.end() ? nullptr : of_rank->cause();
  const double more = more_computing(trace, breakdown, rank);
  const bool computes = more > 0.5 * found.cost_share;
  const double longer_s = cause != nullptr ? seconds(cause->more_ns)
                          : computes       ? more * seconds(sum_of(breakdown.of_rank(rank)).length_ns)
                                           : 0.0;
  SlowWork work;
  if (cause == nullptr ? computes : cause->of == to_string(PathOf::kernel) || cause->of == to_string(PathOf::host))
    work = find_slow_work(trace, rank, 500 * longer_s / steps);  // half of it, in ms
  found.hint = work.hint;
  found.line = work.line;
  const std::string& host = ranks[rank].host;
  found.evidence = fmt::format(
      "rank {}{} comes last to {} of {} collectives; others wait for it in {:.0f} % of their time, "
      "{:.0f} % of all they wait for each other; {}",
      ranks[rank].rank, host.empty() ? "" : " (" + plain_text(host, 60) + ")", most->last, most->collectives,
      100 * found.cost_share, 100 * share(static_cast<double>(most->caused_ns), all_ns),
      !work.sentence.empty()
          ? fmt::format("it computes {:.3g} ms a step longer: {}", 1e3 * longer_s / steps, work.sentence)
      : cause != nullptr ? instead_text(*of_rank, *cause, steps)
      : computes         ? fmt::format("it computes longer, by {:.0f} % of a step", 100 * more)
                         : "it does not compute longer than they do: its device begins late");
  found.confidence = (most->collectives >= kManyCollectives ? kMany : kSure) * std::min(1.0, 0.5 + 0.5 * last);
  if (cause != nullptr && LateRank::waits(*cause)) {
    found.doubt = "it waits itself for others meanwhile";
    found.confidence = std::min(found.confidence, kMostInDoubt);
  }
  if (is_chance || is_short) {
    found.doubt =
        fmt::format("it may be chance in {}: record more steps", plural(breakdown.of_rank(rank).size(), "step"));
    found.confidence = std::min(found.confidence, kMostInDoubt);
  }
  if (ranks[rank].is_cut_off) {
    found.doubt = "its trace is cut off: the rest of it may show otherwise";
    found.confidence = std::min(found.confidence, kMostInDoubt);
  } else if (most->partial > 0) {
    found.doubt = "members of its groups have no trace that could be used: one of them may come later still";
    found.confidence = std::min(found.confidence, kMostInDoubt);
  } else if (most->guessed > 0) {
    found.confidence = std::min(found.confidence, kMostGuessed);
  } else if (trace.has_mesh && trace.mesh.pp > 1 && !computes) {
    found.doubt = "it may wait for another stage of its pipeline";
    found.confidence = std::min(found.confidence, kMostBehindOthers);
  }
  return found;
}

}  // namespace ms::tracepp
