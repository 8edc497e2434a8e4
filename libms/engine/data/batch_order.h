// Which batches a run reads, one after another: those of training, and after some steps those of a validation. Loader
// and readers follow it without asking each other. Pure.
#pragma once

#include <cstdint>
#include <optional>

namespace ms::data {

// That of a training step, or one round of the validation after it.
struct BatchId {
  std::int64_t step = 0;
  std::optional<std::int64_t> round = {};  // nullopt: of training
  bool operator==(const BatchId&) const = default;
};

struct BatchOrder {
  std::int64_t begin = 0, end = 0;  // steps
  std::int64_t validate_every = 0;  // steps, and after the last one; 0: never
  std::int64_t rounds = 0;          // of a validation, a global batch each; at least 1 where there are any

  bool validates_after(std::int64_t step) const {
    return validate_every > 0 && ((step + 1) % validate_every == 0 || step + 1 == end);
  }
  // nullopt: there are no more.
  std::optional<BatchId> first() const { return begin < end ? std::optional<BatchId>({.step = begin}) : std::nullopt; }
  std::optional<BatchId> after(const BatchId& id) const {
    const std::int64_t round = id.round ? *id.round + 1 : 0;
    if (validates_after(id.step) && round < rounds) return BatchId{.step = id.step, .round = round};
    return id.step + 1 < end ? std::optional<BatchId>({.step = id.step + 1}) : std::nullopt;
  }
};

}  // namespace ms::data
