// The sampler: which tokens sample g of a run consists of, as a pure function of (seed, g), where g = step * global
// batch + index in the batch. It knows no rank, so dp, pp and tp cannot change the order of the data, and resuming at
// any step is O(1).
//
// A sample is a window of seq + 1 tokens of a file's concatenated token stream. Consecutive windows overlap by one
// token (the last target of one is the first input of the next), the last partial window is dropped. Files of one pool
// are shuffled together, every window once per epoch, in another order each epoch; several pools are blended by weight,
// which may change by step, each with its own epochs.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "data/mixture.h"

namespace ms::data {

// Tokens [begin, end) of a file's token stream.
struct Split {
  int file;
  std::int64_t begin;
  std::int64_t end;
};

// The window of seq + 1 tokens of `file` that starts at token `begin`.
struct Window {
  int file;
  std::int64_t begin;
  friend bool operator==(const Window&, const Window&) = default;
};

constexpr std::int64_t num_windows(const Split& split, std::int64_t seq) {
  return split.end > split.begin ? (split.end - split.begin - 1) / seq : 0;
}

// The windows of several splits, one after another.
class WindowPool {
 public:
  // Splits without a whole window are allowed and contribute nothing.
  WindowPool(std::vector<Split> splits, std::int64_t seq);
  std::int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  Window operator[](std::int64_t index) const;
  // Window number `index` of `count` that are spread evenly over the pool, the first at its beginning; all distinct
  // where count <= size(). What validation reads: fixed, never shuffled.
  Window spread(std::int64_t index, std::int64_t count) const;

 private:
  std::vector<Split> splits_;
  std::vector<std::int64_t> ends_;  // ends_[i]: windows of the splits 0 .. i
  std::int64_t seq_;
};

class Sampler {
 public:
  // The mixture's sources are the pools; every pool holds at least one window (the caller has refused others by name).
  Sampler(std::vector<WindowPool> pools, Mixture mixture, std::uint64_t seed);
  void set_mixture(Mixture mixture) { mixture_ = std::move(mixture); }

  Window sample(std::int64_t global_sample) const;

 private:
  std::vector<WindowPool> pools_;
  Mixture mixture_;
  std::uint64_t seed_;
};

}  // namespace ms::data
