#include "driver/status.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utc.h"
#include "driver/time_spent.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

constexpr double kStale_s = 10;  // since the driver wrote its status, which it does once a second

// Takes each of the ranks' numbers from the lowest rank that has it: a loss is the same on all that know it.
std::map<std::string, double> numbers_of(const Watcher& watcher) {
  std::map<std::string, double> numbers;
  for (const auto& [rank, known] : watcher.ranks()) {
    for (const auto& [name, value] : known.state.numbers) numbers.try_emplace(name, value);
  }
  return numbers;
}

std::string seconds_or_dash(double seconds) { return seconds > 0 ? fmt::format("{:.1f} s", seconds) : "-"; }

std::string steps_of(const AttemptEntry& attempt) {
  if (attempt.from_step < 0) return "-";
  return fmt::format("{} to {}", attempt.from_step, attempt.to_step);
}

}  // namespace

std::string slow_text(const Pace::Slow& slow) {
  return fmt::format("steps take {:.1f} times as long as before, {:.2f} s instead of {:.2f} s; {}", slow.times(),
                     slow.step_s, slow.usual_s, slow.why);
}

std::string status_json(const Status& s, double wall_s, double now_s) {
  Json nodes = Json::array();
  for (const auto& [name, node] : s.pool.nodes()) {
    const auto strikes = s.ledger.strikes.find(name);
    Json row{{"node", name},
             {"role", to_string(node.role)},
             {"strikes", strikes == s.ledger.strikes.end() ? 0 : strikes->second}};
    if (!node.why.empty()) row["why"] = node.why;
    if (const auto why = s.ledger.unheard.find(name); why != s.ledger.unheard.end()) row["unheard"] = why->second;
    nodes.push_back(std::move(row));
  }
  Json json{{"schema", 1}, {"phase", s.phase}, {"job", s.job}, {"job_id", s.job_id}, {"written_s", wall_s}};
  json["attempt"] = s.ledger.attempts.empty() ? 0 : s.ledger.attempts.back().number;
  json["effective"] = time_spent(s.ledger, wall_s).effective();
  json["nodes"] = std::move(nodes);
  if (s.slow != nullptr) {
    json["slow"] = {{"usual_s", s.slow->usual_s},
                    {"step_s", s.slow->step_s},
                    {"times", s.slow->times()},
                    {"node", s.slow->node},
                    {"text", slow_text(*s.slow)}};
  }
  if (s.watcher != nullptr) {
    json["steps"] = s.watcher->steps();
    json["deadline_s"] = s.watcher->deadline_s(now_s);
    json["progress_age_s"] = now_s - s.watcher->last_progress_s();
    Json numbers = Json::object();
    numbers.update(Json(numbers_of(*s.watcher)));
    json["numbers"] = std::move(numbers);
    Json ranks = Json::array();
    for (const auto& [number, rank] : s.watcher->ranks()) {
      ranks.push_back({{"rank", number},
                       {"node", rank.node},
                       {"step", rank.state.step},
                       {"section", rank.state.section},
                       {"section_s", now_s - rank.changed_s},
                       {"alive", rank.state.alive}});
    }
    json["ranks"] = std::move(ranks);
  }
  return json.dump(2) + "\n";
}

