#include "driver/incident.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/sysroot.h"
#include "base/text.h"
#include "base/user_path.h"
#include "driver/command.h"
#include "driver/findings.h"
#include "health/act/spool.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

constexpr std::size_t kMostEvidence_bytes = std::size_t{16} << 20, kMostFiles = 4096, kMostStates = 16384,
                      kMostMoments = 99;
constexpr std::size_t kNodesByName = 4;  // more nodes with the same moment are one
constexpr std::size_t kMostText = 400, kMostStack = 4000;

// The files of which the time and the node tell something, by the end of their names behind "attempt-N.".
struct FileKind {
  std::string_view part;
  const char *source, *text;
};
constexpr std::array<FileKind, 3> kFileKinds{
    {{"ras.", "NCCL's RAS", "RAS reported the state of all ranks"},
     {".stacks", "stacks", "the stacks of its processes were written"},
     {".devices", "devices", "the state of its GPUs, links and host was read"}}};

class IncidentReader {
 public:
  IncidentReader(const Ledger& ledger, const DriverFiles& files)
      : ledger_(ledger), files_(files), names_(Sysroot().list(std::filesystem::absolute(files.dir).string())) {
    if (names_.size() > kMostFiles) names_.resize(kMostFiles);
    if (std::ranges::count(names_, "events") > 0)
      understood(files.events(), [&] { events_ = health::spooled_events(files.events()); });
    unread_ = std::move(incident_.unread);
  }

  Incident read(const AttemptEntry& attempt, const AttemptEntry* next) {
    incident_ = {};
    incident_.attempt = &attempt;
    incident_.next = next;
    incident_.unread = unread_;
    read_times();
    read_document(files_.evidence(attempt.number), [&](const Json& json) { read_evidence(json); });
    read_document(files_.hang(attempt.number) + ".json", [&](const Json& json) { read_hang(json); });
    read_files();
    read_events();
    add_actions();
    std::ranges::stable_sort(incident_.moments, {}, &Moment::at_s);
    if (incident_.moments.size() > kMostMoments) incident_.moments.resize(kMostMoments);
    return std::move(incident_);
  }

 private:
  const AttemptEntry& attempt() const { return *incident_.attempt; }
  double end_s() const { return incident_.next != nullptr ? incident_.next->began_s : attempt().ended_s; }

  // Has a file read. What cannot be read is named on the page, which shows the rest.
  template <class F>
  void understood(const std::string& path, F&& read) {
    try {
      read();
    } catch (const JsonError& error) {
      incident_.unread.push_back(fmt::format("{}: {}", path, error.what()));
    } catch (const Error& error) { incident_.unread.push_back(error.message()); }
  }

  // The same for a JSON file of the driver's, if it is there.
  template <class F>
  void read_document(const std::string& path, F&& read) {
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    understood(path, [&] {
      const std::optional<Json> json = document_in(read_user_file(path, kMostEvidence_bytes));
      if (!json) throw JsonError("no JSON document");
      read(*json);
    });
  }

  void add(double at_s, Sort sort, std::string source, std::string node, std::string_view text) {
    incident_.moments.push_back({at_s, sort, std::move(source), std::move(node), plain_text(text, kMostText)});
  }

  // The driver knows how long the fault came before the alarm, and of an attempt without one, before its end.
  void read_times() {
    const AttemptEntry& it = attempt();
    incident_.alarm_s = it.ended_s;
    if (incident_.next != nullptr && it.recover_s > 0 && incident_.next->first_step_s > 0)
      incident_.alarm_s = std::clamp(incident_.next->first_step_s - it.recover_s, it.began_s, it.ended_s);
    incident_.fault_s = std::max(it.began_s, incident_.alarm_s - it.detect_s);
  }

