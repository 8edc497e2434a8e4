#include "health/commands/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/escape.h"
#include "base/json.h"
#include "base/text.h"
#include "health/commands/advice.h"
#include "health/commands/causes.h"

namespace ms::health {
namespace {

// Text may hold bytes of sysfs or of the kernel's log: what is no UTF-8 is replaced.
std::string dump(const Json& json) { return json.dump(2) + "\n"; }

Json number_or_null(const std::optional<double>& value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  if (*value == std::floor(*value) && std::abs(*value) < 1e15) return static_cast<std::int64_t>(*value);
  return *value;
}

Json finding_json(const Finding& finding) {
  return {{"code", finding.code},
          {"severity", to_string(finding.severity)},
          {"blame", to_string(finding.blame)},
          {"entity", finding.entity},
          {"message", finding.message},
          {"measured", number_or_null(finding.measured)},
          {"limit", number_or_null(finding.limit)},
          {"unit", finding.unit},
          {"remedy", finding.remedy}};
}

template <class Enum>
Enum parse_enum(std::string_view text, std::initializer_list<Enum> values) {
  for (const Enum value : values) {
    if (to_string(value) == text) return value;
  }
  throw JsonError(fmt::format("unknown word '{}'", text));
}

Finding finding_of(const Json& json) {
  Finding finding;
  json.get_to("code", finding.code);
  finding.severity =
      parse_enum(json.at("severity").get<std::string>(), {Severity::note, Severity::warning, Severity::critical});
  finding.blame = parse_enum(
      json.at("blame").get<std::string>(),
      {Blame::user, Blame::node, Blame::gpu, Blame::fabric, Blame::storage, Blame::slurm, Blame::peer, Blame::bug});
  json.get_to("entity", finding.entity);
  json.get_to("message", finding.message);
  if (!json.at("measured").is_null()) finding.measured = json.at("measured").get<double>();
  if (!json.at("limit").is_null()) finding.limit = json.at("limit").get<double>();
  json.get_to("unit", finding.unit);
  json.get_to("remedy", finding.remedy);
  return finding;
}

std::string nagios_word(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '|' || c == '\n' || c == '\''; }, ' ');
  return text;
}

std::size_t count(const Report& report, Outcome outcome) {
  return static_cast<std::size_t>(std::count_if(report.results.begin(), report.results.end(),
                                                [&](const Result& result) { return result.outcome == outcome; }));
}

// "21 checks passed, 4 skipped, 1 broken in 0.1s"
std::string counts(const Report& report) {
  std::string text = plural(count(report, Outcome::pass), "check") + " passed";
  if (const std::size_t n = count(report, Outcome::warn)) text += fmt::format(", {} warned", n);
  if (const std::size_t n = count(report, Outcome::critical)) text += fmt::format(", {} critical", n);
  const auto needs_root = std::count_if(report.results.begin(), report.results.end(), [](const Result& result) {
    return result.outcome == Outcome::skip && result.note.find("ermission denied") != std::string::npos;
  });
  if (const std::size_t n = count(report, Outcome::skip)) {
    text += fmt::format(", {} skipped", n) + (needs_root > 0 ? fmt::format(" ({} for want of root)", needs_root) : "");
  }
  if (const std::size_t n = count(report, Outcome::broken)) text += fmt::format(", {} broken", n);
  return text;
}

}  // namespace

std::string Report::outcome() const {
  if (count(*this, Outcome::critical) > 0) return "critical";
  if (count(*this, Outcome::warn) > 0) return "warn";
  return count(*this, Outcome::broken) > 0 || count(*this, Outcome::pass) == 0 ? "unknown" : "ok";
}

int Report::nagios_status() const {
  const std::string word = outcome();
  return word == "ok" ? 0 : word == "warn" ? 1 : word == "critical" ? 2 : 3;
}

int worst_status(const std::vector<int>& statuses) {
  const auto rank = [](int status) { return status == 2 ? 4 : status; };
  int worst = 0;
  for (const int status : statuses) {
    if (rank(status) > rank(worst)) worst = status;
  }
  return worst;
}

int worst_status(const std::vector<Report>& reports) {
  std::vector<int> statuses;
  for (const Report& report : reports) statuses.push_back(report.nagios_status());
  return worst_status(statuses);
}

