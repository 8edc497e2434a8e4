// Finds slow nodes by tests of whole groups: a collective operation is as slow as its slowest member, so that one test
// speaks for all. Groups that are slow are halved; k slow nodes of n take about 2 k log2(n / k) tests (generalized
// binary splitting: Hwang, "A method for detecting all defective members in a population by group testing", 1972; here
// all halves of a level are tested at the same time). Pure: groups go out, times come in.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace ms::net {

class GroupSearch {
 public:
  // A time above `times` of what is normal is slow.
  GroupSearch(int nodes, double times);

  using Nodes = std::vector<int>;
  // Returns the groups to time at the same time; no node is in two. Empty: the search is done.
  const std::vector<Nodes>& next();
  // Takes one time for each group of next(): that of an all-reduce over its bus factor. It is the time that a ring's
  // slowest link costs, and does not depend on the group's size.
  void take(const std::vector<double>& seconds);

  // Returns the normal time: the fastest of the pairs that the first round tests.
  double normal_s() const { return normal_s_; }
  struct Slow {
    Nodes nodes;  // one; or two that are slow together only; or more: as a whole, and neither half of them
    int slow = 0, of = 0;
    double seconds = 0;  // of its last slow test
  };
  const std::vector<Slow>& found() const { return found_; }
  std::int64_t tests() const { return tests_; }
  int rounds() const { return rounds_; }

 private:
  // A group under test, or a single node that is tested together with a good one.
  struct Question {
    Nodes nodes;
    int slow = 0, of = 0;
    double seconds = 0;
    int halves = 0, good_halves = 0;  // under way; those that were not slow
    int parent = -1;                  // question whose half it is
  };
  bool is_slow(double seconds) const { return seconds > times_ * normal_s_; }
  void ask(Nodes nodes, int parent);
  void answer(int question, bool slow, double seconds);
  void split(int question);
  void half_done(int question, bool was_slow);
  std::optional<int> partner(const std::set<int>& busy);

  int n_;
  double times_;
  double normal_s_ = -1;
  std::vector<Question> questions_;
  std::vector<int> open_;  // questions to be tested, again or for the first time
  std::set<int> good_;     // nodes
  std::vector<Nodes> asked_;
  std::vector<int> asked_of_;  // the question that each group answers
  std::vector<Slow> found_;
  std::int64_t tests_ = 0;
  int rounds_ = 0;
  std::size_t next_partner_ = 0;
};

}  // namespace ms::net
