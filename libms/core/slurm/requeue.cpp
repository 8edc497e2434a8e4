// Slurm changes the exclude list only of jobs that do not run, and answers may be lost on a busy controller while the
// change was made: so every step is repeated for a while, and what counts in the end is what Slurm says of the job.
#include "slurm/requeue.h"

#include <fmt/format.h>

#include <functional>
#include <optional>

#include "base/error.h"
#include "slurm/hostlist.h"
#include "slurm/reach.h"

namespace ms::slurm {
namespace {

constexpr double kPause_s = 0.2;
constexpr double kSilentPause_s = 2;

std::optional<Error> attempt(const std::function<void()>& step) {
  try {
    step();
    return std::nullopt;
  } catch (const Error& error) { return error; }
}

class Requeue {
 public:
  Requeue(const Commands& slurm, std::uint32_t job, const RequeueOptions& options, Clock& clock)
      : slurm_(slurm), job_(job), options_(options), clock_(clock) {}

  // Tells the failure of the last repetition.
  std::optional<Error> insist(const std::function<void()>& step) const {
    const double until_s = clock_.now_s() + options_.settle_s;
    for (;;) {
      std::optional<Error> error = attempt(step);
      if (!error || clock_.now_s() >= until_s) return error;
      clock_.sleep_s(kPause_s);
    }
  }

  // The job as soon as it is in the wanted state.
  Job await(bool (*wanted)(const Job&), std::string_view what) const {
    Job job;
    const auto error = insist([&] {
      job = slurm_.job(job_);
      if (!wanted(job)) {
        throw Error("slurm.requeue", Blame::slurm, fmt::format("job {} {}, it is {}", job_, what, job.state));
      }
    });
    if (error) throw *error;
    return job;
  }

  // Waits until the job may be requeued. Returns whether Slurm has ended it meanwhile, for a node that is gone.
  bool await_answers(Job job) const {
    const double until_s = clock_.now_s() + options_.silent_s;
    bool told = false;
    while (options_.silent && job.runs() && clock_.now_s() < until_s) {
      const std::vector<std::string> silent = options_.silent(job.nodes);
      if (silent.empty()) break;
      if (!told && options_.say) {
        options_.say(
            fmt::format("job {}: {} does not answer; waiting up to {:.0f} s until Slurm has seen that, because "
                        "a job that is requeued before may never start again",
                        job_, fold_hostlist(silent), options_.silent_s));
      }
      told = true;
      clock_.sleep_s(kSilentPause_s);
      attempt([&] { job = slurm_.job(job_); });
      if (!job.runs()) return true;
    }
    return false;
  }

  // A request without an answer may have been obeyed. Returns the failure if that is so.
  std::optional<Error> hold() const {
    const std::optional<Error> error = attempt([&] { slurm_.requeue_hold(job_); });
    if (!error) return std::nullopt;
    Job now;
    if (insist([&] { now = slurm_.job(job_); })) {
      // Nothing is known: if it is held, it must not stay so.
      if (attempt([&] { slurm_.release(job_); })) throw unreleased(*error);
      throw *error;
    }
    if (!now.pending() && now.state != "COMPLETING") throw *error;
    return error;
  }

  void exclude(const std::vector<std::string>& nodes) const {
    const Job held = await([](const Job& job) { return !job.runs(); }, "still runs");
    if (held.state == kExpediting) {
      if (options_.say) options_.say(fmt::format("job {} is started again by Slurm, which excludes no node", job_));
      return;
    }
    const std::string list = merge_excluded(held.excluded_nodes, nodes);
    const auto error = insist([&] { slurm_.set_excluded_nodes(job_, list); });
    if (error) throw *error;
  }

  // An error may also mean that an earlier try was obeyed and the job runs again: then it is not held.
  void release() const {
    const auto error = insist([&] { slurm_.release(job_); });
    if (!error) return;
    Job now;
    if (attempt([&] { now = slurm_.job(job_); }) || now.held()) throw unreleased(*error);
  }

  // For speed only: a failure means Slurm's own delay.
  bool start_now() const {
    return !attempt([&] { await([](const Job& job) { return job.pending(); }, "is not pending yet"); }) &&
           !insist([&] { slurm_.start_now(job_); });
  }

 private:
  Error unreleased(const Error& error) const {
    return Error(error.kind(), error.blame(), fmt::format("job {} may be held: {}", job_, error.message()),
                 fmt::format("scontrol release {}", job_));
  }

  const Commands& slurm_;
  std::uint32_t job_;
  const RequeueOptions& options_;
  Clock& clock_;
};

}  // namespace

std::string merge_excluded(const std::string& there, const std::vector<std::string>& nodes) {
  const auto old = expand_hostlist(there);
  if (!old) return there + ',' + fold_hostlist(nodes);
  std::vector<std::string> all = *old;
  all.insert(all.end(), nodes.begin(), nodes.end());
  return fold_hostlist(all);
}

RequeueOptions requeue_without_silence(const Commands& slurm, const Config& config) {
  constexpr double kGrace_s = 60;  // on top of SlurmdTimeout, for Slurm to act
  const auto silent = [&](const std::string& hostlist) {
    return silent_nodes(slurm, config, expand_hostlist(hostlist).value_or(std::vector<std::string>{}));
  };
  return {.silent = silent, .silent_s = number_of(config, "SlurmdTimeout", 300) + kGrace_s};
}

RequeueDone requeue_excluding(const Commands& slurm, std::uint32_t job, const std::vector<std::string>& nodes,
                              const RequeueOptions& options, Clock& clock) {
  for (const std::string& node : nodes) {
    if (!is_host_name(node)) throw user_error("slurm.hostlist", fmt::format("'{}' is not a host name", node));
  }
  const Requeue requeue(slurm, job, options, clock);
  RequeueDone done;
  const Job before = slurm.job(job);
  const bool ended = before.pending() || requeue.await_answers(before);
  if (nodes.empty()) {
    if (!ended) slurm.requeue(job);
  } else if (ended) {
    requeue.exclude(nodes);
  } else {
    const std::optional<Error> unanswered = requeue.hold();
    const auto failure = attempt([&] { requeue.exclude(nodes); });
    requeue.release();
    if (failure && unanswered) throw *unanswered;
    if (failure) {
      throw failure->with_context(fmt::format("job {} is requeued, but {} is not excluded", job, fold_hostlist(nodes)));
    }
  }
  if (options.start_now) done.start_advanced = requeue.start_now();
  return done;
}

}  // namespace ms::slurm
