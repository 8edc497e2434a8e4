// Implements judge_ras of witness_judge.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tracepp/hang/witness_judge.h"

namespace ms::tracepp {
namespace {

constexpr double kDead = 0.9, kSilent = 0.6, kStays = 0.9, kOnce = 0.7, kByOne = 0.5, kDevice = 0.7;
constexpr std::size_t kMostSuspects = 64;

using ProcessId = std::pair<std::string, int>;  // host and pid

ProcessId id_of(const Process& process) { return {process.host, process.pid}; }

// A process that has called an operation less often than others of a communicator.
struct Lag {
  Process process;
  const RasComm* comm = nullptr;
  std::string operation;
  std::int64_t calls = 0, most = 0;
  std::int64_t equal = 0;  // ranks that have called it most often
  bool others_equal = true;
};

class RasJudge {
 public:
  explicit RasJudge(const std::vector<RasReport>& reports)
      : last_(*std::ranges::max_element(reports, {},
                                        [](const RasReport& it) { return std::pair(it.file_ns, it.file); })) {
    for (const RasReport& report : reports)
      if (&report != &last_) earlier_.push_back(&report);
    for (const RasComm& comm : last_.comms) {
      const bool is_world = comm.size > 0 && comm.size == last_.world;
      const auto add = [&](const Process& it) {
        if (is_world) ranks_.emplace(id_of(it), it.rank);
      };
      for (const auto& [operation, counts] : comm.calls)
        for (const RasCount& count : counts) std::ranges::for_each(count.listed, add);
      for (const auto& [error, processes] : comm.errors) std::ranges::for_each(processes, add);
      for (const auto* list : {&comm.lost, &comm.absent, &comm.aborted}) std::ranges::for_each(*list, add);
    }
  }

  Hang judge() {
    hang_.state = RunState::unknown;
    if (judge_dead() || judge_errors() || judge_counts() || judge_absent()) return std::move(hang_);
    hang_.sentence =
        last_.is_text ? "RAS shows no rank that is behind the others, lost, or in error"
                      : "all ranks have called the same collectives equally often; RAS counts what hosts issued, so it "
                        "does not show an operation that devices or the network do not end, nor sends and recvs";
    return std::move(hang_);
  }

 private:
  Process named(Process process) const {
    const auto known = ranks_.find(id_of(process));
    process.rank = known == ranks_.end() ? -1 : known->second;
    return process;
  }

  void suspect(const Process& process, Reason reason, double confidence, std::string doing) {
    if (hang_.suspects.size() == kMostSuspects) return;
    HangSuspect& it = hang_.suspects.emplace_back();
    const Process known = named(process);
    it.rank = known.rank;
    it.host = known.host;
    it.pid = known.pid;
    it.reason = reason;
    it.confidence = confidence;
    it.doing = std::move(doing);
  }

  std::string names(const std::vector<Process>& processes) const {
    constexpr std::size_t kShown = 3;
    std::string text;
    for (std::size_t i = 0; i < std::min(processes.size(), kShown); ++i)
      text += (i > 0 ? ", " : "") + process_name(named(processes[i]));
    if (processes.size() > kShown) text += fmt::format(" and {} more", processes.size() - kShown);
    return text;
  }

  static std::optional<std::string> one_host(const std::vector<Process>& processes) {
    const auto is_first = [&](const Process& it) { return it.host == processes.front().host; };
    if (processes.size() < 2 || !std::ranges::all_of(processes, is_first)) return std::nullopt;
    return processes.front().host;
  }

