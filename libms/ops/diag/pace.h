// How large the work of an active check is and how often it is repeated: as much as ends before its deadline on this
// machine, as slow and as busy as it is now. The work comes in rounds. They begin small, and grow for as long as a
// larger one and all that follows it are expected to end in time.
#pragma once

#include <cstdint>

namespace ms::diag {

struct Work {
  std::int64_t first = 1;  // size of the first round, which ends in time on any machine
  std::int64_t least = 1;  // of a round whose time tells something
  std::int64_t most = 1;   // of the round that is wanted
  int power = 1;           // a round of twice the size costs 2^power times as much
  double fresh = 1;        // the first round of a size costs so many times as much as another one, at least
  double seconds = 0;      // rounds of the last size are repeated for so long
  int rounds = 1;          // and at least so often
  int most_rounds = 1000;
  int tail = 0;  // what comes after the last round takes as long as so many of them
};

// Pure: ranks that are told the same numbers take the same decisions.
class Pace {
 public:
  explicit Pace(const Work& work);

  bool more() const { return more_; }            // there is another round to do,
  std::int64_t size() const { return size_; }    // of this size; of the last one if there is none
  bool is_counted() const { return !growing_; }  // its time is one of those that count

  // The round took `seconds`, as long as the slowest took; `left_s` are left for all that is still to come.
  void ended(double seconds, double left_s);

  const Work& work() const { return work_; }
  bool is_less() const { return size_ < work_.most; }  // than was wanted
  int rounds() const { return rounds_; }               // that count
  double total_s() const { return total_s_; }          // of those
  double best_s() const { return best_s_; }
  bool is_measured() const { return !more_ && size_ >= work_.least && rounds_ >= work_.rounds; }
  // Throws NotMeasured unless is_measured().
  void require_measured() const;

 private:
  void grow(double seconds, double left_s);
  std::int64_t next_size(double seconds, double left_s) const;

  Work work_;
  std::int64_t size_;
  bool more_ = true, growing_ = true;
  int rounds_ = 0;
  double total_s_ = 0, best_s_ = 0, longest_s_ = 0;
};

}  // namespace ms::diag
