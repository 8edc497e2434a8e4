// The texts of the state, the history and the events: JSON in, JSON out. Reading never throws: what is damaged, of
// another type or not a number is left out, because a node must be able to start a job whatever lies on its disk.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "health/act/spool.h"
#include "health/act/state.h"

namespace ms::health {

std::string state_to_json(const State& state);  // one line, with its end
State state_from_json(std::string_view text);   // empty where it is none

std::string history_to_json(const HistoryEntry& entry);  // one line, without its end
std::optional<HistoryEntry> history_from_json(std::string_view line);

std::string event_to_json(const Event& event);
std::optional<Event> event_from_json(std::string_view text);

}  // namespace ms::health
