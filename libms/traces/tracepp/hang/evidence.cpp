// Implements find_hang of hang.h: joins what the sources of one hang say, each by itself, to one answer. Sources count
// as independent: a rank that two of them name is likelier than by each, one that another source contradicts is less
// so.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "tracepp/hang/witness_judge.h"

namespace ms::tracepp {
namespace {

constexpr double kMostSure = 0.97, kLeastOpen = 0.05;  // sources share blind spots
constexpr double kAlive = 0.3;                         // times the confidence that a process is gone which is seen
constexpr double kCertain = 0.5, kSureEnough = 0.8;
constexpr double kMoment = 0.5;  // at most, of what one moment shows beside traces of a run that is well
constexpr int kUnnumbered = 1 << 29;

struct Voice {
  HangSource source;
  Hang hang;
  bool sees_progress = false;  // so that it shows a run that is well
};

// How much a reason tells: of several sources that name a rank, the one that says most is quoted.
int detail_of(Reason reason) {
  constexpr std::array<int, 15> kDetail{0, 3, 3, 2, 1, 4, 4, 1, 4, 4, 4, 4, 4, 3, 0};
  const auto i = static_cast<std::size_t>(reason);
  return i < kDetail.size() ? kDetail[i] : 0;
}

bool is_gone(Reason reason) { return reason == Reason::no_trace || reason == Reason::silent; }
bool is_well(RunState state) { return state == RunState::cut_off || state == RunState::ended; }
bool is_address(std::string_view host) { return host.find_first_not_of("0123456789.:abcdefABCDEF") == host.npos; }

class Joiner {
 public:
  Joiner(Hang traces, const RunTrace& trace, double now_s) : hang_(std::move(traces)), trace_(trace) {
    const Witnesses& seen = trace.witnesses;
    if (trace.ranks.empty()) hang_.state = RunState::unknown;
    if (!trace.ranks.empty()) hear(std::string(trace.source->name), hang_, true);
    for (const RunTrace& log : trace.logs) hear(std::string(log.source->name), find_hang(log, now_s));
    if (!seen.ras.empty()) hear("NCCL's RAS", of_this_job(seen.ras));
    if (!seen.stacks.empty()) hear("stacks", judge_stacks(seen.stacks));
    hear_progress();
    if (Hang lines = judge_lines(seen.lines, voices_.empty()); !lines.sentence.empty()) hear("lines of the log", lines);
  }

  Hang join() {
    know();
    identify();
    doubt_gone();
    std::vector<Voice*> naming;
    for (Voice& voice : voices_)
      if (!voice.hang.suspects.empty()) naming.push_back(&voice);
    if (naming.size() == 1) {
      quote(*naming.front());
    } else if (naming.size() > 1) {
      weigh(naming);
    } else if (const Voice* const well = seen_well(); trace_.ranks.empty() && well != nullptr) {
      hang_.state = well->hang.state;
      hang_.sentence = well->hang.sentence;
    } else if (trace_.ranks.empty() && !voices_.empty()) {
      const bool hangs = std::ranges::any_of(
          voices_, [](const Voice& it) { return it.sees_progress && it.hang.state == RunState::hang; });
      hang_.state = hangs ? RunState::hang : RunState::unknown;
      hang_.sentence = "nothing tells which rank is at fault";
      for (const Voice& voice : voices_)
        hang_.sentence += fmt::format("; {}: {}", voice.source.name, voice.hang.sentence);
    }
    heed_well(naming);
    for (Voice& voice : voices_) hang_.sources.push_back(std::move(voice.source));
    hang_.collect = next();
    return std::move(hang_);
  }

 private:
  // On a node with two jobs, RAS answers for the one that began first.
  Hang of_this_job(const std::vector<RasReport>& reports) const {
    std::int64_t world = 0, told = 0;
    for (const ProcessGroup& group : trace_.groups) world = std::max(world, std::ssize(group.ranks));
    for (const RasReport& report : reports) told = std::max(told, report.world);
    if (told == 0 || world == 0 || told == world) return judge_ras(reports);
    Hang hang;
    hang.state = RunState::unknown;
    hang.sentence =
        fmt::format("it is of {} processes, the traces of {} ranks: another job, or not all have joined", told, world);
    return hang;
  }

