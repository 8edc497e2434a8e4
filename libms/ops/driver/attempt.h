// One attempt: its processes, and the evidence of how it goes. A new attempt is a new object. Neither asks nor decides.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "driver/command.h"
#include "driver/flight.h"
#include "driver/judge.h"
#include "driver/losses.h"
#include "driver/watcher.h"

namespace ms::driver {

struct Attempt {
  std::vector<std::string> nodes;
  std::optional<LongCommand> command;  // absent before it was started and after the attempt was judged; as the next two
  std::optional<Watcher> watcher;
  std::optional<Tail> output;
  std::optional<Alarm> alarm;
  double alarm_s = 0, ended_s = 0;                                       // of the alarm; when the command had ended
  std::int64_t alarm_offset = std::numeric_limits<std::int64_t>::max();  // of the output then: its end, given or not
  std::optional<double> failed_s;                                        // when srun said first that a task ended badly
  bool ends_tasks = false;                                               // because of that
  std::set<std::string> awaited;                                         // agents that owe an answer
  std::optional<double> looked_early_s;  // when agents began to look at what may be a hang
  std::vector<NodeTask> tasks;
  std::optional<LossyNode> lossy;      // when it hung
  std::optional<TaskExit> first_exit;  // or a later one that asks for no other attempt
  bool said_usage = false;             // the command printed how it is to be called

  bool ended_well() const { return !alarm && command->status() == 0; }
  void take_answer(const std::string& node, const Answer& answer);
  // `tasks_per_node`: in blocks, in the order of the nodes; 0: which node a task runs on is not known.
  // Writes lines of the command to the driver's own output, without the ranks that srun puts before them, and keeps
  // what they say.
  void take_output(const std::vector<std::string>& output_lines, int tasks_per_node, double now_s);
  // Whether ranks printed that they do steps.
  bool printed_steps() const;
  // Keeps what lines say that were written before.
  void take_lines(const std::vector<std::string>& output_lines, int tasks_per_node, double now_s);
  // A line of the output; `rank`: whose it is, -1: not known.
  void take_line(std::string_view line, int rank, int tasks_per_node, double now_s);
  // The known lines that tell most of the end: of each row and rank the first that its rank did not outlive, or the
  // last.
  std::vector<SaidLine> lines() const;
  // Returns the verdict with the node of its rank.
  std::optional<HangVerdict> with_node(std::optional<HangVerdict> verdict) const;

 private:
  // A rank's output. So many signs in it that the rank continues mean that what it said before was not its end.
  static constexpr int kAlive = 20;
  struct Output {
    int signs = 0;
    int exceptions = 0;
    bool chained = false;  // Python says that the next exception comes of the one before, or is ignored
    bool repeats = false;  // words of other hosts
    bool in_traceback = false;
    bool failed = false;                                              // it printed an error of its own
    std::pair<std::size_t, const KnownLine*> last_cause{0, nullptr};  // the number of that line, and its row
  };
  struct Said {
    SaidLine line;
    std::size_t number = 0;  // of all lines
    int signs = 0;
    std::size_t progress = 0;
    int exceptions = 0;
    const Output *of_task = nullptr, *of_worker = nullptr;
  };
  bool is_outlived(const Said& said) const;
  std::size_t number_ = 0;
  std::size_t progress_ = 0;                       // lines that tell of steps, of any rank
  double progress_s_ = 0;                          // the last of them
  std::map<std::pair<int, int>, Output> outputs_;  // by the numbers of the task and of a worker in it, -1: not known
  std::map<std::tuple<int, int, const KnownLine*>, Said> said_;
};

// Returns the evidence as JSON, with times since 1970: those of the driver's clock, of which `alarm_s` is one, plus
// `offset_s`.
std::string evidence_json(const AttemptEvidence& evidence, double alarm_s, double offset_s);

}  // namespace ms::driver
