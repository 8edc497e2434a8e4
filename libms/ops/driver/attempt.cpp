#include "driver/attempt.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/print.h"
#include "base/text.h"

namespace ms::driver {
namespace {

constexpr std::size_t kMostLines = 64;

}  // namespace

void Attempt::take_answer(const std::string& node, const Answer& answer) {
  for (const TaskEvidence& task : answer.tasks)
    tasks.push_back({.node = node, .task = task, .step = watcher ? watcher->steps_of(task.rank) : -1});
}

void Attempt::take_output(const std::vector<std::string>& output_lines, int tasks_per_node, double now_s) {
  if (watcher) watcher->output(now_s);
  for (const std::string& text : output_lines) {
    std::string_view line = text;
    const int rank = take_label(line);
    write_bytes(fmt::format("{}\n", line));
    take_line(line, rank, tasks_per_node);
  }
}

void Attempt::take_line(std::string_view line, int rank, int tasks_per_node) {
  if (!first_exit) first_exit = task_exit(line);
  const KnownLine* known = known_line(line);
  if (known == nullptr || lines.size() >= kMostLines) return;
  const auto index = static_cast<std::size_t>(rank / tasks_per_node);
  const std::string node = rank >= 0 && index < nodes.size() ? nodes[index] : "";
  lines.push_back({.known = known, .node = node, .text = plain_text(line, 300)});
}

std::optional<FlightNode> Attempt::flight_node(const std::optional<FlightVerdict>& verdict) const {
  if (!verdict) return std::nullopt;
  const auto node_of = [&]() -> std::string {
    for (const std::string& node : nodes) {
      if (!verdict->host.empty() && node == verdict->host.substr(0, verdict->host.find('.'))) return node;
    }
    for (const NodeTask& task : tasks) {
      if (task.task.rank == verdict->rank) return task.node;
    }
    const auto known = watcher->ranks().find(verdict->rank);
    return known == watcher->ranks().end() ? "" : known->second.node;
  };
  return FlightNode{
      .node = node_of(), .confidence = verdict->confidence, .mismatch = verdict->mismatch, .why = verdict->why};
}

std::string evidence_json(const AttemptEvidence& evidence) {
  Json tasks = Json::array(), lines = Json::array();
  for (const NodeTask& t : evidence.tasks) {
    tasks.push_back({{"node", t.node},
                     {"rank", t.task.rank},
                     {"step", t.step},
                     {"pid", t.task.pid},
                     {"state", std::string(1, t.task.state)},
                     {"cpu", t.task.cpu},
                     {"waits_in", t.task.waits_in},
                     {"stack", t.task.stack}});
  }
  for (const SaidLine& line : evidence.lines) {
    lines.push_back({{"node", line.node}, {"cause", line.known->cause}, {"text", line.text}});
  }
  Json json{{"schema", 1}, {"alarm", evidence.alarm ? evidence.alarm->why : ""}};
  json["lost"] = evidence.lost;
  json["died_on"] = evidence.died_on;
  json["tasks"] = std::move(tasks);
  json["lines"] = std::move(lines);
  return json.dump(2) + "\n";
}

}  // namespace ms::driver
