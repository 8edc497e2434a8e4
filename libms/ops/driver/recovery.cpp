#include "driver/recovery.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/exit.h"
#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::driver {

namespace {

constexpr int kMostWaiting = 10;  // attempts that end for storage or Slurm, in some 14 minutes

// The error that ended the last attempts, to be read by people; empty: it may not be one of the program.
std::string error_of_program(const Ledger& ledger, const watch::RetryPolicy& retry) {
  const Ledger::SameError same = ledger.same_error();
  if (same.attempts < 2 || (ledger.idle_attempts() == 0 && same.attempts < retry.max_same)) return "";
  const AttemptEntry& last = ledger.attempts.back();
  const KnownLine* known = known_line(last.error);
  if (same.nodes.size() == 1 && known != nullptr && known->says == Says::hint) return "";
  const bool doubtful = same.nodes.size() == 1 && (known == nullptr || known->says != Says::error);
  const std::vector<std::string> nodes(same.nodes.begin(), same.nodes.end());
  const std::string where =
      nodes.size() > 2 ? slurm::fold_hostlist(nodes) : fmt::format("{}", fmt::join(nodes, " and "));
  return fmt::format("{}{}{}{}: the program{} ({} ended of it)",
                     last.rank < 0 ? "" : fmt::format("rank {}: ", last.rank), last.error,
                     last.to_step < 0 ? "" : fmt::format(", step {}", last.to_step),
                     where.empty() ? "" : fmt::format(", on {}", where), doubtful ? ", or that node" : "",
                     plural(static_cast<std::size_t>(same.attempts), "attempt"));
}

}  // namespace

Recovery recovery_after(const Judgement& judgement, const Tried& tried) {
  if (judgement.next == Next::done) return {.code = judgement.code, .why = "done"};
  if (judgement.next == Next::stop || tried.asked_to_stop) return {.code = judgement.code, .why = judgement.why};
  const Ledger& ledger = tried.ledger;
  const auto gives_up = [](std::string why) {
    return Recovery{.code = static_cast<int>(ExitCode::no_progress), .why = std::move(why)};
  };
  if (tried.attempts >= tried.retry.max_attempts) {
    return gives_up(fmt::format("{} {} made", plural(tried.attempts, "attempt"), tried.attempts == 1 ? "was" : "were"));
  }
  if (ledger.ends_again_for(kMismatchCause)) {
    return gives_up("the same collective mismatch occurred again, without another step: " + judgement.why);
  }
  if (std::string error = error_of_program(ledger, tried.retry); !error.empty()) return gives_up(std::move(error));
  // To leave a bad node is a way on too, and has its end in their number.
  const bool leaves_out = judgement.certain && !judgement.suspects.empty();
  const int idle = leaves_out ? 0 : ledger.idle_attempts();
  if (idle >= tried.retry.max_idle) {
    return gives_up(fmt::format(
        "{} in a row {}; the last one: {}", plural(idle, "attempt"),
        ledger.best_step() < 0
            ? fmt::format("reported no step, and hung or ended within {:.0f} minutes", Ledger::kWorksUnheard_s / 60)
            : fmt::format("made no progress beyond step {}", ledger.best_step()),
        judgement.why));
  }
  const int waiting = ledger.waiting_attempts();
  if (waiting >= kMostWaiting) {
    return {.code = judgement.cause.starts_with(kStorage) ? static_cast<int>(ExitCode::storage)
                                                          : static_cast<int>(ExitCode::no_progress),
            .why = fmt::format("{} in a row ended for {}; the last one: {}", plural(waiting, "attempt"),
                               judgement.cause, judgement.why)};
  }
  return {.wait_s = waiting > 0 ? watch::wait_before_attempt_s(waiting - 1, true)
                                : watch::wait_before_attempt_s(idle, false)};
}

double faults_per_s(const Ledger& ledger, double wall_s) {
  const auto faults = std::ranges::count_if(ledger.attempts, [](const AttemptEntry& a) { return a.recover_s > 0; });
  return wall_s > ledger.began_s ? static_cast<double>(faults) / (wall_s - ledger.began_s) : 0;
}

watch::SlowNodes slow_node_of(const Pace::Slow& slow, const Ledger& ledger, double wall_s) {
  watch::SlowNodes node{.times = slow.times(),
                        .lasts_s = ledger.mean_slow_s(watch::kSlowLasts_s),
                        .faults_per_s = faults_per_s(ledger, wall_s)};
  double restarts_s = watch::kRestart_s;
  int restarts = 1;
  for (const AttemptEntry& attempt : ledger.attempts) {
    if (attempt.recover_s <= 0) continue;
    restarts_s += attempt.recover_s;
    ++restarts;
  }
  node.restart_s = restarts_s / restarts;
  return node;
}

}  // namespace ms::driver
