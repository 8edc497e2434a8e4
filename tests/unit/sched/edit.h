// To look at schedules by their cells, and to damage them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "sched/schedule.h"

namespace ms::sched {

// The computations of one rank, as "F0.0 F0.1 B0.0".
inline std::string computations(const Schedule& schedule, std::size_t rank) {
  std::string text;
  for (const Row& row : schedule.rows[rank]) {
    if (row.is_compute()) text += (text.empty() ? "" : " ") + cell(row);
  }
  return text;
}

inline std::size_t find(const Schedule& schedule, std::size_t rank, std::string_view text) {
  const auto& rows = schedule.rows[rank];
  const auto it = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return cell(row) == text; });
  EXPECT_NE(it, rows.end()) << text;
  return static_cast<std::size_t>(it - rows.begin());
}
inline Row& at(Schedule& schedule, std::size_t rank, std::string_view text) {
  return schedule.rows[rank][find(schedule, rank, text)];
}
inline void drop(Schedule& schedule, std::size_t rank, std::string_view text) {
  schedule.rows[rank].erase(schedule.rows[rank].begin() + static_cast<std::ptrdiff_t>(find(schedule, rank, text)));
}
inline void swap(Schedule& schedule, std::size_t rank, std::string_view one, std::string_view other) {
  std::swap(at(schedule, rank, one), at(schedule, rank, other));
}

}  // namespace ms::sched
