#include "loan/memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/safe_file.h"
#include "base/text.h"
#include "base/user_path.h"
#include "base/utc.h"
#include "loan/report.h"

namespace ms::loan {
namespace {

constexpr std::size_t kMaxStateBytes = std::size_t{1} << 30;

constexpr mode_t kReadable = 0644;

const std::string kState = "state.json", kDecisions = "decisions.jsonl";

constexpr Refusal kStateRefusal{.kind = "loan.state", .blame = Blame::storage};

std::string object_of(const Action& action) { return action.node.empty() ? std::to_string(action.job) : action.node; }

Memory memory_from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    Memory memory;
    json.get_to("watched_from_s", memory.watched_from_s);
    json.get_to("seen_s", memory.seen_s);
    json.get_to("lent_s", memory.lent_s);
    for (const Json& step : json.at("demand")) {
      memory.demand.emplace_back(step.at(0).get<double>(), step.at(1).get<int>());
    }
    for (const Json& notice : json.at("notices")) {
      memory.notices[notice.at(0).get<std::uint32_t>()] = notice.at(1).get<double>();
    }
    if (json.contains("asked")) {  // not in states of earlier versions
      for (const Json& asked : json.at("asked")) {
        memory.asked[asked.at(0).get<std::uint32_t>()] = asked.at(1).get<std::string>();
      }
      memory.leaving = json.get<std::map<std::string, double>>("leaving");
      json.get_to("shrunk", memory.shrunk);
      json.get_to("returned", memory.returned);
      json.get_to("returned_s", memory.returned_s);
      json.get_to("returned_max_s", memory.returned_max_s);
    }
    if (json.contains("growing")) {  // the same
      for (const Json& told : json.at("growing")) {
        memory.growing[told.at(0).get<std::uint32_t>()] = told.at(1).get<double>();
      }
      json.get_to("scaled_s", memory.scaled_s);
      json.get_to("grown", memory.grown);
    }
    if (json.contains("handing")) {  // the same
      for (const Json& node : json.at("handing")) {
        memory.handing[node.at(0).get<std::string>()] = {.run = node.at(1).get<std::uint32_t>(),
                                                         .job = node.at(2).get<std::uint32_t>(),
                                                         .since_s = node.at(3).get<double>()};
      }
      for (const Json& job : json.at("sized")) {
        memory.sized[job.at(0).get<std::uint32_t>()] = {.nodes = job.at(1).get<int>(),
                                                        .since_s = job.at(2).get<double>()};
      }
    }
    if (json.contains("refused"))  // the same
      memory.refused = json.get<std::map<std::string, std::string>>("refused");
    if (json.contains("started")) {  // the same
      for (const Json& start : json.at("started")) {
        memory.started[start.at(0).get<std::uint32_t>()] = start.at(1).get<int>();
      }
      json.get_to("waited_s", memory.waited_s);
      json.get_to("starts", memory.starts);
      json.get_to("starts_waited_s", memory.starts_waited_s);
      json.get_to("node_s", memory.node_s);
      json.get_to("inference_s", memory.inference_s);
      json.get_to("training_s", memory.training_s);
    }
    json.get_to("preemptions", memory.preemptions);
    json.get_to("reclaimed", memory.reclaimed);
    json.get_to("lent", memory.lent);
    return memory;
  } catch (const JsonError& error) {
    throw Error("loan.state", Blame::storage, fmt::format("{} is not a state of ms-loan: {}", kState, error.what()),
                "remove it from slurm.state: demand is then recorded again before nodes are lent");
  }
}

}  // namespace

UniqueFd open_state(const std::string& directory) {
  return open_own_directory(std::filesystem::absolute(directory).string(), 0755, 0022,
                            {.kind = kStateRefusal.kind, .blame = Blame::user});
}

Memory read_memory(const UniqueFd& state) {
  const std::optional<std::string> text = read_at(state, kState, kMaxStateBytes, kStateRefusal);
  return text ? memory_from_json(*text) : Memory();
}

Memory read_memory(const std::string& directory) {
  const std::string path = directory + "/" + kState;
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return {};
  return memory_from_json(read_user_file(path, kMaxStateBytes));
}

void write_memory(const UniqueFd& state, const Memory& memory) {
  Json json{{"schema", 1},
            {"watched_from_s", memory.watched_from_s},
            {"seen_s", memory.seen_s},
            {"lent_s", memory.lent_s},
            {"demand", Json::array()},
            {"notices", Json::array()},
            {"asked", Json::array()},
            {"leaving", memory.leaving},
            {"refused", memory.refused},
            {"growing", Json::array()},
            {"handing", Json::array()},
            {"sized", Json::array()},
            {"scaled_s", memory.scaled_s},
            {"grown", memory.grown},
            {"started", Json::array()},
            {"waited_s", memory.waited_s},
            {"starts", memory.starts},
            {"starts_waited_s", memory.starts_waited_s},
            {"node_s", memory.node_s},
            {"inference_s", memory.inference_s},
            {"training_s", memory.training_s},
            {"shrunk", memory.shrunk},
            {"returned", memory.returned},
            {"returned_s", memory.returned_s},
            {"returned_max_s", memory.returned_max_s},
            {"preemptions", memory.preemptions},
            {"reclaimed", memory.reclaimed},
            {"lent", memory.lent}};
  for (const auto& [time_s, nodes] : memory.demand) json["demand"].push_back(Json{time_s, nodes});
  for (const auto& [job, time_s] : memory.notices) json["notices"].push_back(Json{job, time_s});
  for (const auto& [job, time_s] : memory.growing) json["growing"].push_back(Json{job, time_s});
  for (const auto& [node, handing] : memory.handing) {
    json["handing"].push_back(Json{node, handing.run, handing.job, handing.since_s});
  }
  for (const auto& [job, sized] : memory.sized) json["sized"].push_back(Json{job, sized.nodes, sized.since_s});
  for (const auto& [job, restarts] : memory.started) json["started"].push_back(Json{job, restarts});
  for (const auto& [job, nodes] : memory.asked) json["asked"].push_back(Json{job, nodes});
  write_at(state, kState, json.dump(1) + "\n", kReadable, kStateRefusal);
}

