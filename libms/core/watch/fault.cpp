#include "watch/fault.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <limits>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"

namespace ms::watch {
namespace {

template <class E>
struct Row {
  E value;
  std::string_view word;
  std::string_view doc;
};

constexpr Row<FaultPoint> kPoints[] = {
    {FaultPoint::start, "start", "before the rank opens its data and its groups"},
    {FaultPoint::step, "step=N", "before the rank issues step N, counted from 0"},
    {FaultPoint::data, "data=N", "while the rank waits for the tokens of step N"},
};
constexpr Row<FaultKind> kKinds[] = {
    {FaultKind::node_bad, "node-bad", "the rank declares its own node at fault"},
    {FaultKind::gpu_bad, "gpu-bad", "the rank declares its own GPU at fault"},
    {FaultKind::storage, "storage", "the rank reports that storage failed"},
    {FaultKind::exit, "exit", "the process exits with status 1 without an error message"},
    {FaultKind::kill, "kill", "the process kills itself with SIGKILL"},
    {FaultKind::hang, "hang", "the rank stops making progress"},
    {FaultKind::spin, "spin", "the same, in a busy loop"},
    {FaultKind::pause, "pause=SECONDS", "the rank's host thread sleeps for this time"},
    {FaultKind::slow, "slow=FACTOR", "from that step on, the rank's operations take FACTOR times as long"},
    {FaultKind::nan, "nan", "the rank's gradients of that step are NaN"},
    {FaultKind::flip, "flip", "one bit is flipped in an input of the rank's next backward for guard.replay_every"},
};

[[noreturn]] void refuse(std::string_view fault, const std::string& why, std::string hint = {}) {
  throw user_error("fault.syntax", fmt::format("MS_FAULT '{}': {}", fault, why), std::move(hint));
}

std::optional<std::int64_t> parse_count(std::string_view text, std::int64_t max) {
  const auto value = whole_number<std::int64_t>(text);
  return value && *value >= 0 && *value <= max ? value : std::nullopt;
}

bool is_short_name(std::string_view text) {
  return !text.empty() && text.size() < 64 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == text.npos;
}

std::string words_of(std::string_view separator) {
  std::vector<std::string_view> words;
  for (const auto& row : kKinds) words.push_back(row.word);
  return fmt::format("{}", fmt::join(words, separator));
}

Fault parse_fault(std::string_view text) {
  Fault fault;
  fault.text = text;
  std::vector<std::string_view> seen;
  const auto once = [&](std::string_view what) {
    if (std::find(seen.begin(), seen.end(), what) != seen.end()) refuse(text, fmt::format("more than one {}", what));
    seen.push_back(what);
  };
  for (const std::string& word : split(text, ' ')) {
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      const auto* kind =
          std::find_if(std::begin(kKinds), std::end(kKinds), [&](auto& row) { return row.word == word; });
      if (kind != std::end(kKinds)) {
        once("fault");
        fault.kind = kind->value;
      } else if (word == "start") {
        once("point");
        fault.point = FaultPoint::start;
      } else {
        refuse(text, fmt::format("unknown fault '{}'", word), "the faults are " + words_of(", "));
      }
      continue;
    }
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "node") {
      once("rank or node");
      if (!is_short_name(value)) refuse(text, fmt::format("'{}' is not the short name of a host", value));
      fault.node = value;
      continue;
    }
    if (key == "pause" || key == "slow") {
      once("fault");
      fault.kind = key == "pause" ? FaultKind::pause : FaultKind::slow;
      const double least = key == "pause" ? 0 : 1, most = key == "pause" ? 1e6 : 1000;
      const auto amount = whole_number<double>(value);
      if (!amount || !(*amount > least && *amount <= most)) {
        refuse(text, fmt::format("{}: expected a number above {}, up to {}, got '{}'", key, least, most, value));
      }
      fault.amount = *amount;
      continue;
    }
    if (key != "step" && key != "data" && key != "rank" && key != "restart") {
      refuse(text, fmt::format("unknown key '{}'", key), "the keys are step, data, rank, node, restart, pause, slow");
    }
    const bool is_point = key == "step" || key == "data";
    const auto count = parse_count(value, is_point ? std::int64_t{1'000'000'000'000} : 1'000'000'000);
    if (!count) refuse(text, fmt::format("{}: expected a number from 0, got '{}'", key, value));
    if (is_point) {
      once("point");
      fault.point = key == "step" ? FaultPoint::step : FaultPoint::data;
      fault.step = *count;
    } else if (key == "rank") {
      once("rank or node");
      fault.rank = static_cast<int>(*count);
    } else {
      once("restart");
      fault.restart = static_cast<int>(*count);
    }
  }
  const auto has = [&](std::string_view what) { return std::find(seen.begin(), seen.end(), what) != seen.end(); };
  if (!has("point")) refuse(text, "it has no time", "add start or step=N");
  if (!has("fault")) refuse(text, "it has no fault", "add one of " + words_of(", "));
  if (fault.point != FaultPoint::step) {
    if (fault.kind == FaultKind::slow) refuse(text, "slow begins at a step", "use step=N");
    if (fault.kind == FaultKind::nan) refuse(text, "gradients are those of a step", "use step=N");
    if (fault.kind == FaultKind::flip) refuse(text, "flip begins at a step", "use step=N");
  }
  return fault;
}

std::string_view short_name(std::string_view host) { return host.substr(0, host.find('.')); }

}  // namespace

