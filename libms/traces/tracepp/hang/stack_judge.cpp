// Implements judge_stacks and judge_lines of witness_judge.h.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "tracepp/hang/witness_judge.h"

namespace ms::tracepp {
namespace {

constexpr double kStopped = 0.85, kGone = 0.9, kAtOneMoment = 0.6, kHeld = 0.8, kOtherCall = 0.5;
constexpr double kProof = 0.85, kCrash = 0.85, kProgramError = 0.6, kHint = 0.4;
constexpr std::size_t kFrameBytes = 160;

// The state of a process by its stack. Unknown: in PyTorch itself, which waits if the queue of its device is full.
enum class Standing : std::uint8_t { unknown, waits, loads, saves, compiles, held, own_code };

struct FrameRow {
  std::string_view part;  // of "name (file:line)"
  Standing standing;
};

// The first row that a frame matches counts, and the innermost frame that matches one.
constexpr std::array kFrameRows = std::to_array<FrameRow>({
    {"torch/distributed/checkpoint/", Standing::saves},
    {"torch/serialization.py", Standing::saves},
    {"save_checkpoint", Standing::saves},
    {"load_checkpoint", Standing::saves},
    {"save_pretrained", Standing::saves},
    {"safetensors/", Standing::saves},
    {"distributed/distributed_c10d.py", Standing::waits},
    {"distributed/_functional_collectives", Standing::waits},
    {"deepspeed/comm/", Standing::waits},
    {"horovod/", Standing::waits},
    {"mpi4py/", Standing::waits},
    {"MPI_", Standing::waits},
    {"nccl", Standing::waits},
    {"c10d::", Standing::waits},
    {"cuda/__init__.py", Standing::waits},  // synchronize
    {"cuda/streams.py", Standing::waits},
    {"StreamSynchronize", Standing::waits},
    {"EventSynchronize", Standing::waits},
    {"DeviceSynchronize", Standing::waits},
    {"torch/utils/data/", Standing::loads},
    {"datasets/", Standing::loads},
    {"webdataset/", Standing::loads},
    {"_inductor/", Standing::compiles},
    {"_dynamo/convert_frame", Standing::compiles},
    {"triton/compiler/", Standing::compiles},
    {"cpp_extension.py", Standing::compiles},
    {"pdb.py:", Standing::held},
    {"bdb.py:", Standing::held},
});

bool is_of_library(std::string_view frame) {
  return frame.find("-packages/") != frame.npos || frame.find("/torch/") != frame.npos ||
         frame.find("(torch/") != frame.npos;
}

const FrameRow* row_of(const std::string& frame) {
  const auto matches = [&](const FrameRow& row) { return frame.find(row.part) != frame.npos; };
  const auto found = std::ranges::find_if(kFrameRows, matches);
  return found == kFrameRows.end() ? nullptr : &*found;
}

// Returns the innermost frame that matches a row; the end where none does.
auto matched_frame(const ProcessStack& stack) {
  return std::ranges::find_if(stack.frames, [](const std::string& it) { return row_of(it) != nullptr; });
}

Standing standing_of(const ProcessStack& stack) {
  if (const auto found = matched_frame(stack); found != stack.frames.end()) return row_of(*found)->standing;
  if (stack.frames.empty() || is_of_library(stack.frames.front())) return Standing::unknown;
  return Standing::own_code;
}

Reason reason_of(Standing standing) {
  return standing == Standing::loads   ? Reason::data_wait
         : standing == Standing::saves ? Reason::save
                                       : Reason::not_issuing;
}

// Returns the frame of the program's own code that does what the stack shows; of the libraries where there is none.
std::string place_of(const ProcessStack& stack) {
  const auto matched = matched_frame(stack);
  const auto from = matched == stack.frames.end() ? stack.frames.begin() : matched;
  const auto own = std::find_if_not(from, stack.frames.end(), is_of_library);
  return own != stack.frames.end() ? *own : from != stack.frames.end() ? *from : "";
}

// Returns the operation that a stack waits in, as the program called it: "all_reduce".
std::string call_of(const ProcessStack& stack) {
  auto it = matched_frame(stack);
  if (it == stack.frames.end()) return "";
  const std::string* call = &*it;
  for (++it; it != stack.frames.end() && is_of_library(*it); ++it)
    if (const FrameRow* const row = row_of(*it); row != nullptr && row->standing == Standing::waits) call = &*it;
  return call->substr(0, call->find(" ("));
}

// A call that waits for a device or for storage has no frame of its own: code of the program may wait for anything.
std::optional<FaultDomain> fault_domain(Standing standing) {
  return standing == Standing::own_code ? std::optional(FaultDomain::unknown)
         : standing == Standing::held   ? std::optional(FaultDomain::program)
                                        : std::nullopt;
}

std::string what_of(Standing standing) {
  switch (standing) {
    case Standing::loads: return "loads data";
    case Standing::saves: return "reads or writes a checkpoint";
    case Standing::compiles: return "compiles";
    case Standing::held: return "is held by a debugger";
    default: return "is in code of the program";
  }
}

HangSuspect suspect_in(const Process& process, Reason reason, double confidence, std::string doing) {
  HangSuspect it;
  it.rank = process.rank;
  it.host = process.host;
  it.pid = process.pid;
  it.reason = reason;
  it.confidence = confidence;
  it.doing = std::move(doing);
  return it;
}

class StackJudge {
 public:
  explicit StackJudge(const std::vector<ProcessStack>& stacks) {
    std::map<std::pair<int, std::pair<std::string, int>>, const ProcessStack*> newest;  // of several samples the last
    for (const ProcessStack& it : stacks)
      newest[it.process.rank >= 0 ? std::pair(it.process.rank, std::pair(std::string(), 0))
                                  : std::pair(-1, std::pair(it.process.host, it.process.pid))] = &it;
    for (const auto& [id, stack] : newest) stacks_.push_back(stack);
  }

