// Who of a launch is missing while MPI_Init waits: MPI has no deadline there, and names nobody. Every process publishes
// in the launcher's key-value store that it is here, and later that it still waits; one that died or was stopped
// meanwhile does not say the second. Ranks of one node see each other die.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/process.h"
#include "comm/store_pmix.h"

namespace ms::comm {

// The error of a roll call: it names the rank that is missing, and its host where that is known.
class MissingRank : public Error {
 public:
  MissingRank(const Error& error, std::string node) : Error(error), node_(std::move(node)) {}
  const std::string& node() const { return node_; }

 private:
  std::string node_;
};

class RollCall {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Publishing a value of this rank, looking for one of another within a patience, and whether a process has died.
  struct Calls {
    std::function<void(std::string_view key, const std::string& value)> publish;
    std::function<std::optional<std::string>(int rank, std::string_view key, std::chrono::milliseconds patience)> find;
    std::function<bool(const ProcessId& process)> has_died;
  };
  // Answers of ranks that are alive come within milliseconds.
  static constexpr std::chrono::milliseconds kPatience{2000};
  // Nobody on another node is looked for before that, or a quarter of the deadline: Slurm's server of a node asks that
  // of the other, which may not have been started yet, again and again, and answers its own ranks' MPI_Init meanwhile
  // not.
  static constexpr std::chrono::milliseconds kQuiet{5000};
  static constexpr std::chrono::milliseconds kMeeting{2000};
  // While not all processes are here, the launcher may still be starting them.
  static constexpr std::chrono::milliseconds kStartDeadline{60'000};

  // The calls over a store, which outlives them.
  static Calls over(PmixStore& store);
  // Publishes that this process is here. `on_node`: the ranks of this node.
  RollCall(int rank, int size, std::vector<int> on_node, std::chrono::milliseconds deadline, Calls calls, Time now);

  // Waits until the other ranks of this node are here, at most kMeeting. Called before MPI_Init, beside which the store
  // is better not asked (comm/store_pmix.h).
  void meet();
  // Called at short intervals until MPI_Init has returned. Throws Error("comm.peer_lost") where a process of this node
  // has died, kPatience later if it had left MPI_Init, and Error("comm.deadline") where all have been here for the
  // deadline, or some have not come for the longer of it and kStartDeadline; both name the ranks. Both are MissingRank
  // where there is one.
  void check(Time now);
  // Called after MPI_Init has returned. A rank that ends later did not die in it.
  void leave();

 private:
  bool look(int rank);
  std::vector<int> without(std::string_view key, std::chrono::milliseconds patience) const;
  [[noreturn]] void fail(const MissingRank& error);

  const int rank_, size_;
  const std::vector<int> on_node_;
  const std::chrono::milliseconds deadline_, quiet_;
  const Calls calls_;
  const Time begin_;
  std::map<int, ProcessId> here_;
  std::optional<Time> all_here_, next_question_, ended_;
  bool late_ = false;  // as published
};

}  // namespace ms::comm
