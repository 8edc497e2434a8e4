// One attempt: its processes, and the evidence of how it goes. A new attempt is a new object. Neither asks nor decides.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "driver/command.h"
#include "driver/flight.h"
#include "driver/judge.h"
#include "driver/last_words.h"
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
  bool ends_tasks = false;                                               // because a task ended badly
  std::set<std::string> awaited;                                         // agents that owe an answer
  std::optional<double> looked_early_s;  // when agents began to look at what may be a hang
  std::vector<NodeTask> tasks;
  std::optional<LossyNode> lossy;  // when it hung
  LastWords words;

  bool ended_well() const { return !alarm && command->status() == 0; }
  void take_answer(const std::string& node, const Answer& answer);
  // `tasks_per_node`: in blocks, in the order of the nodes; 0: which node a task runs on is not known.
  // Writes lines of the command to the driver's own output, without the ranks that srun puts before them, and keeps
  // what they say.
  void take_output(const std::vector<std::string>& output_lines, int tasks_per_node, double now_s);
  // Keeps what lines say that were written before.
  void take_lines(const std::vector<std::string>& output_lines, int tasks_per_node, double now_s);
  // A line of the output; `rank`: whose it is, -1: not known.
  void take_line(std::string_view line, int rank, int tasks_per_node, double now_s);
  std::vector<SaidLine> lines() const { return words.lines(trained_s()); }
  // When heartbeats last told of progress.
  std::optional<double> trained_s() const;
  // Returns the verdict with the node of its rank.
  std::optional<HangVerdict> with_node(std::optional<HangVerdict> verdict) const;
};

// Returns the evidence as JSON, with times since 1970: those of the driver's clock, of which `alarm_s` is one, plus
// `offset_s`.
std::string evidence_json(const AttemptEvidence& evidence, double alarm_s, double offset_s);

}  // namespace ms::driver
