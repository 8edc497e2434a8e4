#include "watch/verdict.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace ms::watch {
namespace {

std::string path_in(const std::string& run_dir) { return run_dir + "/verdict.json"; }

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
  verdict.message =
      fmt::format("stopped on purpose after step {}{}: {}", steps, cause.empty() ? std::string() : " (" + cause + ")",
                  checkpoint.empty() ? "nothing is saved, as checkpoint.dir is not set: the same command begins anew"
                                     : checkpoint + " is committed, and the same command goes on from there");
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

void clear_verdict(const std::string& run_dir) {
  const std::string path = path_in(run_dir);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    throw Error("watch.verdict", Blame::storage, fmt::format("cannot remove {}: {}", path, errno_text(errno)));
  }
}

bool write_verdict(const std::string& run_dir, const Verdict& verdict) noexcept {
  try {
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
    // Messages may quote bytes from a peer or a file; invalid UTF-8 is replaced.
    const std::string text = json.dump(2) + "\n";
    return create_exclusive(path_in(run_dir), text);
  } catch (const std::exception& error) {
    log::error("watch", "cannot write the verdict: {}", error.what());
    return false;
  }
}

bool has_verdict(const std::string& run_dir) noexcept { return access(path_in(run_dir).c_str(), F_OK) == 0; }

}  // namespace ms::watch