  bool judge_dead() {
    const bool is_dead = last_.num_dead > 0;
    const std::int64_t number = is_dead ? last_.num_dead : last_.num_silent;
    const std::vector<Process>& listed = is_dead ? last_.dead : last_.silent;
    if (number == 0) return false;
    hang_.state = is_dead ? RunState::hang : RunState::unknown;
    const std::string what =
        is_dead ? "is considered dead by RAS: nothing reaches it" : "did not answer RAS, which it does within seconds";
    if (last_.world > 0 && 2 * number >= last_.world) {
      hang_.sentence = fmt::format(
          "{} of {} processes do not answer RAS: the network is cut, and nothing tells on which side the fault is; ask "
          "RAS on another node, too",
          number, last_.world);
      return true;
    }
    if (listed.empty()) {
      hang_.sentence = fmt::format("{} {} RAS, which does not list them: ask with ncclras -v",
                                   plural(static_cast<std::size_t>(number), "process"),
                                   is_dead ? "are considered dead by" : "did not answer");
      return true;
    }
    for (const Process& process : listed) suspect(process, Reason::silent, is_dead ? kDead : kSilent, what);
    const std::optional<std::string> host = one_host(listed);
    hang_.sentence = fmt::format("{} {}", names(listed), what);
    if (host) hang_.sentence += fmt::format("; all of them are of node {}", plain_text(*host, 60));
    return true;
  }

  // An error of the own device is of the process that reports it. One of the network is of its peer or what lies
  // between, so no rank is named.
  bool judge_errors() {
    std::map<ProcessId, Process> own, others;
    std::string text;
    for (const RasComm& comm : last_.comms) {
      for (const auto& [name, processes] : comm.errors) {
        const bool is_own = name == "Unhandled CUDA error";
        for (const Process& process : processes) (is_own ? own : others).emplace(id_of(process), process);
        if (text.size() < 300 && !processes.empty())
          text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", names(processes), plain_text(name, 60));
      }
    }
    if (own.empty() && others.empty()) return false;
    hang_.state = RunState::failed;
    hang_.sentence = "NCCL reports errors: " + text;
    if (own.size() == 1) {
      suspect(own.begin()->second, Reason::failed, kDevice, "a CUDA error");
    } else {
      hang_.sentence += "; an error of the network may be of the peer, or of what lies between";
    }
    return true;
  }

  void find_lags() {
    for (const RasComm& comm : last_.comms) {
      for (const auto& [operation, counts] : comm.calls) {
        if (counts.size() < 2) continue;
        const RasCount& top = counts.back();
        for (const Process& process : top.listed) ahead_.insert(id_of(process));
        for (const RasCount& count : counts) {
          if (&count == &top) continue;
          if (count.listed.empty()) unlisted_ += count.ranks;
          for (const Process& process : count.listed)
            lags_.push_back({process, &comm, operation, count.calls, top.calls, top.ranks, counts.size() == 2});
        }
      }
    }
  }

  // Returns the process that called one operation less and another one more often than all others: the program's
  // mistake. nullopt: none, or nothing tells which of them it is.
  std::optional<Lag> find_other_call() const {
    for (const Lag& lag : lags_) {
      for (const auto& [operation, counts] : lag.comm->calls) {
        if (operation == lag.operation || counts.size() != 2 || counts.back().ranks != 1 || counts.front().ranks < 2)
          continue;
        const auto is_same = [&](const Process& it) { return id_of(it) == id_of(lag.process); };
        const bool crosses = std::ranges::any_of(counts.back().listed, is_same) &&
                             counts.back().calls - counts.front().calls == lag.most - lag.calls;
        if (crosses && lag.equal == counts.front().ranks) return lag;
      }
    }
    return std::nullopt;
  }

  bool stays(const Lag& lag) const {
    return std::ranges::any_of(earlier_, [&](const RasReport* report) {
      const auto comm = std::ranges::find(report->comms, lag.comm->hash, &RasComm::hash);
      if (comm == report->comms.end()) return false;
      const auto counts = comm->calls.find(lag.operation);
      if (counts == comm->calls.end() || counts->second.size() < 2 || counts->second.back().calls != lag.most)
        return false;
      return std::ranges::any_of(counts->second, [&](const RasCount& count) {
        const auto is_same = [&](const Process& it) { return id_of(it) == id_of(lag.process); };
        return count.calls == lag.calls && std::ranges::any_of(count.listed, is_same);
      });
    });
  }

  double confidence_of(const Lag& lag) const {
    if (stays(lag)) return kStays;
    const bool is_clear = lag.others_equal && lag.equal >= 3 && lag.most - lag.calls >= 2;
    return earlier_.empty() && is_clear ? kOnce : kByOne;
  }

