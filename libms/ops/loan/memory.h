// The directory of ms-loan act: state.json (its memory), decisions.jsonl (every action, with its reason) and
// metrics.prom. All but the decisions are written anew at every poll, atomically.
#pragma once

#include <string>
#include <string_view>

#include "loan/plan.h"

namespace ms::loan {

// Nothing remembered where there is no file. Error("loan.state", storage): it is not one of ours.
Memory read_memory(const std::string& directory);
void write_memory(const std::string& directory, const Memory& memory);

void note_action(const std::string& directory, double now_s, const Action& action);
// The lines about this job or node, the oldest first: time, action, object and reason. At most `most`, the newest.
std::string actions_about(const std::string& directory, std::string_view name, std::size_t most);

void write_metrics(const std::string& directory, const View& view, const Memory& memory);

}  // namespace ms::loan
