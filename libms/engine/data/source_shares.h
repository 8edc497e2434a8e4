// How many source loaders a node's loader has, and which sources each of them owns, by what reading them took. It is
// about time alone: which windows a batch has is decided before. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "data/sampler.h"

namespace ms::data {

// The seconds that reading took of late, by source.
class SourceCosts {
 public:
  explicit SourceCosts(std::size_t sources) : costs_(sources) {}

  // Adds a batch: what each of its windows took.
  void add(std::span<const Window> windows, std::span<const double> seconds);
  // The seconds of a window of that source, or, where none was ever read, of any; 1 before the first batch.
  double window_s(int source) const;
  // Returns what each source takes of a batch, in parts of any unit.
  std::vector<double> loads() const;

 private:
  struct Cost {
    double seconds = 0, windows = 0;  // sums in which earlier batches count less
  };
  std::vector<Cost> costs_;
  Cost all_;
};

// Loaders `first` to `last` own a source.
struct Owners {
  int first = 0, last = 0;
  bool operator==(const Owners&) const = default;
};

// Divides the sources, in their order, among loaders that have as much to do each: light sources share a loader, a
// heavy one has several.
std::vector<Owners> divide_sources(std::span<const double> loads, int loaders);

// Returns the load of the fullest loader over their mean, where each is filled before the next one; 1 where there is no
// load.
double fullness(std::span<const double> loads, std::span<const Owners> owners, int loaders);

// Returns which windows of a batch each loader reads, in their order. One of a source with several owners goes to that
// which has least to do.
std::vector<std::vector<std::size_t>> deal(std::span<const Window> windows, std::span<const Owners> owners,
                                           const SourceCosts& costs, int loaders);

// How a batch went.
struct BatchTimes {
  double period_s = 0;   // since the batch before
  double waited_s = 0;   // of which no slot was free: the ranks have what they need
  double read_s = 0;     // what reading took all loaders, taken together
  bool is_late = false;  // a rank waited for it
};

// How many loaders there are: more only where ranks wait for them, fewer only where the rest will do with ease. Between
// the two the number stays, so that it does not go up and down.
class LoaderCount {
 public:
  // Batches that are looked at together.
  static constexpr int kReview = 16;

  explicit LoaderCount(int most, int now = 1) : most_(most), now_(now) {}

  int most() const { return most_; }
  int now() const { return now_; }
  // No more than these are to be had.
  void limit(int most) { most_ = now_ = most; }
  // Adds a batch; returns whether these were enough for a review.
  bool add(const BatchTimes& batch);

 private:
  int most_, now_, batches_ = 0;
  BatchTimes sum_;
  int late_ = 0;
};

}  // namespace ms::data
