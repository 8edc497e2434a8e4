// Compares two checkpoints, whatever layouts wrote them: the configuration, the position in training, and every state
// of every parameter, bit by bit and as numbers. ms-ckpt diff shows the result.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/offline.h"

namespace ms::ckpt {

// A value of either side, as text; empty where that side has none.
struct KeyDiff {
  std::string key, a, b;
  bool operator==(const KeyDiff&) const = default;
};

// Two resolved configurations: "section.key" of every line that is not the same in both, who set it aside.
std::vector<KeyDiff> diff_config(const std::string& a, const std::string& b);

// Context-parallel ranks of the run that wrote the checkpoint, which the manifest's dp includes. nullopt: neither dp
// nor the configuration tells.
std::optional<int> context_ranks(const Manifest& manifest);

struct ValueDiff {
  std::int64_t elements = 0, differing = 0;  // differing: in bits, or in value where the types differ
  double max_abs = 0;                        // of a - b; NaN where it is not a number
  double relative_l2 = 0;                    // |a - b| / |a|
};
// bf16 and f32 may be compared: as numbers, then.
ValueDiff diff_values(tensor::DType type_a, std::span<const std::byte> a, tensor::DType type_b,
                      std::span<const std::byte> b);

struct StateDiff {
  std::string name;
  State state = State::weight;
  std::int64_t rows = 0, cols = 0;
  ValueDiff values;
};

struct Diff {
  std::vector<KeyDiff> config;     // keys of the configuration
  std::vector<KeyDiff> place;      // the mesh that wrote it
  std::vector<KeyDiff> position;   // step, data position, generator
  std::vector<KeyDiff> unmatched;  // states that one side does not have, or has in another shape
  std::vector<StateDiff> states;   // all others, by name
  // The same training state: what trains on from either is the same. Mesh and configuration may differ, [model] not.
  bool equal() const;
};

// `progress`: bytes compared, of the smaller of the two.
Diff diff(const Parameters& a, const Parameters& b, int threads, const std::function<void(std::int64_t)>& progress);

}  // namespace ms::ckpt
