// Who is at fault when a deadline passes. The rank that was waited for may itself wait, for another, and whose deadline
// passes first is chance: so before an operation fails, the ranks along the waits are asked what they wait for, until
// one is found that does not answer, waits for nobody, or has not issued what it is waited for. Pure: the worlds carry
// questions and answers, and say when nobody can be expected to answer any more.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace ms::comm {

inline constexpr int kNoGroup = -1;  // the closing of the world

// A wait for one rank, in one operation.
struct Wait {
  int peer = -1;
  int group = kNoGroup;
  std::uint64_t sequence = 0;
  std::string what;  // for messages
};

struct AgedWait {
  std::chrono::steady_clock::time_point since;
  Wait wait;
};

// What a rank answers to "you are waited for in operation `sequence` of `group`".
struct Account {
  bool issued = false;      // by its program, whether or not its stream has come to it
  std::vector<Wait> waits;  // those that are no younger than half the deadline; different peers, the oldest first
};

// The oldest of the waits for each peer, as many as an account has.
std::vector<Wait> oldest(std::vector<AgedWait> waits);

class Inquiry {
 public:
  // Waits that are followed, of each rank and in all: a handful leads to the one that all wait for.
  static constexpr std::size_t kMostWaits = 8, kMostQuestions = 64;

  // `rank` has waited for all of `peers` in an operation: the wait's peer is not used.
  Inquiry(int rank, std::chrono::nanoseconds waited, const std::vector<int>& peers, const Wait& wait);

  // The next rank to ask; it may be the one that asks. Nothing: all that are known of have been asked.
  std::optional<Wait> next_question();
  // An answer, in any order; one to what was not asked is ignored.
  void hear(int from, int group, std::uint64_t sequence, Account account);
  bool all_heard() const;

  // "rank 0 waited 30.0 s for rank 2 in <operation>; rank 2 waits for rank 3 in <operation>; rank 3 does not answer".
  // Blames the rank at fault where it is one.
  Error verdict() const;

 private:
  struct Question {
    int from;            // who waits
    std::size_t before;  // the question by which this wait became known; its own number where it is the first
    Wait wait;
    std::optional<Account> account;
  };

  void add(int from, std::size_t before, const std::vector<Wait>& waits);
  std::vector<std::size_t> at_fault(std::string& why) const;
  std::string path_to(std::size_t question) const;

  int rank_;
  std::chrono::nanoseconds waited_;
  std::vector<int> peers_;
  std::vector<Question> questions_;  // in the order in which the waits became known
  std::size_t asked_ = 0;
};

}  // namespace ms::comm
