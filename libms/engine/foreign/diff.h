// Compares the tensors of two checkpoints of other programs, by name, whatever layouts and formats hold them, and what
// they hold beside these.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "foreign/checkpoint.h"

namespace ms::foreign {

struct TensorDiff {
  std::string name;
  std::int64_t elements = 0, differing = 0;  // in bits
  double max_abs = 0;                        // of a - b, of float32 and bfloat16; NaN where it is not a number
};
struct Unmatched {
  std::string name, a, b;  // type and shape, or a value; empty: it is not there
};
struct Diff {
  std::vector<TensorDiff> tensors;  // that both have, of one type and shape, by name
  std::vector<Unmatched> unmatched;
  std::size_t num_values = 0;     // that are no tensors, of either
  std::vector<Unmatched> values;  // those of them that differ, or that one has
  std::vector<Problem> unread;    // of both: what is not read may differ
  bool equal() const;             // all tensors
};

// Holds a few megabytes of a tensor at a time. Errors of TensorReader and values_of(). `progress`: bytes of one side.
Diff diff(const Checkpoint& a, const Checkpoint& b, const std::function<void(std::int64_t)>& progress);

std::string diff_text(const Checkpoint& a, const Checkpoint& b, const Diff& diff, bool all);
std::string diff_json(const Checkpoint& a, const Checkpoint& b, const Diff& diff);

}  // namespace ms::foreign
