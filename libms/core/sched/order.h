// Building blocks of the schedules' files: orders of forwards and backwards, and the bubble that most schedules have.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/schedule.h"

namespace ms::sched {

// One (chunk, microbatch).
struct Entry {
  int chunk, microbatch;
  bool operator==(const Entry&) const = default;
};

// The order of the forwards of every rank: groups of pp microbatches (the last may be smaller), in each group chunk 0
// of all of them, then chunk 1, ... The k-th backward is the k-th entry with the chunks reversed.
std::vector<Entry> order_table(const Shape& shape);

Row computation(Action action, const Entry& entry);

// `ahead` forwards, then forward and backward in turn, then the backwards that are left.
std::vector<Row> alternate(const std::vector<Entry>& forwards, const std::vector<Entry>& backwards, std::int64_t ahead);

// The bubble of filling and draining the pipeline: (pp - 1)(t_f + t_b) / chunks.
double fill_and_drain(const Shape& shape, const Times& times);

}  // namespace ms::sched