  Hang judge() {
    hang_.state = RunState::unknown;
    const auto is_stopped = [](const ProcessStack* it) { return it->state == 'T' || it->state == 't'; };
    const auto is_gone = [](const ProcessStack* it) { return it->state == 'X' || it->state == 'Z'; };
    if (judge_states(is_stopped, kStopped, "is stopped by a signal or a debugger")) return std::move(hang_);
    if (judge_states(is_gone, kGone, "has ended")) return std::move(hang_);
    std::vector<const ProcessStack*> busy;
    std::size_t waiting = 0;
    for (const ProcessStack* const it : stacks_) {
      const Standing standing = standing_of(*it);
      waiting += standing == Standing::waits ? 1 : 0;
      if (standing > Standing::waits) busy.push_back(it);
    }
    if (!busy.empty() && 3 * busy.size() <= stacks_.size() && 2 * waiting >= stacks_.size()) {
      judge_busy(busy, waiting);
    } else if (busy.size() == 1 && waiting == 1 && stacks_.size() == 2) {
      judge_busy(busy, waiting);
    } else if (waiting == stacks_.size()) {
      judge_waits();
    } else if (!busy.empty() && busy.size() == stacks_.size() &&
               std::ranges::all_of(busy, [&](const auto* it) { return standing_of(*it) == standing_of(*busy[0]); })) {
      hang_.sentence = fmt::format("all {} {}: the cause is what they share, or the run is well", stacks_.size(),
                                   standing_of(*busy[0]) == Standing::loads   ? "load data"
                                   : standing_of(*busy[0]) == Standing::saves ? "read or write a checkpoint"
                                                                              : "are in code of the program");
    } else {
      hang_.sentence = fmt::format("the stacks of {} tell no rank from the others: {} wait in collectives",
                                   plural(stacks_.size(), "process"), waiting);
    }
    return std::move(hang_);
  }

 private:
  template <class F>
  bool judge_states(F&& is, double confidence, std::string_view what) {
    std::vector<Process> found;
    for (const ProcessStack* const it : stacks_)
      if (is(it)) found.push_back(it->process);
    if (found.empty() || 2 * found.size() > stacks_.size()) return false;
    for (const Process& process : found)
      hang_.suspects.push_back(suspect_in(process, Reason::silent, confidence, std::string(what)));
    hang_.state = RunState::hang;
    hang_.sentence = fmt::format("{} {}", process_name(found.front()), what);
    if (found.size() > 1) hang_.sentence += fmt::format(", and so do {} more", found.size() - 1);
    return true;
  }

  void judge_busy(const std::vector<const ProcessStack*>& busy, std::size_t waiting) {
    const Standing first = standing_of(*busy.front());
    const double confidence = first == Standing::held ? kHeld : kAtOneMoment;
    for (const ProcessStack* const it : busy) {
      const Standing standing = standing_of(*it);
      hang_.suspects.push_back(suspect_in(it->process, reason_of(standing),
                                          confidence / static_cast<double>(busy.size()),
                                          plain_text(place_of(*it), kFrameBytes)));
      hang_.suspects.back().fault = fault_domain(standing);
    }
    hang_.state = RunState::hang;
    hang_.sentence = fmt::format("{} {}, at {}, while {} of {} processes wait in collectives or for their devices",
                                 process_name(busy.front()->process), what_of(first),
                                 plain_text(place_of(*busy.front()), kFrameBytes), waiting, stacks_.size());
    if (busy.size() > 1) hang_.sentence += fmt::format("; {} more do not wait, either", busy.size() - 1);
    hang_.sentence += "; stacks are of one moment: a run that is well looks so, too, unless it stays";
  }

