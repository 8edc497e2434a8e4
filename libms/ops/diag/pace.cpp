#include "diag/pace.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

constexpr double kPart = 0.5;  // of the time that is left may be planned: the machine may be twice as slow later

}  // namespace

Pace::Pace(const Work& work) : work_(work), size_(std::min(work.first, work.most)) {
  MS_ASSERT(work.first > 0 && work.least <= work.most && work.rounds > 0, "rounds of {} to {}", work.first, work.most);
}

void Pace::ended(double seconds, double left_s) {
  if (growing_) return grow(seconds, left_s);
  best_s_ = rounds_ == 0 ? seconds : std::min(best_s_, seconds);
  longest_s_ = rounds_ == 0 ? seconds : std::max(longest_s_, seconds);
  total_s_ += seconds;
  ++rounds_;
  const bool enough = rounds_ >= work_.rounds && total_s_ >= work_.seconds;
  more_ = !enough && rounds_ < work_.most_rounds && (1 + work_.tail) * longest_s_ <= left_s;
}

void Pace::grow(double seconds, double left_s) {
  longest_s_ = seconds;
  const std::int64_t next = next_size(seconds, left_s);
  if (next > size_) {
    size_ = next;
    return;
  }
  growing_ = false;
  more_ = size_ >= work_.least && (1 + work_.tail) * seconds / work_.fresh <= left_s;
}

// The size of the next round, if it and what follows it end in time; else the same one.
std::int64_t Pace::next_size(double seconds, double left_s) const {
  const double all = 1 + (work_.rounds + work_.tail) / work_.fresh;  // in rounds of a new size
  const double fits = std::pow(kPart * left_s / (all * std::max(seconds, 1e-9)), 1.0 / work_.power);  // times larger
  if (work_.power > 1) return fits >= 2 ? std::min(work_.most, 2 * size_) : size_;
  if (fits < 4) {
    const auto larger = static_cast<std::int64_t>(fits * static_cast<double>(size_)) / work_.first * work_.first;
    const bool is_enough = size_ < work_.least && larger >= work_.least;
    return fits >= 2 || is_enough ? std::min(work_.most, larger) : size_;
  }
  return std::min(work_.most, 4 * size_);
}

void Pace::require_measured() const {
  if (is_measured()) return;
  throw health::NotMeasured(fmt::format("it would not be done before its deadline, as a round of {} work takes {}",
                                        size_ < work_.least ? "much less" : "its", format_duration(longest_s_)));
}

}  // namespace ms::diag
