// Where the wall time of a run went, in the types of Google's ml-goodput-measurement (BadputType in its
// goodput_utils.py), by their names in lower case, so that its readers and ours mean the same. The ledger sees attempts
// from outside: the steps of an attempt include their waits for data and their checkpoints, and what comes before its
// first step includes the checkpoint that it reads.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "driver/ledger.h"

namespace ms::driver {

enum class Spent {
  productive,        // steps that were kept
  initialization,    // before the first attempt: agents, checks of nodes
  startup,           // of attempts, until their first step ended
  wasted,            // steps that a later attempt did again
  recovery,          // from a fault, before its alarm, to the next attempt
  slow,              // the part of steps by which a slow node made them longer
  reinitialization,  // between attempts of different sizes
  other,             // attempts that tell no steps
};
inline constexpr std::array<std::pair<Spent, std::string_view>, 8> kSpent{{
    {Spent::productive, "productive"},
    {Spent::initialization, "tpu_initialization"},
    {Spent::startup, "program_startup"},
    {Spent::wasted, "wasted_progress_from_disruption"},
    {Spent::recovery, "infrastructure_recovery_from_disruption"},
    {Spent::slow, "custom_badput_events"},
    {Spent::reinitialization, "elastic_reinitialization"},
    {Spent::other, "other"},
}};

struct TimeSpent {
  std::array<double, kSpent.size()> seconds{};  // by Spent; they add up to the time from the ledger's begin to now_s
  double& operator[](Spent kind) { return seconds[static_cast<std::size_t>(kind)]; }
  double operator[](Spent kind) const { return seconds[static_cast<std::size_t>(kind)]; }
  // Share of the time in which steps were trained that were kept. 0 where no heartbeats tell of steps.
  double effective() const;
};

TimeSpent time_spent(const Ledger& ledger, double now_s);

}  // namespace ms::driver
