#include "health/act.h"

#include <optional>

#include "base/error.h"
#include "health/cap.h"
#include "health/decide.h"
#include "health/notes.h"

namespace ms::health {
namespace {

using log::Level;
using Tell = Memory::Tell;

constexpr double kLockPatience_s = 2;  // for another prolog of this node, which decides about the same findings
constexpr double kLockTick_s = 0.02;
constexpr int kCommentRounds = 3;
constexpr double kCommentPause_s = 0.1;

class Act {
 public:
  Act(const std::vector<Finding>& findings, When when, const Policy& policy, const slurm::JobEnv& job,
      const World& world, const Memory& memory)
      : when_(when),
        policy_(policy),
        job_(job),
        world_(world),
        memory_(memory),
        code_(findings[0].code),
        reason_(drain_reason(findings)) {}

  Acted run() {
    if (!policy_.may_act()) {
      world_.say(Level::warn, fmt::format("would drain {}, but the policy says observe: {}", job_.node, reason_));
      tell("would-drain", reason_, Tell::hourly);
      return {};
    }
    bool busy = false;
    const UniqueFd lock = decision_lock(busy);
    if (busy) {
      world_.say(Level::warn, "nothing is done: another prolog or epilog of this node has not finished");
      return {};
    }
    if (!site_is_ready()) return {};
    const std::optional<std::string> note = drain();
    if (!note) return {};
    Acted acted;
    acted.drained = true;
    if (when_ == When::before_start) decide_about_job(*note, acted);
    append_to_comment(*note);
    return acted;
  }

 private:
  // One process of a node decides at a time. Where there is no place for a lock the flow goes on without: the last look
  // at the node, before a job is failed, stays.
  UniqueFd decision_lock(bool& busy) const {
    UniqueFd lock;
    const double end_s = world_.clock.now_s() + kLockPatience_s;
    world_.attempt("no lock", [&] {
      const Notes notes(policy_.paths.notes);
      while (!busy) {
        lock = notes.try_lock_decision();
        if (lock) return;
        busy = world_.clock.now_s() >= end_s;
        world_.clock.sleep_s(kLockTick_s);
      }
    });
    return lock;
  }

  bool site_is_ready() {
    std::vector<Finding> problems;
    const bool known = world_.attempt("asking Slurm how it is set up", [&] {
      const slurm::SiteFacts facts = world_.slurm.site_facts();
      max_requeues_ = max_batch_requeues(facts.config);
      problems = slurm::site_problems(facts);
    });
    if (!known) return false;
    for (const Finding& problem : problems) {
      if (problem.severity != Severity::critical) continue;
      const std::string why = fmt::format("act refused, this site's Slurm is not ready: {}", problem.str());
      world_.say(Level::error, why);
      remember("refused", why);
      return false;
    }
    return true;
  }

  // The note about the drain that stands; nullopt: none of ours does.
  std::optional<std::string> drain() {
    const bool before = when_ == When::before_start;
    const Drain end = drain_below_cap(world_, policy_.act, job_.node, reason_);
    switch (end.end) {
      case DrainEnd::drained:
        world_.say(Level::error, fmt::format("drained {} {} job {}: {}", job_.node, before ? "before" : "after",
                                             job_.job_id, reason_));
        count_strike();
        break;
      case DrainEnd::stands_already:
        world_.say(Level::warn, fmt::format("{} is drained by us already: {}", job_.node, end.reason));
        // The prolog that drained it has told the job; this is its epilog, and some Slurms count the next start by now.
        if (!before) return std::nullopt;
        break;
      case DrainEnd::withdrawn:
        tell("withdrawn", fmt::format("{}: {}", end.why, reason_), Tell::hourly);
        [[fallthrough]];
      case DrainEnd::somebody_elses:
      case DrainEnd::above_cap:
      case DrainEnd::failed:
        world_.say(Level::error, fmt::format("{} is not drained, {}: {}", job_.node, end.why, reason_));
        remember("refused", fmt::format("{}: {}", end.why, reason_));
        return std::nullopt;
    }
    return drain_note(job_.node, before, job_.restarts, end.reason);
  }

  void count_strike() const {
    bool relapse = memory_.last_wall_s("drain", "").has_value();
    int strikes = 0;
    memory_.change([&](State& state) {
      relapse = relapse || state.last_undrain_wall_s > 0 || state.strikes > 0;
      strikes = ++state.strikes;
    });
    tell("drain", reason_, Tell::always, strikes);
    if (!relapse) return;
    world_.say(Level::error, fmt::format("{} was drained by us before: strike {}", job_.node, strikes));
    tell("strike", reason_, Tell::always, strikes);
  }

  void decide_about_job(const std::string& note, Acted& acted) const {
    std::optional<slurm::Job> job;
    if (!world_.attempt("asking Slurm for the job", [&] { job = world_.slurm.job(job_.job_id); })) return;
    const JobStep step = job_step(*job, job_.preflight, max_requeues_);
    if (!step.fail) {
      world_.say(Level::warn, fmt::format("job {} runs on the drained node: {}", job_.job_id, step.why));
      acted.to_user = {note, fmt::format("{}this job runs there all the same: {}", kCommentPrefix, step.why)};
      return;
    }
    // A node whose prolog fails while nobody has drained it is drained by Slurm itself, with a reason that tells
    // nothing and that the cap does not count. So look once more.
    world_.attempt("asking Slurm for the node",
                   [&] { acted.fail_job = drain_step(world_.slurm.node(job_.node)) == DrainStep::stands_already; });
    world_.say(Level::error, acted.fail_job
                                 ? fmt::format("job {} does not start here: {}", job_.job_id, step.why)
                                 : fmt::format("job {} starts: no drain of ours is seen to stand", job_.job_id));
  }

  // Two nodes may append at the same moment, and Slurm only knows how to replace: look again, a few times.
  void append_to_comment(const std::string& note) const {
    world_.attempt("the job's AdminComment", [&] {
      for (int round = 0; round < kCommentRounds; ++round) {
        if (round > 0) world_.clock.sleep_s(world_.random() * kCommentPause_s);
        const auto comment = appended_comment(world_.slurm.job(job_.job_id).admin_comment, note);
        if (!comment) return;  // it is there, or there is no room
        world_.slurm.set_admin_comment(job_.job_id, *comment);
      }
    });
  }

  Memory::Happening happening(std::string event, std::string message, int strikes) const {
    return {.event = std::move(event),
            .code = code_,
            .message = std::move(message),
            .job_id = job_.job_id,
            .strikes = strikes};
  }
  void remember(std::string event, std::string message) const {
    memory_.remember(happening(std::move(event), std::move(message), 0), Tell::hourly);
  }
  void tell(std::string event, std::string message, Tell when, int strikes = 0) const {
    memory_.remember_and_spool(happening(std::move(event), std::move(message), strikes), when);
  }

  When when_;
  const Policy& policy_;
  const slurm::JobEnv& job_;
  const World& world_;
  const Memory& memory_;
  std::string code_;
  std::string reason_;
  int max_requeues_ = 0;
};

}  // namespace

Acted act_on(const std::vector<Finding>& findings, When when, const Policy& policy, const slurm::JobEnv& job,
             const World& world, const Memory& memory) {
  MS_ASSERT(!findings.empty(), "without findings there is nothing to act on");
  return Act(findings, when, policy, job, world, memory).run();
}

}  // namespace ms::health