  bool judge_counts() {
    find_lags();
    if (lags_.empty() && unlisted_ == 0) return false;
    if (const std::optional<Lag> other = find_other_call()) {
      const double confidence = confidence_of(*other);
      hang_.state = confidence >= kOnce ? RunState::hang : RunState::unknown;
      suspect(other->process, Reason::wrong_kind, confidence, "calls another operation than all others");
      hang_.sentence = fmt::format(
          "{} has called {} {} times where {} others have called it {} times, and another operation as much more "
          "often: it called something else, which is the program's mistake",
          names({other->process}), plain_text(other->operation, 40), other->calls, other->equal, other->most);
      return add_doubt(*other);
    }
    std::map<ProcessId, Lag> holders;  // that wait in no other communicator
    for (const Lag& lag : lags_)
      if (!ahead_.contains(id_of(lag.process))) holders.try_emplace(id_of(lag.process), lag);
    const std::size_t number = holders.size() + static_cast<std::size_t>(unlisted_);
    hang_.state = RunState::unknown;
    if (holders.empty() && unlisted_ == 0) {
      hang_.sentence =
          "each rank that is behind in one communicator is ahead in another: they wait for each other, and nothing "
          "tells which order is right";
      hang_.state = RunState::hang;
      return true;
    }
    if (unlisted_ > 0 || holders.size() > kMostSuspects || 2 * number > most_ranks()) {
      hang_.sentence = fmt::format(
          "{} are behind in their calls, one of them holds up all others, and RAS does not tell which: the dumps or "
          "the stacks of these ranks do{}",
          plural(number, "rank"), ahead_text());
      return true;
    }
    std::vector<Process> processes;
    for (const auto& [id, lag] : holders) {
      suspect(
          lag.process, Reason::not_issuing, confidence_of(lag) / static_cast<double>(holders.size()),
          fmt::format("has called {} {} times, others {} times", plain_text(lag.operation, 40), lag.calls, lag.most));
      processes.push_back(lag.process);
    }
    const Lag& first = holders.begin()->second;
    if (stays(first) || confidence_of(first) >= kOnce) hang_.state = RunState::hang;
    hang_.sentence = fmt::format("{} {} called {} {} times, {} {} times, which wait", names(processes),
                                 processes.size() == 1 ? "has" : "have", plain_text(first.operation, 40), first.calls,
                                 plural(static_cast<std::size_t>(first.equal), "other rank"), first.most);
    if (const auto host = one_host(processes)) hang_.sentence += "; all of them are of node " + plain_text(*host, 60);
    return add_doubt(first);
  }

  bool add_doubt(const Lag& lag) {
    if (!stays(lag))
      hang_.sentence +=
          "; counts of one moment differ in a run that is well, too: ask RAS again after some seconds, and give both";
    return true;
  }

  std::size_t most_ranks() const {
    int most = 0;
    for (const Lag& lag : lags_) most = std::max(most, lag.comm->size);
    return most > 0 ? static_cast<std::size_t>(most) : lags_.size() + static_cast<std::size_t>(unlisted_);
  }

  // Returns who waits, which RAS lists where few are ahead: they are not the culprits.
  std::string ahead_text() const {
    for (const RasComm& comm : last_.comms)
      for (const auto& [operation, counts] : comm.calls)
        if (counts.size() > 1 && !counts.back().listed.empty() && counts.back().ranks <= counts.front().ranks)
          return fmt::format("; {} have called {} {} times, more than the others, and wait",
                             names(counts.back().listed), plain_text(operation, 40), counts.back().calls);
    return "";
  }

  // A rank that has not joined a communicator which others are about to make.
  bool judge_absent() {
    for (const RasComm& comm : last_.comms) {
      if (comm.absent.empty() || comm.initialising == 0 || 2 * std::ssize(comm.absent) > comm.size) continue;
      for (const Process& process : comm.absent)
        suspect(process, Reason::not_issuing, kSilent / static_cast<double>(comm.absent.size()),
                "has not joined a communicator that others make");
      hang_.sentence = fmt::format("{} ranks make a communicator of {} that {} has not joined", comm.initialising,
                                   comm.size, names(comm.absent));
      return true;
    }
    return false;
  }

