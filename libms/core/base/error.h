// Errors. Three kinds, three mechanisms: a bug of ours is MS_ASSERT; the world failing is an ms::Error, thrown by the
// first function that knows and caught only in main(), at thread trampolines and at C boundaries; an outcome that the
// caller asked about is a value. Blame says who is hurt, and selects the exit code that job scripts obey.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/exit.h"

namespace ms {

enum class Blame { user, node, gpu, fabric, storage, slurm, peer, bug };

std::string_view to_string(Blame blame);
ExitCode exit_code(Blame blame);

// `kind` is a stable dotted word ("config.unknown_key", "comm.deadline"); `what()` says what was observed, with the
// object and the system's own words; `hint` is what to do, only where we honestly know; `operation` is the
// communication in which it was noticed, where there was one ("all_reduce of 64 bytes, operation 17 of group dp");
// `rank` is the rank that is to blame where that is known to be another than the one that throws; `step` the step of
// training in which it happened, where it happened in one.
class Error : public std::exception {
 public:
  Error(std::string kind, Blame blame, std::string message, std::string hint = {})
      : kind_(std::move(kind)), blame_(blame), message_(std::move(message)), hint_(std::move(hint)) {}

  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& kind() const { return kind_; }
  Blame blame() const { return blame_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  const std::string& operation() const { return operation_; }
  std::optional<int> rank() const { return rank_; }
  std::optional<std::int64_t> step() const { return step_; }

  // The same error seen from a caller that knows more: "while writing shard 3: <message>".
  Error with_context(std::string_view context) const {
    Error error = *this;
    error.message_ = fmt::format("{}: {}", context, message_);
    return error;
  }
  Error with_operation(std::string operation) const {
    Error error = *this;
    error.operation_ = std::move(operation);
    return error;
  }
  Error with_rank(int rank) const {
    Error error = *this;
    error.rank_ = rank;
    return error;
  }
  Error with_step(std::int64_t step) const {
    Error error = *this;
    error.step_ = step;
    return error;
  }

 private:
  std::string kind_;
  Blame blame_;
  std::string message_;
  std::string hint_;
  std::string operation_;
  std::optional<int> rank_;
  std::optional<std::int64_t> step_;
};

// A usage or configuration error: exit code 2.
inline Error user_error(std::string kind, std::string message, std::string hint = {}) {
  return Error(std::move(kind), Blame::user, std::move(message), std::move(hint));
}

// The text of errno, thread-safe.
std::string errno_text(int err);

// Prints the expression, its place, the meaning and the last lines of the log; ends the process with ExitCode::bug.
[[noreturn]] void assert_failed(const char* expression, const char* file, int line, const std::string& meaning);

}  // namespace ms

// Our own bugs only, never anything a user, a file or the network supplied. Always on.
#define MS_ASSERT(condition, ...)         \
  (static_cast<bool>(condition) ? void(0) \
                                : ::ms::assert_failed(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)))
