#include "driver/judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>

#include "base/json.h"
#include "driver/ledger.h"

namespace ms::driver {
namespace {

constexpr int kAborted = kSignal + 6;

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
}

int code_of(ExitCode code) { return static_cast<int>(code); }

// A node may lack the mount that the others have: such an end is no proof of the user's mistake.
std::string_view what_shells_mean(int status) {
  constexpr int kNotExecutable = 126, kNotFound = 127;
  if (status == kNotFound)
    return ", as a shell does whose command is not on the PATH: is its environment loaded there?";
  if (status == kNotExecutable) return ", as a shell does whose command is not executable";
  return "";
}

// The words for a signal that a program causes by itself; others come from outside, or from a watchdog of a library.
std::string_view word_of_crash(int status) {
  switch (status - kSignal) {
    case SIGSEGV: return "Segmentation fault";
    case SIGBUS: return "Bus error";
    case SIGILL: return "Illegal instruction";
    case SIGFPE: return "Floating point exception";
    default: return "";
  }
}

Judgement judged(Next next, std::string cause, int code, std::string why) {
  Judgement j;
  j.next = next;
  j.cause = std::move(cause);
  j.code = code;
  j.why = std::move(why);
  return j;
}

bool is_mismatch(const std::optional<HangVerdict>& joint) { return joint && joint->fault == HangFault::mismatch; }
bool is_sure(const std::optional<HangVerdict>& joint) {
  return joint && joint->is_sure() && (!joint->node.empty() || joint->fault == HangFault::program);
}

// Takes over what a verdict is sure of. A program's error accuses no node; a node is only looked at if nothing tells
// whether the cause lies there.
void take(const HangVerdict& joint, Judgement& j) {
  j.suspects.clear();
  if (joint.fault != HangFault::program) j.suspects.push_back(joint.node);
  j.accuses = joint.fault == HangFault::node;
}

// No node is at fault. A race of the program's threads may not come again, so there is another attempt.
Judgement judge_mismatch(const HangVerdict& joint, int code) {
  return judged(Next::again, std::string(kMismatchCause), code,
                "the program's ranks called different collectives, which accuses no node: " + joint.why);
}

// The line that tells why the attempt ended; nullptr: none does.
const SaidLine* decisive_line(const AttemptEvidence& e) {
  // Who was killed is more to the point than who noticed it. A watchdog aborts by itself.
  const bool was_killed = e.first_exit && e.first_exit->code > kSignal &&
                          e.first_exit->code <= kSignal + kMostSignals && e.first_exit->code != kAborted;
  // The tasks that were started print on; the job ends of the one that was not.
  const auto is_of_started = [&](const SaidLine& line) {
    return line.known->is_set_up() && line.rank >= 0 && line.known->source != "pyxis" &&
           line.known->source != slurm::kSlurmSays;
  };
  const bool is_partly_started = was_not_started(e);
  const auto order = [](const SaidLine& line) {
    if (line.known->says == Says::proof && line.outlived) return Says::hint;
    return line.known->says == Says::exception ? Says::trouble : line.known->says;
  };
  const SaidLine* first = nullptr;
  for (const SaidLine& line : e.lines) {
    if (line.outlived && line.known->says != Says::proof) continue;
    if (is_partly_started && is_of_started(line)) continue;
    if (was_killed && (line.known->says == Says::effect || line.known->is_set_up())) continue;
    if (first == nullptr || order(line) < order(*first)) first = &line;
  }
  const SaidLine* const own = first == nullptr ? nullptr : error_behind(e, *first);
  return own != nullptr ? own : first;
}

// The nodes of which ranks said the same.
std::vector<std::string> nodes_that_said(const AttemptEvidence& e, const SaidLine& said) {
  std::vector<std::string> nodes;
  for (const SaidLine& line : e.lines) {
    const bool same =
        line.known->cause == said.known->cause &&
        (said.known->says != Says::exception || slurm::without_numbers(line.text) == slurm::without_numbers(said.text));
    if (same && (!line.outlived || line.known->says == Says::proof)) add_once(nodes, line.node);
  }
  if (nodes.empty() && e.first_exit) add_once(nodes, e.first_exit->node);
  return nodes;
}

// A rank that stays behind after an error of its own makes the others wait: what it printed tells more than that. An
// error that all ranks printed, or that others than those who stand out did, is no reason for a hang.
void add_error_before_hang(const AttemptEvidence& e, bool stands_out, Judgement& j) {
  const SaidLine* line = decisive_line(e);
  if (line == nullptr || line->known->says == Says::proof || line->known->says == Says::effect ||
      line->known->says == Says::trouble || line->node.empty())
    return;
  const bool may_be_program = line->known->blame == Blame::user || line->known->blame == Blame::bug;
  const std::vector<std::string> said_on = nodes_that_said(e, *line);
  const auto said = [&](const std::string& node) { return std::ranges::find(said_on, node) != said_on.end(); };
  if (!may_be_program || std::ranges::all_of(e.nodes, said) || (stands_out && !std::ranges::all_of(j.suspects, said)))
    return;
  j.error = line->text;
  j.rank = line->rank;
  j.said_on = said_on;
  j.accuses = j.network = false;
  j.why += fmt::format("{}rank {} printed before: {}", j.why.empty() ? "" : "; ", j.rank, j.error);
}

// A run that hangs, or was told off by a rank for it.
Judgement judge_hang(const AttemptEvidence& e) {
  if (is_mismatch(e.joint)) return judge_mismatch(*e.joint, code_of(ExitCode::peer_lost));
  Judgement j = judged(Next::again, std::string(kHang), code_of(ExitCode::peer_lost), e.alarm ? e.alarm->why : "");
  std::string why, contradiction;
  bool decided = false;
  j.network = true;
  // A program, a debugger or storage can make a rank do something else than the others, or nothing.
  j.accuses = false;
  j.suspects = outliers(e.tasks, why);
  // Segments are sent again for some seconds before they tell one node from the others, the alarm may come earlier; and
  // whoever waits for lost packets may differ from the others in what it does.
  if (e.lossy) {
    j.cause = "packet_loss";
    j.suspects = {e.lossy->node};
    j.accuses = true;
    why = e.lossy->why;
  } else if (is_sure(e.joint)) {
    // A look at the tasks that shows another node contradicts it: then no one knows.
    const bool is_program = e.joint->fault == HangFault::program;
    if (is_program || j.suspects.empty() || std::ranges::count(j.suspects, e.joint->node) > 0) {
      take(*e.joint, j);
      why = e.joint->why;
      decided = true;
    } else {
      j.suspects.clear();
      contradiction = fmt::format("{}, which contradicts: ", why);
    }
  }
  if (j.suspects.empty() && !decided && e.verdict && e.verdict->code == code_of(ExitCode::peer_lost)) {
    add_once(j.suspects, e.verdict->node);
    j.accuses = !j.suspects.empty();
    why = e.verdict->message;
  }
  // Who is at fault cannot be told: all are looked at, and some of them give way to spares.
  const bool stands_out = decided || !j.suspects.empty();
  if (!stands_out) {
    j.suspects = e.nodes;
    why = e.joint ? "no rank stands out for certain: " + contradiction + e.joint->why : "no rank stands out";
  }
  if (!why.empty()) j.why += (j.why.empty() ? "" : "; ") + why;
  if (!e.lossy) add_error_before_hang(e, stands_out, j);
  return j;
}

Judgement judge_verdict(const AttemptEvidence& e) {
  const VerdictRead& v = *e.verdict;
  const auto is = [&](ExitCode code) { return v.code == code_of(code); };
  if (is(ExitCode::done)) return judged(Next::done, "done", 0, "done");
  if (is(ExitCode::stopped)) {
    const bool rolled_back = v.kind == "run.rolled_back";  // by its guard, and begins again from there
    return judged(rolled_back ? Next::again : Next::stop, rolled_back ? "rollback" : "stopped", v.code, v.message);
  }
  if (is(ExitCode::node_fault)) {
    Judgement j = judged(Next::again, v.blame == "gpu" ? "gpu_fault" : "node_fault", v.code, v.message);
    add_once(j.suspects, v.node);
    // A CUDA error that no table knows: the GPU is looked at before its node is given up.
    j.certain = v.kind != "cuda.error";
    return j;
  }
  if (is(ExitCode::storage)) return judged(Next::again, "storage", v.code, v.message);
  if (is(ExitCode::peer_lost)) {
    Judgement j = judged(Next::again, std::string(v.kind == "comm.deadline" ? kHang : "peer_lost"), v.code, v.message);
    j.network = v.kind != "replay.tie";
    if (!j.network) j.cause = v.kind;
    add_once(j.suspects, v.node);
    // Nothing tells which of the ranks it is: all are looked at.
    if (!j.network || (v.kind == "comm.deadline" && v.node.empty())) j.suspects = e.nodes;
    return j;
  }
  return judged(Next::stop, v.kind.empty() ? "failed" : v.kind, v.code, v.message);
}

// Kinds of evidence. Each returns its judgement, or nullopt if there is no evidence of its kind.

std::optional<Judgement> judge_lost_nodes(const AttemptEvidence& e) {
  if (e.lost.empty()) return std::nullopt;
  Judgement j = judged(Next::again, "node_lost", code_of(ExitCode::peer_lost),
                       e.alarm ? e.alarm->why : fmt::format("{} is gone", fmt::join(e.lost, ", ")));
  j.suspects = e.lost;
  j.certain = true;
  j.network = true;
  return j;
}

std::optional<Judgement> judge_alarm(const AttemptEvidence& e) {
  if (!e.alarm) return std::nullopt;
  std::string_view cause;
  switch (e.alarm->kind) {
    case AlarmKind::hang: return judge_hang(e);
    case AlarmKind::evicted: cause = "evicted"; break;
    case AlarmKind::finding: cause = "finding"; break;
    case AlarmKind::drained: cause = kDrained; break;
    case AlarmKind::slow: cause = kSlowNode; break;
    case AlarmKind::packet_loss: cause = "packet_loss"; break;
    default: return std::nullopt;
  }
  Judgement j = judged(Next::again, std::string(cause), code_of(ExitCode::peer_lost), e.alarm->why);
  j.accuses = e.alarm->kind != AlarmKind::drained && e.alarm->kind != AlarmKind::slow;
  if (j.accuses) j.suspects = e.alarm->nodes;
  // A switch that was overrun for some seconds may be mended.
  j.network = e.alarm->kind == AlarmKind::packet_loss;
  j.certain = j.accuses && !j.network;
  return j;
}

// The hardware of one node says that it is broken, in words that a program can repeat of another node or of another
// day: the node is looked at before it is left out, and has no strike.
std::optional<Judgement> judge_proof(const AttemptEvidence& e) {
  const SaidLine* line = decisive_line(e);
  if (line == nullptr || line->known->says != Says::proof || line->outlived || line->node.empty() ||
      nodes_that_said(e, *line).size() > 1)
    return std::nullopt;
  Judgement j = judged(Next::again, std::string(line->known->cause), code_of(ExitCode::node_fault), line->text);
  j.suspects = {line->node};
  j.accuses = false;
  j.says_broken = true;
  return j;
}

std::optional<Judgement> judge_run_verdict(const AttemptEvidence& e) {
  if (!e.verdict) return std::nullopt;
  Judgement j = judge_verdict(e);
  if (e.asked_to_stop && j.next == Next::again) j.next = Next::stop;
  // Who died is more to the point than who noticed it.
  if (j.next == Next::again && j.cause == "peer_lost" && !e.died_on.empty()) {
    j.cause = "rank_died";
    j.suspects = e.died_on;
    j.network = false;
  }
  return j;
}

std::optional<Judgement> judge_request(const AttemptEvidence& e) {
  if (!e.asked_to_stop || e.verdict) return std::nullopt;
  // A command that does not know the signal which asks it to save has died of it.
  const int status = e.exit_status.value_or(128 + SIGTERM);
  return judged(Next::stop, "stopped", status == 128 + SIGUSR2 ? code_of(ExitCode::stopped) : status,
                "stopped on request");
}

// Whatever it printed on the way.
std::optional<Judgement> judge_success(const AttemptEvidence& e) {
  const bool said_so = e.verdict && e.verdict->code == code_of(ExitCode::done);
  if (e.alarm || e.exit_status != 0 || (e.writes_verdicts && !said_so)) return std::nullopt;
  if (!said_so && was_not_started(e)) return std::nullopt;
  return judged(Next::done, "done", 0, "done");
}

// srun's own status is that of the tasks which it ended because of the first one.
std::optional<int> status_of(const AttemptEvidence& e) {
  return e.first_exit && e.exit_status != 0 ? e.first_exit->code : e.exit_status;
}

// The exit status of the command, where it asks for something.
std::optional<Judgement> judge_status(const AttemptEvidence& e) {
  const std::optional<int> status = status_of(e);
  if (status == code_of(ExitCode::no_progress))
    return judged(Next::stop, "not_again", *status, "the command ended with 93, which asks for no other attempt");
  if (e.writes_verdicts && status == code_of(ExitCode::storage))  // its verdict, too, found no place
    return judged(Next::again, std::string(kStorage), *status, "the command ended with 74: storage failed");
  // Programs end with 2 of much else.
  const bool refuses = (e.writes_verdicts || e.said_usage) && !e.trained && !e.printed_steps;
  if (status != code_of(ExitCode::usage) || !refuses || decisive_line(e) != nullptr) return std::nullopt;
  return judged(Next::stop, "usage", *status, "the command refuses its arguments or configuration");
}

// The most significant kind first: the first that there is evidence of decides.
constexpr std::optional<Judgement> (*kKinds[])(const AttemptEvidence& e) = {
    judge_lost_nodes, judge_alarm, judge_request, judge_success, judge_proof, judge_run_verdict, judge_status};

// Puts the decisive line over what the exit status told.
void add_line(const AttemptEvidence& e, const SaidLine& line, Judgement& j) {
  const Says says = line.known->says;
  j.cause = line.known->cause;
  j.why = line.text;
  j.rank = line.rank;
  j.said_on = nodes_that_said(e, line);
  const bool alone = j.said_on.size() == 1, by_user = line.known->blame == Blame::user;
  if (says == Says::effect) {  // whoever says so was still there
    std::erase_if(j.suspects, [&](const std::string& node) { return std::ranges::count(j.said_on, node) != 0; });
    return;
  }
  const bool may_be_node = says == Says::hint || says == Says::exception;
  j.suspects = says == Says::proof || (may_be_node && alone) ? j.said_on : std::vector<std::string>();
  // A registry or a name service that does not answer may do so at the next attempt.
  const bool may_pass = std::ranges::any_of(e.lines, [](const SaidLine& other) {
    return other.known->says == Says::trouble && other.known->blame == Blame::fabric && !other.outlived;
  });
  if (says == Says::mistake || (says == Says::hint && by_user && !alone && !e.trained && !e.printed_steps && !may_pass))
    j.next = Next::stop;
  if (line.known->cause == kJobEnds) j.code = e.exit_status.value_or(143);
  const bool may_be_program = by_user || line.known->blame == Blame::bug;
  if (says == Says::error || (may_be_node && may_be_program)) j.error = line.text;
}

Judgement judge_exit(const AttemptEvidence& e) {
  const std::optional<int> status = status_of(e);
  Judgement j = judged(Next::again, "failed", status.value_or(code_of(ExitCode::peer_lost)),
                       status ? fmt::format("the command ended with {}{}", *status, what_shells_mean(*status))
                              : "the command was killed");
  j.accuses = false;  // of whom an attempt ends says little: programs end of their own errors
  if (e.first_exit && e.first_exit->rank >= 0) {
    j.rank = e.first_exit->rank;
    j.why = fmt::format("torchrun: rank {} failed first, with {}{}", j.rank, e.first_exit->code,
                        what_shells_mean(e.first_exit->code));
  }
  if ((e.alarm && !e.died_on.empty()) || e.first_exit) {
    j.cause = "rank_died";
    if (e.first_exit) add_once(j.suspects, e.first_exit->node);
    if (j.suspects.empty()) j.suspects = e.died_on;
  }
  if (e.exit_status == 0) {
    j.why = "srun returned 0, and there is no verdict: a node did not start its ranks";
    j.code = code_of(ExitCode::peer_lost);
  }
  if (const SaidLine* line = decisive_line(e)) {
    add_line(e, *line, j);
    const bool of_slurm = j.cause == slurm::kLaunchFailed || j.cause == slurm::kNodeFailure;
    if (const std::string node = node_in_slurms_words(e, j.cause); of_slurm && !node.empty()) j.suspects = {node};
  } else if (const std::string_view word = e.first_exit ? word_of_crash(e.first_exit->code) : ""; !word.empty()) {
    j.why = j.error = word;
    j.said_on = j.suspects;
  }
  // A watchdog of PyTorch's own ended the ranks.
  const bool timed_out = j.next == Next::again && j.cause == kCollectiveTimeout;
  if (timed_out && is_mismatch(e.joint)) return judge_mismatch(*e.joint, j.code);
  if (timed_out && is_sure(e.joint)) {
    take(*e.joint, j);
    j.network = !j.suspects.empty();
    j.why = e.joint->why;
  }
  return j;
}

}  // namespace

std::optional<VerdictRead> parse_verdict(std::string_view text) {
  const std::optional<Json> json = Json::try_parse(text, {.max_depth = 8});
  if (!json || !json->is_object()) return std::nullopt;
  try {
    VerdictRead verdict;
    json->get_to("code", verdict.code);
    const auto text_of = [&](const char* key) {
      const Json* value = json->find(key);
      return value != nullptr && value->is_string() ? value->text() : std::string();
    };
    verdict.kind = text_of("kind");
    verdict.blame = text_of("blame");
    verdict.message = text_of("message");
    verdict.node = text_of("node");
    if (json->contains("rank")) json->get_to("rank", verdict.rank);
    const bool ended_well = verdict.code == code_of(ExitCode::done) || verdict.code == code_of(ExitCode::stopped);
    if (ended_well && json->contains("step")) json->get_to("step", verdict.steps_done);
    return verdict;
  } catch (const JsonError&) { return std::nullopt; }
}

Judgement judge(const AttemptEvidence& e) {
  for (const auto kind : kKinds)
    if (std::optional<Judgement> judgement = kind(e)) return *std::move(judgement);
  return judge_exit(e);
}

}  // namespace ms::driver
