// The parts that commands of ms-tracepp share which write a file.
#pragma once

#include <string>
#include <vector>

#include "base/cli.h"
#include "tracepp/export/export.h"

namespace ms::tracepp {

// Commands that write a file share these: --steps and --ranks, the events that they choose, and the value of --output,
// which must be given and be no directory.
Option steps_option();
Option ranks_option();
ExportOptions chosen_events(const Args& args);
std::string output_of(const Args& args);
// Throws Error("cli.value", user) where the options choose none of the events, which are those of `ranks`.
void check_chosen(const Args& args, const ChosenEvents& counted, const std::vector<RankTrace>& ranks);
// Returns how many events are chosen; where the options choose none, it throws Error("cli.value", user).
std::size_t count_chosen(const Args& args, const RunTrace& trace, const ExportOptions& options);

}  // namespace ms::tracepp
