// The directory of ms-loan act: state.json (its memory), decisions.jsonl (every action, with its reason) and
// metrics.prom. All but the decisions are written anew at every poll, atomically.
#pragma once

#include <string>
#include <string_view>

#include "base/handle.h"
#include "loan/plan.h"

namespace ms::loan {

// Opens the directory of act, and makes it if it is not there. Error("loan.state", user): it belongs to another user,
// or others may write in it or above it, and could make act believe their demand.
UniqueFd open_state(const std::string& directory);

// Nothing remembered where there is no file. Error("loan.state", storage): it is not one of ours.
Memory read_memory(const UniqueFd& state);
// The same for a user who only looks.
Memory read_memory(const std::string& directory);
void write_memory(const UniqueFd& state, const Memory& memory);

void note_action(const UniqueFd& state, double now_s, const Action& action);
// The lines about this job or node, the oldest first: time, action, object and reason. At most `most`, the newest.
std::string actions_about(const std::string& directory, std::string_view name, std::size_t most);

void write_metrics(const UniqueFd& state, const View& view, const Memory& memory);

}  // namespace ms::loan