void note_action(const UniqueFd& state, double now_s, const Action& action) {
  const Json json{{"time", utc_text(now_s)},
                  {"action", to_string(action.step)},
                  {"object", object_of(action)},
                  {"reason", action.reason}};
  append_at(state, kDecisions, json.dump() + "\n", kStateRefusal, {.mode = kReadable});
}

std::string actions_about(const std::string& directory, std::string_view name, std::size_t most) {
  std::vector<std::string> lines;
  const std::string path = directory + "/" + kDecisions;
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) {
    if (::access(directory.c_str(), F_OK) == 0) return {};
    throw user_error("loan.state", fmt::format("there is no log of decisions: {} is not there", directory),
                     "slurm.state of the policy names it, and ms-loan act makes it when it begins");
  }
  for (const std::string& line : split(read_user_file(path, kMaxStateBytes), '\n')) {
    const std::optional<Json> json = Json::try_parse(line);
    if (!json || !json->is_object()) continue;
    const auto word = [&](const char* key) {
      return json->contains(key) && json->at(key).is_string() ? json->at(key).text() : std::string();
    };
    if (word("object") == name)
      lines.push_back(fmt::format("{}  {}: {}\n", word("time"), word("action"), word("reason")));
  }
  const std::size_t first = lines.size() - std::min(most, lines.size());
  return fmt::format("{}", fmt::join(lines.begin() + static_cast<std::ptrdiff_t>(first), lines.end(), ""));
}

void write_metrics(const UniqueFd& state, const View& view, const Memory& memory) {
  int on_loan = 0, returning = 0, used = 0;
  for (const LiveNode& node : view.nodes) {
    on_loan += node.on_loan;
    used += node.on_loan && !node.jobs.empty();
    returning += !node.on_loan && !node.jobs.empty();
  }
  std::string text;
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help, auto value) {
    text += fmt::format("# HELP ms_loan_{0} {2}\n# TYPE ms_loan_{0} {1}\nms_loan_{0} {3}\n", name, type, help, value);
  };
  add("on_loan_nodes", "gauge", "Nodes on loan.", on_loan);
  add("returning_nodes", "gauge", "Nodes that jobs on loan still have, and inference is to get.", returning);
  add("used_nodes", "gauge", "Nodes on loan that jobs use.", used);
  add("waiting_jobs", "gauge", "Jobs of the loan partition that wait.", view.waiting.size());
  add("demand_nodes", "gauge", "Nodes that inference needs.", view.demand_nodes);
  add("lent_total", "counter", "Nodes put on loan.", memory.lent);
  add("reclaimed_total", "counter", "Nodes taken back.", memory.reclaimed);
  add("preemptions_total", "counter", "Jobs queued again for it.", memory.preemptions);
  add("shrunk_total", "counter", "Elastic runs that let go of the nodes that they were asked for.", memory.shrunk);
  add("grown_total", "counter", "Elastic runs that were queued again for more nodes.", memory.grown);
  add("returned_nodes_total", "counter", "Nodes that jobs had, and that came back.", memory.returned);
  add("returned_seconds_total", "counter", "How long that took, added up.", fmt::format("{:.3f}", memory.returned_s));
  add("returned_seconds_max", "gauge", "And at most.", fmt::format("{:.3f}", memory.returned_max_s));
  const Summary waits = summary_of(memory.waited_s);
  text += fmt::format(
      "# HELP ms_loan_queue_seconds How long jobs of the loan partition had waited when they began; quantiles of the "
      "last {} starts.\n# TYPE ms_loan_queue_seconds summary\n",
      kMostWaits);
  if (!memory.waited_s.empty()) text += fmt::format("ms_loan_queue_seconds{{quantile=\"0.95\"}} {:.0f}\n", waits.p95_s);
  text += fmt::format("ms_loan_queue_seconds_sum {:.0f}\nms_loan_queue_seconds_count {}\n", memory.starts_waited_s,
                      memory.starts);
  const Usage usage = usage_of(view);
  add("usage_ratio", "gauge", "Nodes that inference needs or jobs on loan have, of all without trouble.",
      fmt::format("{:.4f}",
                  usage.nodes == 0 ? 0.0 : static_cast<double>(usage.inference + usage.training) / usage.nodes));
  add("node_seconds_total", "counter", "Node-seconds watched, of nodes without trouble.",
      fmt::format("{:.0f}", memory.node_s));
  add("inference_node_seconds_total", "counter", "Of these, the ones that inference needed.",
      fmt::format("{:.0f}", memory.inference_s));
  add("training_node_seconds_total", "counter", "Of these, the ones that jobs on loan had.",
      fmt::format("{:.0f}", memory.training_s));
  add("last_poll_seconds", "gauge", "When Slurm and demand were last read.", fmt::format("{:.0f}", view.now_s));
  write_at(state, "metrics.prom", text, kReadable, kStateRefusal);
}

}  // namespace ms::loan
