// Looks for an exchange whose deadline has passed, and asks the ranks along the waits why before it fails (inquiry.h).
// Of the thread that owns MPI; calls no MPI.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "comm/control.h"
#include "comm/exchange.h"
#include "comm/issue_counts.h"

namespace ms::comm {

class Overdue {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Ask = std::function<void(int peer, const Question& question)>;  // never this rank

  // `active` and `watched`: the exchanges under way, here and those that others carry; they and `issued` outlive this.
  Overdue(std::chrono::milliseconds deadline, const Exchanges& active, const Exchanges& watched,
          const IssueCounts& issued, Ask ask);

  // Throws the verdict, once all that were asked have answered or had the time to. `rank` is this rank.
  void check(int rank, Time now);
  void hear(int from, Answer answer);
  // What this rank answers.
  Account account_of(const Question& question, Time now) const;

 private:
  template <class F>
  void each(F&& f) const {  // of all that are under way
    for (const Exchanges* some : {&active_, &watched_}) {
      for (const auto& exchange : *some) f(exchange);
    }
  }

  const std::chrono::milliseconds deadline_;
  const Exchanges &active_, &watched_;
  const IssueCounts& issued_;
  const Ask ask_;
  std::shared_ptr<Exchange> exchange_;  // the one that is asked about
  std::optional<Inquiry> inquiry_;
  Time answers_until_;
};

}  // namespace ms::comm
