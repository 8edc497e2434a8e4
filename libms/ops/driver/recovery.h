// Decides what follows the judgement of an attempt: another attempt, and when, or the end of the driver; and how slow
// nodes are answered. Pure.
#pragma once

#include <optional>
#include <string>

#include "driver/judge.h"
#include "driver/ledger.h"
#include "driver/pace.h"
#include "watch/recovery.h"

namespace ms::driver {

struct Recovery {
  std::optional<int> code = {};  // the driver ends with it; nullopt: another attempt follows
  std::string why = {};          // it ends
  double wait_s = 0;             // before the next attempt
};

struct Tried {
  const Ledger& ledger;  // with the attempt that was judged
  int attempts = 0;      // of this start of the job
  watch::RetryPolicy retry = {};
  bool asked_to_stop = false;
};

Recovery recovery_after(const Judgement& judgement, const Tried& tried);

// Faults of the run so far that ended an attempt and were recovered from, by the time since it began.
double faults_per_s(const Ledger& ledger, double wall_s);

// The node of `slow` as watch::answer_slow() takes it, with the run's faults, restarts and slow nodes so far, each
// beside a stated default.
watch::SlowNodes slow_node_of(const Pace::Slow& slow, const Ledger& ledger, double wall_s);

}  // namespace ms::driver
