// Detects exchanges past their deadline. Before one fails, asks the ranks along the chain of waits for their state
// (inquiry.h), to name the rank at fault, and ranks of other nodes whether they can be reached: a node that has lost
// most of the others accuses only itself. Used by the thread that owns MPI; calls no MPI.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "comm/control.h"
#include "comm/exchange.h"
#include "comm/issue_counts.h"
#include "comm/patience.h"

namespace ms::comm {

class DeadlineMonitor {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Ask = std::function<void(int peer, const Question& question)>;  // `peer` is never this rank

  // `active`: exchanges that this service carries; `watched`: those that another backend carries. All must outlive the
  // monitor.
  DeadlineMonitor(const Patience& patience, const Exchanges& active, const Exchanges& watched,
                  const IssueCounts& issued, Ask ask);

  // Ranks of each other node, one or two, of all or of some nodes.
  void set_other_nodes(std::vector<std::vector<int>> nodes) { other_nodes_ = std::move(nodes); }
  // Throws Error("comm.deadline"), or Error("comm.cut_off"), which blames this rank, once all ranks asked have answered
  // or had the time to. Below the ceiling of its patience it goes on waiting for ranks that are busy. `rank` is this
  // rank.
  void check(int rank, Time now);
  void add_answer(int from, Answer answer);
  // Returns this rank's answer to a question.
  WaitReport report_for(const Question& question, Time now) const;

 private:
  template <class F>
  void each(F&& f) const {  // calls f for every exchange in progress
    for (const Exchanges* some : {&active_, &watched_}) {
      for (const auto& exchange : *some) f(exchange);
    }
  }

  std::chrono::nanoseconds waited(const Exchange& exchange, Time now) const {
    return now - std::max(exchange.posted, here_since_);
  }
  void look_at_clock(Time now);

  const Patience& patience_;
  const Exchanges &active_, &watched_;
  const IssueCounts& issued_;
  const Ask ask_;
  // Answers are awaited for so long: this process looks late at its clock where processors are short, and others answer
  // as late.
  std::chrono::nanoseconds answers_within() const;

  std::shared_ptr<Exchange> exchange_;  // the exchange past its deadline, while the inquiry runs
  std::optional<Inquiry> inquiry_;
  Time asked_, ask_after_;
  std::optional<Time> busy_;                  // the last time that a peer was found busy
  std::chrono::nanoseconds longest_pause_{};  // between two checks, since the inquiry began
  Time here_since_;                           // this process was stopped until then
  std::optional<Time> checked_;               // the last time
  std::vector<std::vector<int>> other_nodes_;
  std::set<int> reached_;  // ranks that have answered in this inquiry

  Error error(int rank) const;
};

}  // namespace ms::comm