  void hear(std::string name, const Hang& hang, bool sees_progress = false) {
    voices_.push_back({{.name = std::move(name), .state = hang.state, .sentence = hang.sentence}, hang, sees_progress});
    if (!hang.suspects.empty()) voices_.back().source.stance = Stance::differs;
  }

  void hear_progress() {
    std::int64_t now_ns = 0;  // files may be of long ago: only what other sources saw is of one moment
    std::map<std::string, std::vector<ProgressReport>> sources;
    for (const ProgressReport& report : trace_.witnesses.progress) {
      sources[report.source].push_back(report);
      now_ns = std::max(now_ns, report.written_ns);
    }
    for (const RasReport& report : trace_.witnesses.ras) now_ns = std::max(now_ns, report.file_ns);
    for (const RankTrace& rank : trace_.ranks)
      if (trace_.source->is_dump && rank.is_flush_time_known) now_ns = std::max(now_ns, rank.last_flush_ns);
    for (const auto& [name, reports] : sources) hear(name, judge_progress(reports, now_ns), true);
  }

  // Collects which process is of which rank.
  void know() {
    const auto add = [&](const Process& it) {
      if (it.rank < 0) return;
      Process& known = processes_.try_emplace(it.rank, it).first->second;
      if (known.host.empty() || (is_address(known.host) && !it.host.empty() && !is_address(it.host)))
        known.host = it.host;
      if (known.pid == 0) known.pid = it.pid;
    };
    for (const RankTrace& rank : trace_.ranks) {
      has_made_up_ |= rank.numbered == Numbered::made_up;
      if (rank.numbered != Numbered::made_up) add({.rank = rank.rank, .host = rank.host, .pid = rank.pid});
    }
    for (const ProcessStack& stack : trace_.witnesses.stacks) {
      add(stack.process);
      if (stack.state != 'X' && stack.state != 'Z') alive_.insert(stack.process.rank);
    }
    for (const RasReport& report : trace_.witnesses.ras)
      for (const RasComm& comm : report.comms)
        for (const auto& [operation, counts] : comm.calls)
          for (const RasCount& count : counts)
            for (const Process& process : count.listed) {
              if (comm.size != report.world) break;
              add(process);
              if (report.num_dead + report.num_silent == 0) alive_.insert(process.rank);
            }
  }

  void identify() {
    for (Voice& voice : voices_) {
      for (HangSuspect& it : voice.hang.suspects) {
        if (it.rank < 0 && it.pid > 0) {
          for (const auto& [rank, process] : processes_)
            if (process.pid == it.pid && (process.host == it.host || it.host.empty() || process.host.empty()))
              it.rank = rank;
        }
        const auto known = processes_.find(it.rank);
        if (known == processes_.end()) continue;
        if (it.host.empty() || is_address(it.host)) it.host = known->second.host;
        if (it.pid == 0) it.pid = known->second.pid;
      }
    }
  }

  // A process that another source saw alive is hardly dead.
  void doubt_gone() {
    std::map<int, int> named;  // by rank: sources
    for (const Voice& voice : voices_)
      for (const HangSuspect& it : voice.hang.suspects) ++named[it.rank];
    for (Voice& voice : voices_) {
      for (HangSuspect& it : voice.hang.suspects) {
        if (!is_gone(it.reason) || !alive_.contains(it.rank) || named[it.rank] > 1) continue;
        const bool is_own = voice.source.name == "stacks" && it.reason == Reason::silent;
        if (is_own) continue;
        it.confidence *= kAlive;
        hang_.evidence.push_back(fmt::format("rank {}: its process was seen alive by another source", it.rank));
      }
    }
    for (Voice& voice : voices_)
      std::ranges::stable_sort(voice.hang.suspects, std::ranges::greater{}, &HangSuspect::confidence);
  }

  int key_of(const Voice& voice, const HangSuspect& it) {
    if (it.rank >= 0 && !(has_made_up_ && &voice == &voices_.front())) return it.rank;
    const auto id = std::tuple(it.host, it.pid, it.rank);
    return kUnnumbered + static_cast<int>(unnumbered_.try_emplace(id, unnumbered_.size()).first->second);
  }

  int root_of(int key) {
    for (auto at = parent_.find(key); at != parent_.end(); at = parent_.find(key)) key = at->second;
    return key;
  }

