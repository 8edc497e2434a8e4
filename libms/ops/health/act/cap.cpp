#include "health/act/cap.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "health/act/decide.h"
#include "health/act/prolog_time.h"

namespace ms::health {
namespace {

constexpr int kAttempts = 4;
constexpr double kPause_s = 0.3;  // the longest before the second attempt; it doubles
constexpr int kWithdrawAttempts = 2;

// When a drain is settled later: the first pause, which grows while Slurm does not answer, up to the longest.
constexpr double kSettlePause_s = 1, kSettleLongestPause_s = 20;
constexpr int kGoneLooks = 2;  // a drain whose call was cut may be obeyed late

std::optional<std::vector<slurm::Node>> ask_nodes(const World& world) {
  std::vector<slurm::Node> nodes;
  if (!world.attempt("asking Slurm for its nodes", [&] { nodes = world.slurm->nodes(); })) return std::nullopt;
  return nodes;
}

const slurm::Node* find(const std::vector<slurm::Node>& nodes, const std::string& name) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const slurm::Node& n) { return n.name == name; });
  return found == nodes.end() ? nullptr : &*found;
}

std::int64_t cap_of(const ActConfig& act, const std::vector<slurm::Node>& nodes) {
  return drain_cap(act, static_cast<std::int64_t>(nodes.size()));
}

// Is it drained by this very call? Blanks are compared as Slurm may have stored them.
bool is_this(const slurm::Node& node, const std::string& reason) {
  return is_ours(node) && plain_text(node.reason, kMaxReason) == plain_text(reason, kMaxReason);
}

// Takes our drain back, if the reason is exactly ours. False: it is not known whether the drain stands.
bool withdraw(const World& world, const std::string& name, const std::string& reason) {
  for (int attempt = 0; attempt < kWithdrawAttempts; ++attempt) {
    // A call that failed may have been obeyed all the same, so the next round looks again.
    const bool done = world.attempt("withdrawing the drain", [&] {
      const slurm::Node node = world.slurm->node(name);
      if (is_this(node, reason)) world.slurm->resume(name);
    });
    if (done) return true;
  }
  world.say(log::Level::error, fmt::format("the drain of {} could not be withdrawn and may stand: {}", name, reason));
  return false;
}

// One attempt; nullopt: above the cap and taken back, try again.
std::optional<Drain> attempt_once(const World& world, const ActConfig& act, const std::string& name,
                                  const std::string& reason, bool first) {
  const auto failed = [](std::string why) { return Drain{.end = DrainEnd::failed, .reason = {}, .why = why}; };
  const auto may_stand = [&](std::string why) {
    return Drain{.end = DrainEnd::may_stand, .reason = reason, .why = std::move(why)};
  };
  if (world.slurm->left_s() < kNeeded_s) return failed("too little time is left for it");
  const auto before = ask_nodes(world);
  if (!before) return failed("Slurm does not say how its nodes are");
  const slurm::Node* self = find(*before, name);
  if (self == nullptr) return failed("Slurm knows no node of this name");
  switch (drain_step(*self)) {
    case DrainStep::stands_already:
      return Drain{.end = DrainEnd::stands_already, .reason = self->reason, .why = "it is drained by us already"};
    case DrainStep::somebody_elses:
      return Drain{.end = DrainEnd::somebody_elses,
                   .reason = self->reason,
                   .why = fmt::format("it has a reason from someone else: '{}'", self->reason)};
    case DrainStep::drain: break;
  }
  if (count_ours(*before) >= cap_of(act, *before)) {
    // At first sight that is how things are. Later it may be a crowd that withdraws.
    if (!first) return std::nullopt;
    return Drain{.end = DrainEnd::above_cap,
                 .reason = {},
                 .why = fmt::format("{} nodes are drained by us, and no more than {} may be", count_ours(*before),
                                    cap_of(act, *before))};
  }
  if (world.slurm->left_s() < kNeeded_s) return failed("too little time is left for it");
  const bool set = world.attempt("draining", [&] { world.slurm->drain(name, reason); });
  const auto after = set ? ask_nodes(world) : std::nullopt;
  if (!after) {
    if (!withdraw(world, name, reason)) return may_stand("Slurm does not say how many nodes are drained by us");
    return failed("Slurm did not say that all is well");
  }
  const slurm::Node* now = find(*after, name);
  if (now == nullptr || !is_this(*now, reason)) return failed("someone changed it in the meantime");
  if (count_ours(*after) <= cap_of(act, *after)) {
    return Drain{.end = DrainEnd::drained, .reason = reason, .why = "it is drained"};
  }
  if (!withdraw(world, name, reason)) return may_stand("too many nodes are drained by us, and Slurm does not answer");
  return std::nullopt;
}

}  // namespace

Drain drain_below_cap(const World& world, const ActConfig& act, const std::string& node, const std::string& reason) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) {
      const double pause_s = world.random() * kPause_s * std::exp2(attempt - 1);
      if (world.slurm->left_s() < pause_s + kNeeded_s) break;
      world.clock.sleep_s(pause_s);
    }
    const std::optional<Drain> result = attempt_once(world, act, node, reason, attempt == 0);
    if (!result) continue;
    if (attempt > 0 && result->end == DrainEnd::failed) break;  // it was taken back, and stays so
    return *result;
  }
  return {.end = DrainEnd::withdrawn, .reason = {}, .why = "too many nodes wanted it at once"};
}

Drain settle_drain(const World& world, const ActConfig& act, const std::string& name, const std::string& reason) {
  double pause_s = kSettlePause_s;
  int gone = 0;
  std::int64_t share = 1;  // how many times as many nodes as are too many take theirs back
  bool withdrew = false;
  while (world.slurm->left_s() > 2 * pause_s) {
    world.clock.sleep_s(pause_s * (0.5 + world.random()));
    const auto nodes = ask_nodes(world);
    if (!nodes) {
      pause_s = std::min(2 * pause_s, kSettleLongestPause_s);
      continue;
    }
    pause_s = kSettlePause_s;
    const slurm::Node* self = find(*nodes, name);
    if (self == nullptr || !is_this(*self, reason)) {
      if (++gone < kGoneLooks) continue;
      if (withdrew) return {.end = DrainEnd::withdrawn, .reason = {}, .why = "too many nodes wanted it at once"};
      return {.end = DrainEnd::failed, .reason = {}, .why = "it did not take effect, or someone changed it"};
    }
    gone = 0;
    const std::int64_t too_many = count_ours(*nodes) - cap_of(act, *nodes);
    if (too_many <= 0) return {.end = DrainEnd::drained, .reason = reason, .why = "it was counted"};
    // Others may be at the same: the last by name go first, so that not all of them do. Those that are counted already
    // do not go, so every look takes more of the rest.
    const auto behind = std::count_if(nodes->begin(), nodes->end(),
                                      [&](const slurm::Node& node) { return is_ours(node) && node.name > name; });
    if (behind < too_many * share) withdrew = withdraw(world, name, reason) || withdrew;
    share = std::min<std::int64_t>(2 * share, act.max_drained + too_many);
  }
  return {.end = DrainEnd::may_stand, .reason = reason, .why = "Slurm did not answer for minutes"};
}

}  // namespace ms::health
