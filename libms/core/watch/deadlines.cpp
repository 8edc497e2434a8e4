#include "watch/deadlines.h"

#include <algorithm>

namespace ms::watch {

void Deadlines::took(std::string_view section, double seconds) {
  auto found = sections_.find(section);
  if (found == sections_.end()) {
    if (sections_.size() == kMostSections) return;  // names that are made up in each step have no usual time
    found = sections_.emplace(std::string(section), Times{}).first;
  }
  Times& times = found->second;
  if (times.seconds.size() < kRemembered) {
    times.seconds.push_back(seconds);
  } else {
    times.seconds[times.next++ % kRemembered] = seconds;
  }
}

double Deadlines::of(std::string_view section, double slack_s) const {
  const auto found = sections_.find(section);
  if (found == sections_.end()) return ceiling_s_;
  const std::vector<double>& seconds = found->second.seconds;
  if (seconds.size() < kEnough) slack_s = kFirstSlack_s;
  return std::min(ceiling_s_, kTimes * *std::ranges::max_element(seconds) + slack_s);
}

double Deadlines::slack_s(std::string_view section) const {
  const auto found = sections_.find(section);
  if (found == sections_.end() || found->second.seconds.size() < kRemembered / 2) return kSlack_s;
  const double spread_s = std::ranges::max(found->second.seconds) - *typical_s(section);
  return std::min(kSlack_s, kRegularSlack_s + kSpreadTimes * spread_s);
}

double Deadlines::sure(std::string_view section, double least_s) const {
  return typical_s(section) ? std::min(ceiling_s_, std::max(least_s, of(section))) : ceiling_s_;
}

std::optional<double> Deadlines::longest_s(std::string_view section) const {
  const auto found = sections_.find(section);
  if (found == sections_.end() || found->second.seconds.size() < kEnough) return std::nullopt;
  return std::ranges::max(found->second.seconds);
}

std::optional<double> Deadlines::typical_s(std::string_view section) const {
  const auto found = sections_.find(section);
  if (found == sections_.end() || found->second.seconds.size() < kEnough) return std::nullopt;
  std::vector<double> seconds = found->second.seconds;
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

}  // namespace ms::watch
