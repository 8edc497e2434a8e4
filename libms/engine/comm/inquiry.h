// Finds the rank at fault when a deadline passes. The rank that was waited for may itself wait for another, and it is
// chance whose deadline passes first. So before an operation fails, the ranks along the chain of waits are asked what
// they wait for, until one is found that does not answer, does not wait, or has not issued the operation it is waited
// for in. Pure: the worlds carry questions and answers, and decide when no more answers can be expected.
//
// A rank is blamed only on evidence of its own. Ranks of which each waits for the other in the same operation are one
// stuck transfer: their hosts know the same, and no rank is blamed. A rank that began to wait only lately has made
// progress, so what it waits for is not known to be stuck.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace ms::comm {

inline constexpr int kNoGroup = -1;   // closing the world
inline constexpr int kAnyGroup = -2;  // in a question: answered by every rank that can be reached
// In waits: the number of the wait for all members of this group to join it.
constexpr int joining_id(int group) { return -3 - group; }

// One rank's wait for another rank in one operation.
struct Wait {
  int peer = -1;
  int group = kNoGroup;
  std::uint64_t sequence = 0;
  std::string what;     // for error messages
  bool recent = false;  // younger than half the asking rank's deadline
};

struct AgedWait {
  std::chrono::steady_clock::time_point since;
  Wait wait;
};

// A rank's answer to "other ranks wait for you in operation `sequence` of `group`".
struct WaitReport {
  bool issued = false;      // by its host, whether or not its stream has reached it
  std::vector<Wait> waits;  // one per peer and group, oldest first
  std::string busy = {};    // what its host does that is no hang, "waits for data" (Patience); empty: nothing
};

// Returns the oldest wait for each peer in each group, at most Inquiry::kMostWaits, oldest first.
std::vector<Wait> oldest(std::vector<AgedWait> waits);

class Inquiry {
 public:
  // Limits on the waits that are followed, per rank and in total: a handful leads to the rank that all wait for.
  static constexpr std::size_t kMostWaits = 8, kMostQuestions = 64;

  // `rank` has waited for all of `peers` in the operation of `wait`, whose peer is ignored.
  Inquiry(int rank, std::chrono::nanoseconds waited, const std::vector<int>& peers, const Wait& wait);

  // Returns the next rank to ask, which may be the asking rank itself; nullopt when all known waits have been asked
  // about.
  std::optional<Wait> next_question();
  // Adds an answer, in any order; an answer to a question that was not asked is ignored.
  void add_answer(int from, int group, std::uint64_t sequence, WaitReport report);
  bool all_answered() const;
  // Whether a rank that was asked is busy or began to wait only lately, and all those asked have answered: they may be
  // asked again later.
  bool is_excused() const;
  bool has_busy() const;  // all have answered, and one is busy

  // Returns "rank 0 waited 30.0 s for rank 2 in <operation>; rank 2 waits for rank 3 in <operation>; rank 3 does not
  // answer". Blames the rank at fault if there is exactly one; no rank where the answers do not tell.
  Error error() const;

 private:
  struct Question {
    int from;            // the rank that waits
    std::size_t before;  // index of the question whose answer named this wait; its own index for the initial ones
    Wait wait;
    std::optional<WaitReport> report;
  };

  // The questions that lead to the ranks at fault, one for each of them, and why. `stuck`: they take part in the same
  // operation, which does not end, and no rank is more at fault than another.
  struct Found {
    std::vector<std::size_t> questions;
    std::string why;
    bool stuck = false;
  };

  void add(int from, std::size_t before, const std::vector<Wait>& waits);
  Found at_fault() const;
  Found in_cycle() const;
  // Returns the ranks that are reached along waits from `from`, without it unless it is in a cycle.
  std::set<int> reached_from(int from, bool also_recent) const;
  std::string path_to(std::size_t question) const;

  int rank_;
  std::chrono::nanoseconds waited_;
  std::vector<int> peers_;
  std::vector<Question> questions_;  // in the order in which the waits became known
  std::size_t asked_ = 0;
};

}  // namespace ms::comm