std::string status_metrics(const Status& s, double wall_s, double now_s) {
  std::string text;
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    text +=
        fmt::format("# HELP ms_driver_{0} {1}\n# TYPE ms_driver_{0} gauge\nms_driver_{0} {2:.9g}\n", name, help, value);
  };
  gauge("attempts", "Attempts so far.", static_cast<double>(s.ledger.attempts.size()));
  gauge("effective", "Share of the wall time that trained steps which were kept.",
        time_spent(s.ledger, wall_s).effective());
  text += "# HELP ms_driver_time_seconds Wall time by what it went into.\n# TYPE ms_driver_time_seconds gauge\n";
  const TimeSpent spent = time_spent(s.ledger, wall_s);
  for (const auto& [kind, name] : kSpent)
    text += fmt::format("ms_driver_time_seconds{{type=\"{}\"}} {:.3f}\n", name, spent[kind]);
  gauge("training", "1 while an attempt runs.", s.phase == "trains" ? 1 : 0);
  text += "# HELP ms_driver_nodes Nodes by role.\n# TYPE ms_driver_nodes gauge\n";
  for (const NodeRole role :
       {NodeRole::works, NodeRole::spare, NodeRole::suspect, NodeRole::lost, NodeRole::unusable, NodeRole::excluded}) {
    text += fmt::format("ms_driver_nodes{{role=\"{}\"}} {}\n", to_string(role), s.pool.with(role).size());
  }
  if (s.watcher == nullptr) return text;
  gauge("steps", "Steps done.", static_cast<double>(s.watcher->steps()));
  gauge("slowdown", "Length of a step against its usual one, where the run got slower.", s.slow ? s.slow->times() : 1);
  gauge("progress_age_seconds", "Seconds since a rank made progress.", now_s - s.watcher->last_progress_s());
  // Names of a heartbeat's numbers are words that Prometheus takes as they are.
  for (const auto& [name, value] : numbers_of(*s.watcher)) {
    text += fmt::format("# TYPE ms_run_{0} gauge\nms_run_{0} {1:.9g}\n", name, value);
  }
  return text;
}

std::string status_text(std::string_view document, double age_s, std::optional<bool> runs) {
  try {
    const Json json = Json::parse(document, {.max_depth = 8});
    const std::string phase = json.get<std::string>("phase");
    std::string text = fmt::format("job {}, attempt {}: {}", plain_text(json.get<std::string>("job"), 40),
                                   json.get<int>("attempt"), plain_text(phase, 20));
    if (const Json* steps = json.find("steps"); steps != nullptr && steps->get<std::int64_t>() >= 0) {
      text += fmt::format(", {}, {} since a rank made progress", plural(steps->get<std::int64_t>(), "step"),
                          format_duration(json.get<double>("progress_age_s")));
    }
    text += fmt::format("; {:.1f} % of the time went into steps that were kept\n", 100 * json.get<double>("effective"));
    if (phase == kQueuedAgain) {
      text += "what follows is of the start before: the next one has not written here yet\n";
    } else if (phase != "ended" && runs == false) {
      text += "the job runs no longer, and the driver was ended with it\n";
    } else if (phase != "ended" && age_s > kStale_s) {
      text += fmt::format("this was written {} ago: the driver may be gone\n", format_duration(age_s));
    }
    if (const Json* slow = json.find("slow"))
      text += fmt::format("{}\n", plain_text(slow->get<std::string>("text"), 300));
    if (const Json* numbers = json.find("numbers"); numbers != nullptr && !numbers->empty()) {
      std::vector<std::string> words;
      for (const Json::Member& number : numbers->items()) {
        words.push_back(fmt::format("{} {:.5g}", plain_text(number.key, 40), number.value.get<double>()));
      }
      text += fmt::format("{}\n", fmt::join(words, ", "));
    }
    std::map<std::string, std::vector<const Json*>> ranks_of;
    if (const Json* all = json.find("ranks")) {
      for (const Json& rank : *all) ranks_of[rank.get<std::string>("node")].push_back(&rank);
    }
    TextTable table(columns("node|role|strikes>|ranks|why"));
    for (const Json& node : json.at("nodes")) {
      const std::string name = node.get<std::string>("node");
      std::vector<std::string> ranks;
      for (const Json* rank : ranks_of[name]) {
        if (ranks.size() > 8) break;
        ranks.push_back(
            ranks.size() == 8
                ? "..."
                : fmt::format("{} {}", rank->get<int>("rank"),
                              rank->get<bool>("alive") ? plain_text(rank->get<std::string>("section"), 32) : "dead"));
      }
      const Json* why = node.contains("why") ? node.find("why") : node.find("unheard");
      table.row({plain_text(name, 60), plain_text(node.get<std::string>("role"), 20),
                 std::to_string(node.get<int>("strikes")), fmt::format("{}", fmt::join(ranks, ", ")),
                 why != nullptr ? plain_text((node.contains("why") ? "" : "no heartbeats: ") + why->text(), 60) : ""});
    }
    return text + table.str();
  } catch (const JsonError& error) {
    throw Error("driver.status", Blame::storage, fmt::format("the status cannot be parsed: {}", error.what()));
  }
}