std::vector<Finding> Report::findings() const {
  std::vector<Finding> all;
  for (const Result& result : results) all.insert(all.end(), result.findings.begin(), result.findings.end());
  std::stable_sort(all.begin(), all.end(), [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return all;
}

std::string as_text(const Report& report, bool verbose) {
  const bool nothing_seen = report.outcome() == "unknown" && count(report, Outcome::broken) == 0;
  std::string text;
  // Another node may have sent the report: what it says of itself is no line about others.
  const auto add_line = [&](const std::string& line) {
    text += safe_line(line);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  const std::vector<Explained> findings = by_cause(report.findings());
  for (const Explained& explained : findings) {
    const Finding& finding = explained.finding;
    const std::string indent(2 * explained.depth, ' ');
    add_line(fmt::format("{}: {}{:<8} {} {}: {}", report.node, indent, to_string(finding.severity), finding.code,
                         finding.entity, finding.message));
    if (const std::string remedy = remedy_of(explained, findings); !remedy.empty()) {
      add_line(fmt::format("{}: {}         {}", report.node, indent, remedy));
    }
  }
  for (const Result& result : report.results) {
    const bool measured = result.level > 1;  // what was measured is worth a line even if it is normal
    const bool shown =
        result.outcome == Outcome::broken || measured || ((verbose || nothing_seen) && result.findings.empty());
    if (!shown) continue;
    add_line(fmt::format("{}: {:<8} {}{}{}  {}", report.node, to_string(result.outcome), result.code,
                         result.note.empty() ? "" : ": ", result.note, verbose ? format_duration(result.wall_s) : ""));
  }
  add_line(
      fmt::format("{}: {}: {} in {}", report.node, report.outcome(), counts(report), format_duration(report.wall_s)));
  if (findings.empty()) return text;
  for (const std::string& advice : advice_of(report.node, findings))
    add_line(fmt::format("{}: {}", report.node, advice));
  return text;
}

namespace {

Json measured_json(const std::vector<Measured>& measured) {
  Json list = Json::array();
  for (const Measured& m : measured) list.push_back({{"entity", m.entity}, {"value", m.value}, {"unit", m.unit}});
  return list;
}

Json report_json(const Report& report) {
  Json json{{"schema", 1}, {"node", report.node}, {"outcome", report.outcome()}, {"seconds", report.wall_s}};
  json["findings"] = Json::array();
  const std::vector<Explained> findings = by_cause(report.findings());
  for (const Explained& explained : findings) {
    Json finding = finding_json(explained.finding);
    finding["follows_from"] = nullptr;
    if (explained.cause) {
      const Finding& cause = findings[*explained.cause].finding;
      finding["follows_from"] = {{"code", cause.code}, {"entity", cause.entity}, {"sure", explained.sure}};
    }
    json["findings"].push_back(std::move(finding));
  }
  json["checks"] = Json::array();
  for (const Result& result : report.results) {
    json["checks"].push_back({{"code", result.code},
                              {"level", result.level},
                              {"outcome", to_string(result.outcome)},
                              {"note", result.note},
                              {"measured", measured_json(result.measured)},
                              {"seconds", result.wall_s}});
  }
  return json;
}

}  // namespace

std::string as_json(const Report& report) { return dump(report_json(report)); }

std::string as_json(const std::vector<Report>& reports) {
  Json all = Json::array();
  for (const Report& report : reports) all.push_back(report_json(report));
  return dump(all);
}

Report from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    Report report{.node = json.get<std::string>("node"), .results = {}, .wall_s = json.get<double>("seconds")};
    for (const Json& check : json.at("checks")) {
      Result result{
          .code = check.get<std::string>("code"),
          .outcome = parse_enum(check.at("outcome").get<std::string>(),
                                {Outcome::pass, Outcome::warn, Outcome::critical, Outcome::skip, Outcome::broken}),
          .note = check.get<std::string>("note")};
      if (check.contains("level")) check.get_to("level", result.level);  // absent from a node with an older version
      check.get_to("seconds", result.wall_s);
      if (check.contains("measured")) {
        for (const Json& m : check.at("measured"))
          result.measured.push_back({m.get<std::string>("entity"), m.get<double>("value"), m.get<std::string>("unit")});
      }
      for (const Json& finding : json.at("findings")) {
        if (finding.get<std::string>("code") == result.code) result.findings.push_back(finding_of(finding));
      }
      report.results.push_back(std::move(result));
    }
    return report;
  } catch (const JsonError& error) {
    throw Error("report.format", Blame::node, fmt::format("this is no report of ms-diag: {}", error.what()));
  }
}

std::string as_nagios(const std::vector<Report>& reports) {
  static constexpr const char* kWords[] = {"OK", "WARNING", "CRITICAL", "UNKNOWN"};
  std::string text, numbers, passed;
  double wall_s = 0;
  for (const Report& report : reports) {
    const std::string node = reports.size() > 1 ? report.node + " " : "";
    const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + node + what; };
    for (const Finding& finding : report.findings()) {
      add(fmt::format("{} {}: {}", finding.code, finding.entity, finding.message));
      if (!finding.measured) continue;
      numbers += fmt::format(" '{}'={}", nagios_word(node + finding.code + " " + finding.entity), *finding.measured);
      if (finding.limit) numbers += fmt::format(";;{}", *finding.limit);
    }
    for (const Result& result : report.results) {
      if (result.outcome == Outcome::broken) add(fmt::format("{} is broken: {}", result.code, result.note));
    }
    passed += (passed.empty() ? "" : "; ") + node + counts(report);
    wall_s = std::max(wall_s, report.wall_s);
  }
  return fmt::format("{} - {} | 'seconds'={:.3f}s{}\n", kWords[worst_status(reports)],
                     nagios_word(text.empty() ? passed : text), wall_s, numbers);
}

