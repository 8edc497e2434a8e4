// Makes schedules, shows their cells and damages them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "sched/generate.h"

namespace ms::sched {

inline Schedule gpipe(int pp, int microbatches, const Options& options = {}) {
  return make_schedule("gpipe", pp, 1, microbatches, options);
}
inline Schedule one_f_one_b(int pp, int microbatches, const Options& options = {}) {
  return make_schedule("1f1b", pp, 1, microbatches, options);
}
inline Schedule zero_bubble_h1(int pp, int microbatches, const Options& options = {}) {
  return make_schedule("zb-h1", pp, 1, microbatches, options);
}
inline Schedule interleaved(int pp, int chunks, int microbatches, const Options& options = {}) {
  return make_schedule("1f1b", pp, chunks, microbatches, options);
}

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
