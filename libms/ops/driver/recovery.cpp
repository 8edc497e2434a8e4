#include "driver/recovery.h"

#include <fmt/format.h>

#include "base/exit.h"
#include "base/text.h"

namespace ms::driver {

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
  // To leave a bad node is a way on too, and has its end in their number.
  const bool leaves_out = judgement.certain && !judgement.suspects.empty();
  const int idle = leaves_out ? 0 : ledger.idle_attempts();
  if (idle >= tried.retry.max_idle) {
    return gives_up(fmt::format(
        "{} in a row {}; the last one: {}", plural(idle, "attempt"),
        ledger.best_step() < 0 ? "did no step" : fmt::format("made no progress beyond step {}", ledger.best_step()),
        judgement.why));
  }
  const bool not_its_fault = judgement.cause == "storage" || judgement.cause.starts_with(kSlurmCauses);
  return {.wait_s = watch::wait_before_attempt_s(idle, not_its_fault)};
}

}  // namespace ms::driver