std::vector<Fault> parse_faults(std::string_view text) {
  std::vector<Fault> faults;
  for (const std::string& part : split(text, ';')) faults.push_back(parse_fault(part));
  if (faults.empty()) refuse(text, "it is empty");
  return faults;
}

std::vector<Fault> armed_faults(const std::function<const char*(const char*)>& variable, int ranks, std::int64_t steps,
                                int starts) {
  const char* text = variable("MS_FAULT");
  if (text == nullptr || *text == '\0') return {};
  std::vector<Fault> faults = parse_faults(text);
  for (const Fault& fault : faults) {
    if (fault.rank && *fault.rank >= ranks) {
      throw user_error("fault.never", fmt::format("MS_FAULT '{}': the run has {} ranks", fault.text, ranks));
    }
    if (fault.point != FaultPoint::start && fault.step >= steps) {
      throw user_error("fault.never", fmt::format("MS_FAULT '{}': the run has {} steps", fault.text, steps));
    }
  }
  // Slurm leaves its count unset in the first start; a driver counts the attempts of all starts, from 1.
  const auto count = [&](const char* name) {
    const char* value = variable(name);
    return value == nullptr ? std::optional<std::int64_t>() : parse_count(value, std::numeric_limits<int>::max());
  };
  const std::int64_t restart = count("MS_ATTEMPT").value_or(count("SLURM_RESTART_COUNT").value_or(0) + 1) - 1 + starts;
  std::erase_if(faults, [&](const Fault& fault) { return fault.restart && *fault.restart != restart; });
  return faults;
}

std::string fault_manual() {
  std::string text = "Injects faults into the run, for tests, as in \"step=5 rank=3 node-bad\". When: ";
  for (const auto& row : kPoints)
    text += fmt::format("{} ({}){}", row.word, row.doc, &row == std::end(kPoints) - 1 ? ". " : " or ");
  text +=
      "Where: rank=N, or node=NAME with the short name of a host (default: every rank). restart=K limits the fault to "
      "one start, counted from 0 by SLURM_RESTART_COUNT or by ms-driver's attempts. Without restart the fault is "
      "repeated in every start, and after every rollback that reaches its step. With guard.nonfinite = \"rollback\", "
      "use nan only with restart=0. Fault: ";
  for (const auto& row : kKinds) {
    text += fmt::format("{} ({}){}", row.word, row.doc, &row == std::end(kKinds) - 1 ? ". " : ", ");
  }
  return text +
         "Semicolons separate several faults. Invalid faults, and faults that can never occur in the run, are refused.";
}

Faults::Faults(const std::vector<Fault>& armed, int rank, std::string_view node, std::function<bool()> released)
    : rank_(rank), node_(short_name(node)), released_(std::move(released)) {
  for (const Fault& fault : armed) {
    if (fault.rank.value_or(rank) == rank && (fault.node.empty() || fault.node == node_)) faults_.push_back(fault);
  }
}

void Faults::strike(FaultPoint point, std::int64_t step) const {
  for (const Fault& fault : faults_) {
    if (fault.point != point || (point != FaultPoint::start && fault.step != step)) continue;
    log::warn("watch", "injected fault, MS_FAULT '{}'", fault.text);
    switch (fault.kind) {
      case FaultKind::node_bad:
        throw Error(
            "fault.node", Blame::node,
            fmt::format("injected fault '{}': rank {} declares its node {} at fault", fault.text, rank_, node_));
      case FaultKind::gpu_bad:
        throw Error(
            "fault.gpu", Blame::gpu,
            fmt::format("injected fault '{}': rank {} declares its GPU on {} at fault", fault.text, rank_, node_));
      case FaultKind::storage:
        throw Error("fault.storage", Blame::storage, fmt::format("injected fault '{}': storage failed", fault.text));
      case FaultKind::exit: _exit(1);
      case FaultKind::kill: std::raise(SIGKILL); break;
      case FaultKind::hang:
      case FaultKind::spin:
        while (!released_()) {
          if (fault.kind == FaultKind::hang) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        throw Error("comm.peer_lost", Blame::peer,
                    fmt::format("injected fault '{}': the run stopped while rank {} hung", fault.text, rank_));
      case FaultKind::pause: std::this_thread::sleep_for(std::chrono::duration<double>(fault.amount)); break;
      case FaultKind::slow:
      case FaultKind::nan:
      case FaultKind::flip: break;  // see slowness(), spoils_gradients() and flips_bit()
    }
  }
}

double Faults::slowness(std::int64_t step) const {
  double factor = 1;
  for (const Fault& fault : faults_) {
    if (fault.kind == FaultKind::slow && step >= fault.step) factor *= fault.amount;
  }
  return factor;
}

bool Faults::spoils_gradients(std::int64_t step) const { return has(FaultKind::nan, step); }

bool Faults::flips_bit(std::int64_t step) const { return has(FaultKind::flip, step); }

bool Faults::has(FaultKind kind, std::int64_t step) const {
  return std::ranges::any_of(faults_, [&](const Fault& f) { return f.kind == kind && f.step == step; });
}

}  // namespace ms::watch
