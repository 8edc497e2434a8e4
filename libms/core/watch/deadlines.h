// Deadlines that a run learns: how long a section of a step may take before it counts as a hang. A section that was
// seen has a deadline of its own; until then the configured one holds. Pure; for one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::watch {

class Deadlines {
 public:
  // The times of a section that are remembered, and how many make a deadline: steps are many and alike, saves few.
  static constexpr std::size_t kRemembered = 64, kEnough = 4, kMostSections = 256;
  static constexpr double kTimes = 3, kSlack_s = 5, kFirstSlack_s = 30;
  static constexpr double kRegularSlack_s = 4, kSpreadTimes = 10;

  // `ceiling_s`: the configured deadline, which no learned one exceeds.
  explicit Deadlines(double ceiling_s) : ceiling_s_(ceiling_s) {}

  // A section took so long, and ended well.
  void took(std::string_view section, double seconds);
  // kTimes the longest of the remembered times and `slack_s`, or kFirstSlack_s where there are few; the ceiling where
  // there are none.
  double of(std::string_view section, double slack_s = kSlack_s) const;
  // The slack of a section whose times are known to be alike: kRegularSlack_s and kSpreadTimes what the longest of them
  // takes more than the median, kSlack_s at most. kSlack_s until half of what is remembered is there.
  double slack_s(std::string_view section) const;
  // As of(), for a deadline that ends the run, with nobody to look twice: the ceiling where there are few, and
  // otherwise at least `least_s`.
  double sure(std::string_view section, double least_s) const;
  // The median of the remembered times; nullopt: there are few.
  std::optional<double> typical_s(std::string_view section) const;
  std::optional<double> longest_s(std::string_view section) const;  // as well

 private:
  struct Times {
    std::vector<double> seconds;  // a ring
    std::size_t next = 0;
  };
  double ceiling_s_;
  std::map<std::string, Times, std::less<>> sections_;
};

}  // namespace ms::watch