std::optional<double> written_s(std::string_view status_json) {
  const std::optional<Json> json = Json::try_parse(status_json);
  const Json* const written = json ? json->find("written_s") : nullptr;
  if (written == nullptr || !written->is_number()) return std::nullopt;
  return written->get<double>();
}

std::optional<JobStart> unended_job(std::string_view status_json) {
  const std::optional<Json> json = Json::try_parse(status_json);
  if (!json || !json->is_object()) return std::nullopt;
  const Json *phase = json->find("phase"), *job = json->find("job"), *id = json->find("job_id");
  if (phase == nullptr || job == nullptr || !job->is_string() || id == nullptr || !id->is_number_unsigned())
    return std::nullopt;
  const std::size_t dot = job->text().rfind('.');
  const bool is_over = phase->is_string() && (phase->text() == "ended" || phase->text() == kQueuedAgain);
  if (dot == std::string::npos || is_over) return std::nullopt;
  return JobStart{.job = id->get<std::uint32_t>(), .restarts = std::atoi(job->text().c_str() + dot + 1)};
}

std::string report_text(const Ledger& ledger, double wall_s) {
  TextTable table(columns("attempt>|began|nodes|steps|ended by|suspects|detect>|diagnose>|recover>"));
  double lost_s = 0, slow_s = 0;
  for (const AttemptEntry& a : ledger.attempts) {
    table.row({std::to_string(a.number), utc_text(a.began_s), slurm::fold_hostlist(a.nodes), steps_of(a),
               a.ended_s == 0 ? "(runs)" : plain_text(a.cause, 40), slurm::fold_hostlist(a.suspects),
               seconds_or_dash(a.detect_s), seconds_or_dash(a.diagnose_s), seconds_or_dash(a.recover_s)});
    lost_s += a.detect_s + a.recover_s;
    slow_s += a.slow_s;
  }
  std::string text = table.str();
  const bool has_ended = !ledger.attempts.empty() && ledger.attempts.back().ended_s != 0;
  const double last_s = std::max(ledger.began_s, has_ended ? ledger.attempts.back().ended_s : wall_s);
  const TimeSpent spent = time_spent(ledger, last_s);
  text += fmt::format("\n{} in {}; {:.1f} % of it went into steps that were kept; {} went to faults and recovery{}\n",
                      plural(ledger.attempts.size(), "attempt"), format_duration(last_s - ledger.began_s),
                      100 * spent.effective(), format_duration(lost_s),
                      slow_s > 0 ? fmt::format(", {} to slow steps", format_duration(slow_s)) : "");
  for (const auto& [kind, name] : kSpent) {
    if (spent[kind] > 0) text += fmt::format("  {:<40} {}\n", name, format_duration(spent[kind]));
  }
  for (const AttemptEntry& a : ledger.attempts) {
    if (!a.why.empty() && a.cause != "done") text += fmt::format("attempt {}: {}\n", a.number, plain_text(a.why, 300));
  }
  for (const Note& note : ledger.notes)
    text += fmt::format("{}: {}\n", utc_text(note.at_s), plain_text(note.text, 300));
  for (const auto& [node, why] : ledger.excluded) {
    text += fmt::format("{} is left out: {}\n", plain_text(node, 60), plain_text(why, 200));
  }
  for (const auto& [node, why] : ledger.unheard) {
    text += fmt::format("no heartbeats of {}: {}\n", plain_text(node, 60), plain_text(why, 200));
  }
  return text;
}

}  // namespace ms::driver
