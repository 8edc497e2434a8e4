#include "watch/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"

namespace ms::watch {
namespace {

constexpr double kMostBackOff_s = 300;
constexpr double kOthersWait_s = 2;

// The time that slow steps are expected to cost, until the nodes are well again or something else ends it.
double slow_loss_s(const SlowNodes& slow, double ends_per_s) {
  const double lasts_s = 1 / (1 / slow.lasts_s + ends_per_s);
  return (1 - 1 / slow.times) * lasts_s * -std::expm1(-slow.left_s / lasts_s);
}

}  // namespace

double report_every_s(std::size_t nodes) { return std::max(0.25, static_cast<double>(nodes) / 8000); }

double wait_before_attempt_s(int idle, bool on_others) {
  if (on_others) return std::min(kMostBackOff_s, kOthersWait_s * std::exp2(idle));
  return idle == 0 ? 0 : std::min(kMostBackOff_s, std::exp2(idle - 1));
}

SlowAnswer answer_slow(const SlowNodes& slow) {
  if (slow.lasts_s <= 0 || slow.left_s <= 0 || slow.times <= 1) return {.why = "nothing is slow for long enough"};
  const bool replaces = slow.spares >= slow.nodes;
  const std::string lacks = slow.spares == 0 ? "no spare is ready"
                                             : fmt::format("{} cannot replace {}", plural(slow.spares, "ready spare"),
                                                           plural(slow.nodes, "slow node"));
  if (!replaces && !slow.queue_wait_s) return {.why = lacks + ", and the job cannot be queued again for other nodes"};
  const double loss_s = slow_loss_s(slow, replaces ? slow.faults_per_s : 0);
  const double cost_s = slow.restart_s + (replaces ? 0 : *slow.queue_wait_s);
  const bool acts = loss_s > cost_s;
  std::string why =
      fmt::format("slow steps cost {}, {} {} takes {}", format_duration(loss_s), acts ? "and" : "but",
                  replaces ? "a restart with spares" : "the queue for other nodes", format_duration(cost_s));
  if (!replaces) why = lacks + "; " + why;
  if (!acts) return {.why = std::move(why)};
  return {.action = replaces ? SlowAction::replace : SlowAction::requeue, .why = std::move(why)};
}

}  // namespace ms::watch
