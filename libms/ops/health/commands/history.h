// The history of what a node decided, for people and programs.
#pragma once

#include <string>
#include <vector>

#include "health/act/state.h"

namespace ms::health {

std::string when(double wall_s);                                     // "2026-11-24T16:40:28", local
std::string history_text(const std::vector<HistoryEntry>& entries);  // a table
std::string history_json(const std::vector<HistoryEntry>& entries);  // one object a line

}  // namespace ms::health