  // Returns a source's confidence by who is at fault. What it names besides each other, such as all ranks of a node
  // that died, is one.
  std::map<int, double> beliefs_of(const Voice& voice) {
    std::map<int, double> beliefs;
    for (const HangSuspect& it : voice.hang.suspects) beliefs[root_of(key_of(voice, it))] += it.confidence;
    for (auto& [key, belief] : beliefs) belief = std::min(belief, 1 - kLeastOpen);
    return beliefs;
  }

  void unite(const Voice& voice) {
    double sum = 0;
    for (const HangSuspect& it : voice.hang.suspects) sum += it.confidence;
    if (sum <= 1.01) return;
    int first = -1;
    for (const HangSuspect& it : voice.hang.suspects) {
      if (it.confidence < kCertain) continue;
      const int root = root_of(key_of(voice, it));
      if (first < 0) first = root;
      if (root != root_of(first)) parent_[root] = root_of(first);
    }
  }

  void weigh(const std::vector<Voice*>& naming) {
    for (const Voice* voice : naming) unite(*voice);
    std::vector<std::map<int, double>> beliefs;
    std::set<int> named;
    for (const Voice* voice : naming) {
      beliefs.push_back(beliefs_of(*voice));
      for (const auto& [key, belief] : beliefs.back()) named.insert(key);
    }
    std::map<int, double> joint;
    double sum = 0;
    constexpr int kOther = -1;
    named.insert(kOther);
    for (const int key : named) {
      double weight = 1;
      for (const std::map<int, double>& belief : beliefs) {
        double open = 1;
        for (const auto& [other, value] : belief) open -= value;
        const auto own = belief.find(key);
        const auto others = static_cast<double>(named.size() - belief.size());
        weight *= own != belief.end() ? own->second : std::max(open, kLeastOpen) / others;
      }
      sum += joint[key] = weight;
    }
    for (auto& [key, value] : joint) value = std::min(value / sum, kMostSure);
    take(naming, joint);
  }

  void take(const std::vector<Voice*>& naming, const std::map<int, double>& joint) {
    std::map<int, HangSuspect> best;  // by key
    for (Voice* const voice : naming) {
      const bool is_own = voice == &voices_.front() && !trace_.ranks.empty();
      for (const HangSuspect& it : voice->hang.suspects) {
        const auto [known, is_new] = best.try_emplace(key_of(*voice, it), it);
        HangSuspect& kept = known->second;
        if (!is_new && detail_of(it.reason) > detail_of(kept.reason)) {
          kept.reason = it.reason;
          kept.doing = it.doing;
        }
        kept.fault = std::max(kept.fault, it.fault);
        if (kept.host.empty()) kept.host = it.host;
        if (kept.pid == 0) kept.pid = it.pid;
        if (!is_own && is_new) kept.op = -1;
      }
    }
    hang_.suspects.clear();
    for (auto& [key, it] : best) {
      it.confidence = joint.at(root_of(key));
      hang_.suspects.push_back(std::move(it));
    }
    std::ranges::stable_sort(hang_.suspects, std::ranges::greater{}, &HangSuspect::confidence);
    const double most = hang_.suspects.front().confidence;
    std::set<int> lead;  // keys
    for (const auto& [key, it] : best)
      if (joint.at(root_of(key)) >= most) lead.insert(root_of(key));
    const Voice* quoted = nullptr;
    std::vector<std::string> agree, differ;
    for (Voice* const voice : naming) {
      const HangSuspect& first = voice->hang.suspects.front();
      const bool agrees = lead.size() == 1 && lead.contains(root_of(key_of(*voice, first)));
      voice->source.stance = agrees ? Stance::agrees : Stance::differs;
      if (!agrees) {
        differ.push_back(fmt::format("{} according to {}", name_of(first), voice->source.name));
        continue;
      }
      agree.push_back(voice->source.name);
      if (quoted == nullptr || detail_of(first.reason) > detail_of(quoted->hang.suspects.front().reason))
        quoted = voice;
    }
    const auto has_state = [&](RunState state) {
      return std::ranges::any_of(voices_, [&](const Voice& voice) { return voice.hang.state == state; });
    };
    hang_.state = has_state(RunState::hang)     ? RunState::hang
                  : has_state(RunState::failed) ? RunState::failed
                                                : RunState::unknown;
    if (quoted == nullptr || most < kCertain) {
      std::vector<std::string> all;
      for (const Voice* const voice : naming)
        all.push_back(fmt::format("{}: {}", voice->source.name, voice->hang.sentence));
      hang_.sentence = fmt::format("the sources contradict each other, and nothing tells which rank is at fault; {}",
                                   fmt::join(all, "; "));
      return;
    }
    hang_.sentence = quoted->hang.sentence;
    if (agree.size() > 1) hang_.sentence += fmt::format("; {} agree", fmt::join(agree, " and "));
    if (!differ.empty()) hang_.sentence += fmt::format("; but {}", fmt::join(differ, ", "));
  }