namespace {

std::string policy_usable(bool usable) {
  return fmt::format(
      "# HELP ms_diag_policy_usable 0 where the policy cannot be read, so that nothing is checked.\n"
      "# TYPE ms_diag_policy_usable gauge\nms_diag_policy_usable {}\n",
      usable ? 1 : 0);
}

}  // namespace

std::string no_policy_as_prometheus() { return policy_usable(false); }

std::string as_prometheus(const std::vector<Report>& reports) {
  struct Family {
    std::string_view name, help;
    std::map<std::string, double> series;  // by labels: a series may be there only once, so the worst counts
    void add(const std::string& labels, double value) {
      const auto [place, inserted] = series.emplace(labels, value);
      if (!inserted) place->second = std::max(place->second, value);
    }
  };
  Family checks{
      "ms_diag_check_status", "Outcome of a check: 0 pass, 1 warn, 2 critical, 3 broken; skipped ones are absent.", {}};
  Family findings{"ms_diag_finding", "What was measured where a check found something; 1 where it is no number.", {}};
  Family status{"ms_diag_status", "Outcome of all: 0 ok, 1 warn, 2 critical, 3 unknown.", {}};
  Family duration{"ms_diag_duration_seconds", "How long the checks took.", {}};
  Family measured{"ms_diag_measured", "What an active check measured, whatever came of it.", {}};
  Family last_run{"ms_diag_last_run_timestamp_seconds", "When the checks last ran.", {}};
  for (const Report& report : reports) {
    const std::string node = fmt::format("node=\"{}\"", safe_label(report.node));
    for (const Result& result : report.results) {
      if (result.outcome == Outcome::skip) continue;
      checks.add(fmt::format("{},check=\"{}\"", node, safe_label(result.code)),
                 result.outcome == Outcome::broken ? 3 : static_cast<int>(result.outcome));
      for (const Measured& m : result.measured) {
        measured.add(fmt::format("{},check=\"{}\",device=\"{}\",unit=\"{}\"", node, safe_label(result.code),
                                 safe_label(m.entity), safe_label(m.unit)),
                     m.value);
      }
    }
    for (const Finding& finding : report.findings()) {
      findings.add(fmt::format("{},check=\"{}\",device=\"{}\",severity=\"{}\"", node, safe_label(finding.code),
                               safe_label(finding.entity), to_string(finding.severity)),
                   finding.measured.value_or(1));
    }
    status.add(node, report.nagios_status());
    duration.add(node, report.wall_s);
    if (report.at_wall_s > 0) last_run.add(node, std::floor(report.at_wall_s));
  }
  std::string text = policy_usable(true);
  for (const Family* family : {&checks, &findings, &status, &duration, &measured, &last_run}) {
    if (family->series.empty()) continue;
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", family->name, family->help);
    for (const auto& [labels, value] : family->series)
      text += fmt::format("{}{{{}}} {}\n", family->name, labels, value);
  }
  return text;
}

std::string list_json(const std::vector<Check>& checks) {
  std::string lines;
  for (const Check& check : checks) {
    const Json json{{"schema", 1},
                    {"code", check.code},
                    {"level", check.level},
                    {"summary", check.summary},
                    {"needs", check.needs},
                    {"deadline_s", check.deadline_s},
                    {"blame", to_string(check.blame)},
                    {"cost", to_string(check.cost)},
                    {"takes", to_strings(check.takes)},
                    {"proved", proof(check)},
                    {"user_can_cause", check.user_can_cause},
                    {"on_hang", check.on_hang ? Json(to_string(*check.on_hang)) : Json(nullptr)}};
    lines += json.dump() + "\n";
  }
  return lines;
}

}  // namespace ms::health
