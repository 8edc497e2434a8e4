// Reads what the ranks of an attempt print, and keeps the lines that tell how it ended: whose words each is, which
// known line it is, and whether its rank continued after it.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "driver/judge.h"

namespace ms::driver {

// The worker of its node that torchrun saw fail first, as it prints it.
struct FirstFailure {
  std::string time;  // to the second
  int rank = -1;
};

class LastWords {
 public:
  // A line of the output. `rank`: the task that printed it, -1: not known; `node`: where that runs, "": not known.
  // `trained_s`: when heartbeats last told of progress; absent: they never did.
  void take(std::string_view line, int rank, const std::string& node, double now_s, std::optional<double> trained_s);
  // The known lines that tell most of the end: of each row and rank the first that its rank did not outlive, or the
  // last.
  std::vector<SaidLine> lines(std::optional<double> trained_s) const;
  // Whether ranks printed that they do steps.
  bool printed_steps() const;
  // The command printed how it is to be called.
  bool said_usage() const { return said_usage_; }
  // When srun said first that a task ended badly.
  std::optional<double> failed_s() const { return failed_s_; }
  // The first of these tasks, or a later one that asks for no other attempt. If its torchrun summarized its workers:
  // the worker that ended first, by the times of all summaries.
  std::optional<TaskExit> first_exit() const;

 private:
  // A rank's output. So many signs in it that the rank continues mean that what it said before was not its end.
  static constexpr int kAlive = 20;
  struct Output {
    int signs = 0;
    int exceptions = 0;
    bool chained = false;  // Python says that the next exception comes of the one before, or is ignored
    bool repeats = false;  // words of other hosts
    bool in_traceback = false;
    bool failed = false;                  // it printed an error of its own
    std::optional<FirstFailure> summary;  // whose lines are being read
    // The number of a line, and its row: of the last that tells of a cause, and of the last that may be of the end.
    std::pair<std::size_t, const KnownLine*> last_cause{0, nullptr}, last_end{0, nullptr};
    std::size_t last_link = 0;  // the number of the last line of InfiniBand's
  };
  struct Said {
    SaidLine line;
    std::size_t number = 0;  // of all lines
    int signs = 0;
    std::size_t progress = 0;
    bool ends_traceback = false;
    int exceptions = 0;
    const Output *of_task = nullptr, *of_worker = nullptr;
  };
  void note_exit(std::string_view line, double now_s);
  void read_summary(std::string_view line, const std::string& node, Output& task);
  void note_worker(const FirstFailure& worker, int code, const std::string& node, const Output& task);
  bool is_outlived(const Said& said, std::optional<double> trained_s) const;
  std::size_t number_ = 0;
  std::size_t progress_ = 0;                       // lines that tell of steps, of any rank
  double progress_s_ = 0;                          // the last of them
  std::map<std::pair<int, int>, Output> outputs_;  // by the numbers of the task and of a worker in it, -1: not known
  std::map<std::tuple<int, int, const KnownLine*>, Said> said_;
  bool said_usage_ = false;
  std::optional<double> failed_s_;
  std::optional<TaskExit> first_exit_;
  std::set<std::string> summarized_;  // nodes
  std::optional<TaskExit> first_worker_;
  std::tuple<bool, std::string, bool> worker_order_;  // the least of all
};

}  // namespace ms::driver
