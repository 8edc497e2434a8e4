// The requests of inference that wait for a node in a replay, the oldest first, and the longest that one waited.
#pragma once

#include <algorithm>
#include <deque>
#include <iterator>

namespace ms::loan {

class Requests {
 public:
  // So many wait from now on. Where demand fell, the newest ones are withdrawn; else the oldest ones got their nodes.
  void update(double now_s, int waiting, bool demand_fell) {
    while (std::ssize(since_s_) < waiting) since_s_.push_back(now_s);
    while (std::ssize(since_s_) > waiting) {
      note(now_s - (demand_fell ? since_s_.back() : since_s_.front()));
      demand_fell ? since_s_.pop_back() : since_s_.pop_front();
    }
  }
  // Those that wait at the end of the replay have waited until then.
  void end(double now_s) {
    if (!since_s_.empty()) note(now_s - since_s_.front());
  }
  double max_wait_s() const { return max_wait_s_; }

 private:
  void note(double wait_s) { max_wait_s_ = std::max(max_wait_s_, wait_s); }

  std::deque<double> since_s_;
  double max_wait_s_ = 0;
};

}  // namespace ms::loan
