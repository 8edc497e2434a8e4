#include "train/run/failure_report.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/own_tool.h"
#include "base/print.h"
#include "train/run/tracing.h"
#include "watch/verdict.h"

namespace ms::train {
namespace {

constexpr std::chrono::milliseconds kEvidenceWithin{1'000};
constexpr std::chrono::milliseconds kPreparedWithin{500};  // for a start that fails to have its run directory

// Waits for the evidence of the rank that is blamed, beside this process's. A launcher ends all processes soon after
// the first, and the stack of that rank, if it can tell it, is the one that matters.
void await_evidence(const std::string& path, int rank) {
  const std::string other = fmt::format("{}/rank-{}.txt", path.substr(0, path.rfind('/')), rank);
  const auto end = std::chrono::steady_clock::now() + kEvidenceWithin;
  while (access(other.c_str(), F_OK) != 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(kEvidenceWithin / 50);
}

}  // namespace

bool write_failure(const std::string& dir, const std::string& nonce, const comm::World& world,
                   const comm::World::Cause& cause, std::int64_t step) {
  const std::optional<int> rank = cause.accused();
  return watch::write_verdict(dir, nonce,
                              watch::verdict_of(cause.error, rank.value_or(-1), rank ? world.node(*rank) : "",
                                                cause.error.step().value_or(step)));
}

comm::World::Witness keeps_evidence(const comm::World& world, const std::vector<int>& here,
                                    const std::shared_ptr<watch::Evidence>& evidence) {
  return [evidence, here, me = world.rank(), diag = own_tool("ms-diag"),
          pid = [&world](int rank) { return world.pid(rank); }](const comm::World::Cause& cause) {
    if (cause.error.kind() != "comm.deadline") return;
    const std::optional<int> blamed = cause.error.rank();
    const auto well = std::ranges::find_if(here, [&](int rank) { return rank != blamed; });
    const int looks = well == here.end() ? here.front() : *well;
    evidence->take(cause.error.message(), blamed ? pid(*blamed) : 0, looks == me ? diag : "");
  };
}

void say_evidence(const Settings& settings, const std::string& path) {
  if (path.empty()) return;
  const std::string traces = trace_directory(settings);
  print_err("evidence: the stacks of all threads are in {}{}\n", path.substr(0, path.rfind('/')),
            traces.empty() ? "" : fmt::format("; 'ms-tracepp hang {}' shows what the ranks wait for", traces));
}

void FailureReport::begin(ShutdownWatch& shutdown) {
  world_.before_stop([this, &shutdown,
                      keep = keeps_evidence(world_, world_.node_ranks(), evidence_)](const comm::World::Cause& cause) {
    keep(cause);
    shutdown.begin_failed(cause, prepared_ ? std::chrono::milliseconds(0) : kPreparedWithin);
  });
  if (const std::optional<comm::World::Cause> cause = world_.cause()) shutdown.begin_failed(*cause, kPreparedWithin);
}

void FailureReport::operator()(const comm::World::Cause& cause) {
  watch::begin_ending();
  // A second caller must not end the process before the first is done, nor wait for ever where storage hangs.
  const std::unique_lock lock(mutex_, deadline_);
  if (!lock || std::exchange(reported_, true)) return;
  // The rank that wrote the verdict prints; where there can be no verdict, the rank that failed.
  const bool first = prepared_ && write_failure(dir_, nonce_, world_, cause, step_);
  const std::string evidence =
      prepared_ ? evidence_->write(dir_, nonce_, fmt::format("rank-{}.txt", world_.rank())) : "";
  if (!evidence.empty() && cause.error.rank()) await_evidence(evidence, *cause.error.rank());
  if (first || (cause.rank == world_.rank() && !(prepared_ && watch::has_verdict(dir_, nonce_)))) {
    print_err("ms-train: error: rank {}: {}\n", cause.rank, cause.error.message());
    if (!cause.error.hint().empty()) print_err("hint: {}\n", cause.error.hint());
    say_evidence(settings_, evidence);
  }
  if (prepared_) evidence_->write_devices(dir_, nonce_, world_.node(world_.rank()));
}

}  // namespace ms::train
