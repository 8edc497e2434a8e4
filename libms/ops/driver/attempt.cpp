#include "driver/attempt.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/print.h"
#include "base/text.h"

namespace ms::driver {
void Attempt::take_answer(const std::string& node, const Answer& answer) {
  for (const TaskEvidence& task : answer.tasks)
    tasks.push_back({.node = node, .task = task, .step = watcher ? watcher->steps_of(task.rank) : -1});
}

void Attempt::take_output(const std::vector<std::string>& output_lines, int tasks_per_node, double now_s) {
  if (watcher) watcher->output(now_s);
  for (const std::string& text : output_lines) {
    std::string_view line = text;
    slurm::take_label(line);
    write_bytes(fmt::format("{}\n", line));
  }
  take_lines(output_lines, tasks_per_node, now_s);
}

void Attempt::take_lines(const std::vector<std::string>& output_lines, int tasks_per_node, double now_s) {
  for (std::string_view line : output_lines) {
    const int rank = slurm::take_label(line);
    take_line(line, rank, tasks_per_node, now_s);
  }
}

void Attempt::take_line(std::string_view line, int rank, int tasks_per_node, double now_s) {
  const auto index = rank < 0 || tasks_per_node == 0 ? nodes.size() : static_cast<std::size_t>(rank / tasks_per_node);
  const std::string node = index < nodes.size() ? nodes[index] : "";
  std::string kept;
  // A progress bar writes over itself, and an error may follow it without a line end.
  for (std::string_view rest = without_colours(line, kept);;) {
    const std::size_t end = rest.find('\r');
    words.take(rest.substr(0, end), rank, node, now_s, trained_s());
    if (end == rest.npos) return;
    rest.remove_prefix(end + 1);
  }
}

std::optional<double> Attempt::trained_s() const {
  return watcher && watcher->steps() >= 0 ? std::optional(watcher->last_progress_s()) : std::nullopt;
}

std::optional<HangVerdict> Attempt::with_node(std::optional<HangVerdict> verdict) const {
  if (!verdict) return verdict;
  const auto node_of = [&]() -> std::string {
    for (const std::string& node : nodes) {
      if (!verdict->host.empty() && node == verdict->host.substr(0, verdict->host.find('.'))) return node;
    }
    if (verdict->rank < 0) return "";
    for (const NodeTask& task : tasks) {
      if (task.task.rank == verdict->rank) return task.node;
    }
    const auto known = watcher->ranks().find(verdict->rank);
    return known == watcher->ranks().end() ? "" : known->second.node;
  };
  verdict->node = node_of();
  return verdict;
}

std::string evidence_json(const AttemptEvidence& evidence, double alarm_s, double offset_s) {
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
    lines.push_back({{"at_s", line.at_s + offset_s},
                     {"node", line.node},
                     {"rank", line.rank},
                     {"cause", line.known->cause},
                     {"outlived", line.outlived},
                     {"text", line.text}});
  }
  Json json{{"schema", 1}, {"alarm", evidence.alarm ? evidence.alarm->why : ""}};
  if (evidence.alarm) json["alarm_s"] = alarm_s + offset_s;
  json["lost"] = evidence.lost;
  json["died_on"] = evidence.died_on;
  json["tasks"] = std::move(tasks);
  json["lines"] = std::move(lines);
  return json.dump(2) + "\n";
}

}  // namespace ms::driver
