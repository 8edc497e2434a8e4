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
#include "driver/losses.h"
#include "driver/watcher.h"

namespace ms::driver {

struct Attempt {
  std::vector<std::string> nodes;
  std::optional<LongCommand> command;  // absent before it was started and after the attempt was judged; as the next two
  std::optional<Watcher> watcher;
  std::optional<Tail> output;
  std::optional<Alarm> alarm;
  double alarm_s = 0, ended_s = 0;       // of the alarm; when the command had ended
  std::set<std::string> awaited;         // agents that owe an answer
  std::optional<double> looked_early_s;  // when agents began to look at what may be a hang
  std::vector<NodeTask> tasks;
  std::optional<LossyNode> lossy;  // when it hung
  std::vector<SaidLine> lines;
  std::optional<TaskExit> first_exit;

  bool ended_well() const { return !alarm && command->status() == 0; }
  void take_answer(const std::string& node, const Answer& answer);
  // Writes lines of the command to the driver's own output, without the ranks that srun puts before them, and keeps
  // what they say.
  void take_output(const std::vector<std::string>& output_lines, int tasks_per_node, double now_s);
  // A line of the output; `rank`: whose it is, -1: not known.
  void take_line(std::string_view line, int rank, int tasks_per_node);
  // The node of the rank that flight recorders accuse.
  std::optional<FlightNode> flight_node(const std::optional<FlightVerdict>& verdict) const;
};

std::string evidence_json(const AttemptEvidence& evidence);

}  // namespace ms::driver
