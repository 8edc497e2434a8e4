#include "watch/verdict.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "watch/evidence.h"

namespace ms::watch {
namespace {

// More than a verdict takes, with its directory entry.
constexpr std::size_t kReservedBytes = 16384;

std::string path_in(const std::string& run_dir) { return run_dir + "/verdict.json"; }
std::string reserve_in(const std::string& run_dir) { return run_dir + "/verdict.reserve"; }

// run.dir/start: "NUMBER NONCE".
struct Start {
  std::int64_t number = 0;
  std::string nonce;
};

// Returns the start that has the directory; number 0: none is known.
Start start_of(const std::string& run_dir) {
  const std::string path = run_dir + "/start";
  if (access(path.c_str(), F_OK) != 0) return {};
  std::istringstream text(read_file(path));
  Start start;
  return text >> start.number >> start.nonce ? start : Start{};
}

// Returns the nonce of the start that wrote the verdict; empty if there is none, or it does not say.
std::string nonce_of_verdict(const std::string& run_dir) {
  const std::string path = path_in(run_dir);
  if (access(path.c_str(), F_OK) != 0) return {};
  const std::optional<Json> json = Json::try_parse(read_file(path));
  const Json* nonce = json ? json->find("nonce") : nullptr;
  return nonce != nullptr && nonce->is_string() ? nonce->text() : "";
}

}  // namespace

Verdict verdict_done(std::int64_t steps) {
  Verdict verdict;
  verdict.step = steps;
  return verdict;
}

Verdict verdict_stopped(std::int64_t steps, const std::string& cause, const std::string& checkpoint) {
  Verdict verdict;
  verdict.code = checkpoint.empty() ? ExitCode::no_progress : ExitCode::stopped;
  verdict.kind = "run.stopped";
  verdict.message = fmt::format(
      "stopped on purpose after step {}{}: {}", steps, cause.empty() ? std::string() : " (" + cause + ")",
      checkpoint.empty() ? "nothing is saved, because checkpoint.dir is not set: the same command starts over"
                         : checkpoint + " is committed, and the same command resumes from it");
  verdict.step = steps;
  return verdict;
}

Verdict verdict_rolled_back(std::int64_t steps, const std::string& cause, const std::string& checkpoint) {
  Verdict verdict;
  verdict.code = ExitCode::stopped;
  verdict.kind = "run.rolled_back";
  verdict.message = fmt::format("{}; the same command resumes from {} without that data", cause, checkpoint);
  verdict.step = steps;
  return verdict;
}

Verdict verdict_of(const Error& error, int rank, std::string node, std::int64_t step) {
  Verdict verdict;
  verdict.code = exit_code(error.blame());
  verdict.kind = error.kind();
  verdict.blame = to_string(error.blame());
  verdict.message = error.message();
  verdict.rank = rank;
  verdict.node = std::move(node);
  verdict.operation = error.operation();
  verdict.step = step;
  return verdict;
}

void begin_ending() noexcept { std::signal(SIGTERM, SIG_IGN); }

void begin_start(const std::string& run_dir, const std::string& nonce) {
  const std::int64_t number = start_of(run_dir).number + 1;
  prune_evidence(run_dir);
  // The verdict of the start before goes first: once this start has the directory, its other ranks may write theirs.
  const std::string path = path_in(run_dir);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    throw Error("watch.verdict", Blame::storage, fmt::format("cannot remove {}: {}", path, errno_text(errno)));
  }
  write_file_atomic(run_dir + "/start", fmt::format("{} {}\n", number, nonce));
}

bool is_start(const std::string& run_dir, const std::string& nonce) noexcept {
  try {
    return start_of(run_dir).nonce == nonce;
  } catch (const std::exception&) { return false; }
}

void reserve_verdict(const std::string& run_dir) noexcept {
  try {
    write_file_atomic(reserve_in(run_dir), std::string(kReservedBytes, '\n'));
  } catch (const std::exception&) {}  // a disk that is full already
}

bool write_verdict(const std::string& run_dir, const std::string& nonce, const Verdict& verdict) noexcept {
  try {
    const Start start = start_of(run_dir);
    if (start.nonce != nonce) {
      log::warn("watch", "start {} of the run has {}: this one writes no verdict: {}", start.number, run_dir,
                verdict.message);
      return false;
    }
    Json json{{"schema", 1}, {"code", static_cast<int>(verdict.code)}};
    if (verdict.code != ExitCode::done) {
      json["kind"] = verdict.kind;
      if (!verdict.blame.empty()) json["blame"] = verdict.blame;
      json["message"] = verdict.message;
      if (verdict.rank >= 0) json["rank"] = verdict.rank;
      if (verdict.rank >= 0) json["node"] = verdict.node;
      if (!verdict.operation.empty()) json["operation"] = verdict.operation;
    }
    json["step"] = verdict.step;
    json["start"] = start.number;
    json["nonce"] = nonce;
    // Messages may quote bytes from a peer or a file; invalid UTF-8 is replaced.
    const std::string text = json.dump(2) + "\n";
    unlink(reserve_in(run_dir).c_str());
    if (create_exclusive(path_in(run_dir), text)) return true;
    // A start that was superseded between its look at the directory and its write has left this one.
    if (nonce_of_verdict(run_dir) == nonce) return false;
    write_file_atomic(path_in(run_dir), text);
    return true;
  } catch (const std::exception& error) {
    log::error("watch", "cannot write the verdict: {}", error.what());
    return false;
  }
}

bool has_verdict(const std::string& run_dir, const std::string& nonce) noexcept {
  try {
    return nonce_of_verdict(run_dir) == nonce;
  } catch (const std::exception&) { return false; }
}

}  // namespace ms::watch