  const RasReport& last_;
  std::vector<const RasReport*> earlier_;
  std::map<ProcessId, int> ranks_;  // of the run
  std::vector<Lag> lags_;
  std::set<ProcessId> ahead_;
  std::int64_t unlisted_ = 0;  // ranks that are behind, and RAS does not list
  Hang hang_;
};

// Returns the node of the files that agents of ms-driver write: "attempt-3.ras.node1.2"; empty: another file.
std::string asking_node(const std::string& path) {
  constexpr std::string_view kPart = ".ras.";
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::size_t at = name.find(kPart), end = name.rfind('.');
  if (!name.starts_with("attempt-") || at == name.npos || end < at + kPart.size()) return "";
  return name.substr(at + kPart.size(), end - at - kPart.size());
}

// Returns whether both name processes, and those most likely at fault are others.
bool differ(const Hang& one, const Hang& other) {
  const auto is_first = [](const Hang& hang, const HangSuspect& it) {
    return it.confidence >= hang.suspects.front().confidence;
  };
  if (one.suspects.empty() || other.suspects.empty()) return false;
  return std::ranges::none_of(one.suspects, [&](const HangSuspect& a) {
    return is_first(one, a) && std::ranges::any_of(other.suspects, [&](const HangSuspect& b) {
             return is_first(other, b) && a.host == b.host && a.pid == b.pid;
           });
  });
}

// Returns whether a process that is lost in one answer has answered in the reports of another node.
bool sees(const std::vector<RasReport>& reports, const Hang& hang) {
  std::set<ProcessId> lost;
  for (const HangSuspect& it : hang.suspects)
    if (it.reason == Reason::silent) lost.emplace(it.host, it.pid);
  for (const RasReport& report : reports)
    for (const RasComm& comm : report.comms)
      for (const auto& [operation, counts] : comm.calls)
        for (const RasCount& count : counts)
          for (const Process& process : count.listed)
            if (lost.contains(id_of(process))) return true;
  return false;
}

}  // namespace

std::string process_name(const Process& process) {
  std::string text = process.rank >= 0 ? fmt::format("rank {}", process.rank) : "";
  std::string parts = process.host.empty() ? "" : "node " + plain_text(process.host, 60);
  if (process.pid > 0) parts += fmt::format("{}process {}", parts.empty() ? "" : ", ", process.pid);
  if (text.empty()) return parts.empty() ? "an unnamed process" : parts;
  return parts.empty() ? text : fmt::format("{} ({})", text, parts);
}

Hang judge_ras(const std::vector<RasReport>& reports) {
  std::map<std::string, std::vector<RasReport>> by_node;  // that asked
  for (const RasReport& report : reports) by_node[asking_node(report.file)].push_back(report);
  std::vector<Hang> found;
  for (const auto& [node, own] : by_node) found.push_back(RasJudge(own).judge());
  if (found.size() == 1) return std::move(found.front());
  std::vector<std::string> sentences;
  bool contradict = false;
  for (std::size_t i = 0; const auto& [node, own] : by_node) {
    sentences.push_back(fmt::format("on {}: {}", plain_text(node, 60), found[i].sentence));
    for (const Hang& other : found) contradict = contradict || differ(found[i], other);
    for (const auto& [other, theirs] : by_node) contradict = contradict || (other != node && sees(theirs, found[i]));
    ++i;
  }
  if (contradict) {
    Hang hang;
    hang.state = RunState::unknown;
    hang.sentence =
        fmt::format("what RAS reports on two nodes is contradictory, so nothing tells which rank is at fault; {}",
                    fmt::join(sentences, "; "));
    return hang;
  }
  const auto tells = [](const Hang& hang) { return hang.suspects.empty() ? 0.0 : hang.suspects.front().confidence; };
  return std::move(*std::ranges::max_element(found, {}, tells));
}

}  // namespace ms::tracepp