  void read_evidence(const Json& json) {
    const std::string file = files_.evidence(attempt().number);
    if (const Json* alarm_s = json.find("alarm_s"); alarm_s != nullptr && alarm_s->is_number()) {
      incident_.alarm_s = std::clamp(alarm_s->get<double>(), attempt().began_s, attempt().ended_s);
      incident_.fault_s = std::max(attempt().began_s, incident_.alarm_s - attempt().detect_s);
    }
    if (const std::string alarm = json.get<std::string>("alarm"); !alarm.empty()) {
      incident_.claims.push_back({"heartbeats and agents", "", plain_text(alarm, kMostText), file});
      add(incident_.alarm_s, Sort::evidence, "alarm", "", alarm);
    }
    for (const std::string& node : json.get<std::vector<std::string>>("lost"))
      add(incident_.alarm_s, Sort::slurm, "agents and Slurm", node, "the node does not answer");
    // Ranks of an attempt that ended otherwise died when the driver ended it.
    if (attempt().cause == kWordless) {
      for (const std::string& node : json.get<std::vector<std::string>>("died_on"))
        add(incident_.fault_s, Sort::evidence, "agents", node, "a rank died here first");
    }
    for (const Json& task : json.at("tasks")) {
      if (incident_.ranks.size() >= kMostStates) break;
      const double cpu = task.get<double>("cpu");
      incident_.ranks.push_back(
          {.rank = task.get<int>("rank"),
           .node = task.get<std::string>("node"),
           .doing = fmt::format("state {}, {}{}", plain_text(task.get<std::string>("state"), 4),
                                cpu < 0 ? "CPU not known" : fmt::format("{:.0f} % of a CPU", 100 * cpu),
                                task.get<std::string>("waits_in").empty()
                                    ? ""
                                    : ", waits in " + plain_text(task.get<std::string>("waits_in"), 60)),
           .stack = task.get<std::string>("stack").substr(0, kMostStack)});
    }
    for (const Json& line : json.at("lines")) {
      const Json* const at_s = line.find("at_s");
      const Json* const rank = line.find("rank");
      const std::string who =
          rank != nullptr && rank->get<int>() >= 0 ? fmt::format("rank {}: ", rank->get<int>()) : "";
      const std::string text = who + line.get<std::string>("text");
      if (line.get<bool>("outlived")) continue;
      incident_.claims.push_back({"output, " + plain_text(line.get<std::string>("cause"), 60), "",
                                  plain_text(text, kMostText), files_.output(attempt().number)});
      if (at_s != nullptr) add(at_s->get<double>(), Sort::output, "output", line.get<std::string>("node"), text);
    }
  }

  void read_hang(const Json& json) {
    const std::string file = files_.hang(attempt().number) + ".json";
    incident_.verdict = plain_text(json.get<std::string>("sentence"), 2 * kMostText);
    incident_.collect = plain_text(json.get<std::string>("collect"), kMostText);
    for (const Json& it : json.at("suspects")) {
      const std::string host = plain_text(it.get<std::string>("host"), 60);
      const std::string who = it.at("rank").is_null() ? "a rank" : fmt::format("rank {}", it.get<int>("rank"));
      incident_.candidates.push_back({.who = host.empty() ? who : who + " on " + host,
                                      .reason = plain_text(it.get<std::string>("reason"), 40),
                                      .doing = plain_text(it.get<std::string>("doing"), kMostText),
                                      .confidence = it.get<double>("confidence")});
    }
    for (const Json& it : json.at("sources"))
      incident_.claims.push_back({plain_text(it.get<std::string>("name"), 60),
                                  plain_text(it.get<std::string>("stance"), 20),
                                  plain_text(it.get<std::string>("sentence"), kMostText), file});
    if (json.at("sources").empty()) incident_.claims.push_back({"flight recorder or RAS", "", incident_.verdict, file});
    constexpr std::size_t kEvidence = 12;
    for (const Json& it : json.at("evidence"))
      if (incident_.evidence.size() < kEvidence) incident_.evidence.push_back(plain_text(it.text(), kMostText));
  }

  // Returns when a file of the driver's was written, if that was in this incident: of a copied directory the times are
  // those of the copy.
  std::optional<double> written_s(const std::string& name) const {
    struct stat status {};
    const std::string path = files_.dir + "/" + name;
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    const double at_s = static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
    constexpr double kLongest_s = 3600;  // that a check may take
    return at_s >= incident_.fault_s && at_s <= end_s() + kLongest_s ? std::optional(at_s) : std::nullopt;
  }

  void read_files() {
    const std::string prefix = fmt::format("attempt-{}.", attempt().number);
    std::map<const FileKind*, std::map<std::string, double>> written;  // the first of a node
    for (const std::string& name : names_) {
      if (name.starts_with("check-") && name.ends_with(".json")) read_check(name);
      if (!name.starts_with(prefix)) continue;
      const std::string_view rest = std::string_view(name).substr(prefix.size());
      const std::optional<double> at_s = written_s(name);
      for (const FileKind& kind : kFileKinds) {
        const bool is_first = rest.starts_with(kind.part);
        if (!at_s || (!is_first && !rest.ends_with(kind.part))) continue;
        std::string_view node = rest;
        if (is_first) node.remove_prefix(kind.part.size());
        node = node.substr(0, is_first ? node.rfind('.') : node.size() - kind.part.size());
        const auto& [known, is_new] = written[&kind].try_emplace(std::string(node), *at_s);
        if (!is_new) known->second = std::min(known->second, *at_s);
      }
    }
    for (const auto& [kind, nodes] : written) {
      const bool is_folded = nodes.size() > kNodesByName;
      const auto first = std::ranges::min_element(nodes, {}, &std::pair<const std::string, double>::second);
      if (is_folded)
        add(first->second, Sort::evidence, kind->source, "", fmt::format("{} ({} nodes)", kind->text, nodes.size()));
      for (const auto& [node, at_s] : nodes)
        if (!is_folded || is_accused(node)) add(at_s, Sort::evidence, kind->source, node, kind->text);
    }
  }