  std::string name_of(const HangSuspect& it) const {
    return process_name({.rank = it.rank, .host = it.host, .pid = it.pid});
  }

  void quote(Voice& voice) {
    voice.source.stance = Stance::agrees;
    hang_.suspects = voice.hang.suspects;
    if (&voice == &voices_.front() && !trace_.ranks.empty()) return;
    for (HangSuspect& it : hang_.suspects) it.op = -1;
    if (!trace_.ranks.empty()) hang_.sentence = voice.hang.sentence + "; " + hang_.sentence;
    if (trace_.ranks.empty()) hang_.sentence = voice.hang.sentence;
    if (voice.hang.state == RunState::hang || voice.hang.state == RunState::failed) hang_.state = voice.hang.state;
  }

  // Returns the first source that sees progress, and sees it; nullptr: none does.
  const Voice* seen_well() const {
    const auto well =
        std::ranges::find_if(voices_, [](const Voice& it) { return it.sees_progress && is_well(it.hang.state); });
    return well == voices_.end() ? nullptr : &*well;
  }

  // Progress contradicts what other sources show of one moment.
  void heed_well(const std::vector<Voice*>& naming) {
    const Voice* const well = seen_well();
    const bool is_named = std::ranges::any_of(naming, [&](const Voice* it) { return it != well; });
    if (well == nullptr || !is_named || hang_.suspects.empty()) return;
    for (HangSuspect& it : hang_.suspects) it.confidence = std::min(it.confidence, kMoment);
    hang_.state = RunState::unknown;
    hang_.sentence = fmt::format("{} show no hang ({}); if the run is stalled: {}", well->source.name,
                                 well->source.sentence, hang_.sentence);
  }

  // Returns what would make the answer surer.
  std::string next() const {
    if (!hang_.suspects.empty() && hang_.suspects.front().confidence >= kSureEnough) return "";
    const std::string who = hang_.suspects.empty() ? "every rank" : name_of(hang_.suspects.front());
    if (trace_.witnesses.stacks.empty())
      return fmt::format("the stacks of {} and of a rank that waits (py-spy dump --pid), twice", who);
    if (trace_.witnesses.ras.size() < 2) return "what NCCL's RAS prints (ncclras -f json), twice, some seconds apart";
    if (trace_.ranks.empty()) return "dumps of PyTorch's flight recorder of all ranks";
    return "";
  }

  Hang hang_;
  const RunTrace& trace_;
  std::vector<Voice> voices_;  // that of the traces first, where there are any
  std::map<int, Process> processes_;
  std::set<int> alive_;  // ranks
  std::map<std::tuple<std::string, int, int>, std::size_t> unnumbered_;
  std::map<int, int> parent_;  // of keys that are one
  bool has_made_up_ = false;
};

}  // namespace

FaultDomain fault_domain(const HangSuspect& suspect) {
  if (suspect.fault) return *suspect.fault;
  switch (suspect.reason) {
    case Reason::failed:
    case Reason::waits_alone: return FaultDomain::unknown;
    case Reason::compute: return FaultDomain::device;
    case Reason::transfer: return FaultDomain::network;
    case Reason::left:
    case Reason::missing_call:
    case Reason::extra_call:
    case Reason::wrong_kind:
    case Reason::wrong_size:
    case Reason::wrong_dtype:
    case Reason::wrong_order: return FaultDomain::program;
    default: return FaultDomain::host;
  }
}

Hang find_hang(const RunTrace& trace, double now_s) {
  const bool is_all = trace.logs.empty() && trace.witnesses.size() == 0;
  if (is_all) return hang_of_traces(trace, now_s);
  return Joiner(trace.ranks.empty() ? Hang{} : hang_of_traces(trace, now_s), trace, now_s).join();
}

}  // namespace ms::tracepp