  // Stages of a pipeline stand at different calls, so one that differs from all others is a hint and no more.
  void judge_waits() {
    std::map<std::string, std::vector<const ProcessStack*>> places;
    for (const ProcessStack* const it : stacks_) places[place_of(*it)].push_back(it);
    hang_.sentence = fmt::format("all {} wait in collectives or for their devices", plural(stacks_.size(), "process"));
    const auto odd = std::ranges::find_if(places, [](const auto& it) { return it.second.size() == 1; });
    if (places.size() != 2 || stacks_.size() < 3 || odd == places.end()) {
      hang_.sentence += places.size() == 1 ? ", at the same line: their stacks do not tell them apart" : "";
      return;
    }
    const ProcessStack& one = *odd->second.front();
    const ProcessStack& other = *(places.begin() == odd ? std::next(odd) : places.begin())->second.front();
    // The same call of another line may be of another group, or the right one.
    const bool is_other_call = call_of(one) != call_of(other);
    const auto where = [](const ProcessStack& it) {
      return plain_text(fmt::format("{} at {}", call_of(it), place_of(it)), kFrameBytes);
    };
    hang_.suspects.push_back(
        suspect_in(one.process, is_other_call ? Reason::wrong_kind : Reason::waits_alone, kOtherCall, where(one)));
    hang_.sentence += fmt::format(": {} in {}, all others in {}", process_name(one.process), where(one), where(other));
  }

  std::vector<const ProcessStack*> stacks_;
  Hang hang_;
};

}  // namespace

Hang judge_stacks(const std::vector<ProcessStack>& stacks) { return StackJudge(stacks).judge(); }

namespace {

// Returns the meaning of a line of trouble, which accuses no rank: it may name any node.
std::string_view meaning_of(const NotedLine& line) {
  switch (line.known->blame) {
    case Blame::slurm: return "Slurm ended it, or did not start it; whether it hung before is not known";
    case Blame::storage: return "the fault may be of the storage, or of the mount of one node";
    default: return "the fault may be of a rank, of its peer, or of what lies between";
  }
}

bool is_trouble(const NotedLine& line) { return line.known != nullptr && line.known->says == slurm::Says::trouble; }

}  // namespace

Hang judge_lines(const std::vector<NotedLine>& lines, bool is_alone) {
  Hang hang;
  hang.state = RunState::unknown;
  std::map<std::string_view, int> ranks;  // by cause
  for (const NotedLine& line : lines) ranks[line.known == nullptr ? "" : line.known->cause] += 1;
  const auto lead = [&](slurm::Says says) {
    return std::ranges::find_if(lines, [&](const NotedLine& line) {
      return line.known != nullptr && line.known->says == says && ranks[line.known->cause] == 1;
    });
  };
  // A signal that a program causes by itself. Others come from outside, or from a watchdog that gave up.
  const auto crash = std::ranges::find_if(lines, [](const NotedLine& line) {
    const int signal = line.exit_code - 128;
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE;
  });
  const auto is_named = [](const NotedLine& line) { return line.process.rank >= 0 || !line.process.host.empty(); };
  const auto quoted = [&](const NotedLine& line) {  // those of srun tell of a task, which did not print them
    const bool is_own = is_named(line) && line.known != nullptr;
    return fmt::format("{} \"{}\"", is_own ? process_name(line.process) + " printed" : "the log has",
                       plain_text(line.text, kFrameBytes));
  };
  const auto blame = [&](const NotedLine& line, double confidence, FaultDomain fault, std::string_view what) {
    if (is_named(line)) {
      hang.suspects.push_back(suspect_in(line.process, Reason::failed, confidence, plain_text(line.text, kFrameBytes)));
      hang.suspects.back().fault = fault;
    }
    hang.state = RunState::failed;
    hang.sentence = fmt::format("{}: {}", quoted(line), what);
  };
  if (const auto proof = lead(slurm::Says::proof); proof != lines.end()) {
    blame(*proof, kProof, FaultDomain::device, "the device itself reports that it is broken");
  } else if (crash != lines.end()) {
    blame(*crash, kCrash, FaultDomain::unknown,
          "a rank ended by a signal that a program causes by itself, and the others wait for it");
  } else if (const auto error = lead(slurm::Says::error); error != lines.end()) {
    blame(*error, kProgramError, FaultDomain::program, "an error of the program, which would come on any node");
  } else if (const auto exception = lead(slurm::Says::exception); exception != lines.end()) {
    blame(*exception, kProgramError, FaultDomain::program, "an error of the program, most likely");
  } else if (const auto hint = lead(slurm::Says::hint); hint != lines.end()) {
    blame(*hint, kHint, FaultDomain::unknown, "no other rank did; its node or its program");
  } else if (const auto trouble = std::ranges::find_if(lines, is_trouble); trouble != lines.end()) {
    hang.sentence = fmt::format("{}: {}", quoted(*trouble), meaning_of(*trouble));
  } else if (is_alone && !lines.empty()) {
    hang.sentence = quoted(lines.front()) + ": a rank ended, or lost another one, and no line tells why";
  }
  return hang;
}

}  // namespace ms::tracepp