  bool is_accused(const std::string& node) const {
    const auto has = [&](const std::vector<std::string>& nodes) { return std::ranges::count(nodes, node) > 0; };
    return has(attempt().excluded) || (attempt().suspects.size() <= kNodesByName && has(attempt().suspects));
  }

  // A report of ms-diag or ms-netcheck. A later check of the node has replaced it, if that came after this incident.
  void read_check(const std::string& name) {
    const std::optional<double> at_s = written_s(name);
    if (!at_s) return;
    const std::string node = name.substr(6, name.size() - 11);
    const bool is_network = node == "network";
    std::string text;
    understood(name, [&] { text = read_user_file(files_.dir + "/" + name, kMostEvidence_bytes); });
    const std::optional<std::string> found = is_network ? std::nullopt : critical_finding(text);
    const char* const source = is_network ? "ms-netcheck" : "ms-diag";
    const std::string said = !document_in(text) ? "gave no result, which says nothing of the node"
                             : is_network       ? "measured the network"
                             : found            ? "found " + *found
                                                : "found the node well";
    add(*at_s, Sort::check, source, is_network ? "" : node, said);
    if (!is_network) incident_.claims.push_back({source, "", plain_text(node + ": " + said, kMostText), name});
  }

  void read_events() {
    const auto is_here = [&](double at_s) { return at_s >= incident_.fault_s - 1 && at_s <= end_s() + 1; };
    for (const Note& note : ledger_.notes) {
      if (!is_here(note.at_s) && (note.at_s < attempt().began_s || note.at_s > attempt().ended_s)) continue;
      const std::string node = note.nodes.size() == 1 ? note.nodes.front() : "";
      add(note.at_s, note.code == "drain" ? Sort::slurm : Sort::evidence, note.code == "drain" ? "Slurm" : "driver",
          node, note.text);
    }
    for (const auto& [name, event] : events_)
      if (is_here(event.wall_s)) add(event.wall_s, Sort::action, "driver", "", event.kind + ": " + event.message);
  }

  void add_actions() {
    const AttemptEntry& it = attempt();
    add(incident_.fault_s, Sort::progress, it.to_step >= 0 ? "heartbeats" : "output", "",
        it.to_step >= 0 ? fmt::format("the last progress: training step {} was done", it.to_step)
                        : "the last sign of progress");
    add(it.ended_s, Sort::action, "driver", "", "the attempt was ended: " + it.cause);
    for (const std::string& node : it.excluded) add(it.ended_s, Sort::action, "driver", node, "the node was excluded");
    if (incident_.next == nullptr) return;
    add(incident_.next->began_s, Sort::action, "driver", "",
        fmt::format("attempt {} began on {}", incident_.next->number, slurm::fold_hostlist(incident_.next->nodes)));
    if (incident_.next->first_step_s > 0)
      add(incident_.next->first_step_s, Sort::progress, "heartbeats", "", "the first training step after the incident");
  }

  const Ledger& ledger_;
  const DriverFiles& files_;
  std::vector<std::string> names_;  // in the driver's directory
  std::vector<std::pair<std::string, health::Event>> events_;
  std::vector<std::string> unread_;  // of all incidents
  Incident incident_;
};

bool is_well(const AttemptEntry& attempt) {
  return attempt.ended_s == 0 || attempt.cause == "done" || attempt.cause == "stopped" ||
         attempt.cause == kResizesCause;
}

}  // namespace

std::vector<Incident> read_incidents(const Ledger& ledger, const DriverFiles& files, std::size_t most) {
  IncidentReader reader(ledger, files);
  std::vector<Incident> incidents;
  for (std::size_t i = ledger.attempts.size(); i-- > 0 && incidents.size() < most;)
    if (!is_well(ledger.attempts[i]))
      incidents.push_back(
          reader.read(ledger.attempts[i], i + 1 < ledger.attempts.size() ? &ledger.attempts[i + 1] : nullptr));
  return incidents;
}

std::set<std::string> nodes_of(const Incident& incident) {
  std::set<std::string> nodes(incident.attempt->excluded.begin(), incident.attempt->excluded.end());
  // Where all are suspects, none is.
  if (incident.attempt->suspects.size() < incident.attempt->nodes.size())
    nodes.insert(incident.attempt->suspects.begin(), incident.attempt->suspects.end());
  for (const Moment& moment : incident.moments)
    if (!moment.node.empty()) nodes.insert(moment.node);
  return nodes;
}

}  // namespace ms::driver
