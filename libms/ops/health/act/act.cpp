#include "health/act/act.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "health/act/cap.h"
#include "health/act/decide.h"
#include "health/act/notes.h"
#include "health/act/prolog_time.h"

namespace ms::health {
namespace {

using log::Level;
using Tell = Memory::Tell;

constexpr double kLockTick_s = 0.02;
constexpr int kCommentRounds = 3;
constexpr double kCommentPause_s = 0.1;

class Act {
 public:
  Act(std::string code, std::string reason, When when, const Policy& policy, const slurm::JobEnv& job,
      const World& world, const Memory& memory)
      : when_(when),
        policy_(policy),
        job_(job),
        world_(world),
        memory_(memory),
        code_(std::move(code)),
        reason_(std::move(reason)) {}

  Acted run() {
    if (!policy_.may_act()) {
      world_.say(Level::warn, fmt::format("would drain {}, but the policy says observe: {}", job_.node, reason_));
      tell("would-drain", reason_, Tell::hourly);
      if (job_.preflight != slurm::Preflight::require) return {};
      return all_the_same("--ms-preflight=require has no effect here, since the site's policy only observes");
    }
    bool busy = false;
    const UniqueFd lock = decision_lock(busy);
    if (busy) {
      world_.say(Level::warn, "nothing is done: another prolog or epilog of this node has not finished");
      return all_the_same("another prolog or epilog of this node has not finished");
    }
    // A health check fails no job: how Slurm treats a failed prolog does not matter to it.
    if (job_.job_id != 0 && !site_is_ready()) return all_the_same(why_not_);
    const std::optional<std::string> note = drain();
    if (!note) return all_the_same(why_not_);
    Acted acted;
    acted.drained = true;
    if (when_ == When::before_start) decide_about_job(*note, acted);
    append_to_comment(job_.job_id, *note);
    if (!end_note_.empty()) append_to_comment(job_.job_id, end_note_);
    if (acted.fail_job) end_leader(*note);
    return acted;
  }

 private:
  // Nothing of ours keeps the job away: its user is told what was found.
  Acted all_the_same(const std::string& why) const {
    Acted acted;
    if (when_ == When::before_start) {
      acted.to_user = {fmt::format("{}{} has {}", kCommentPrefix, job_.node, reason_.substr(kReasonPrefix.size())),
                       starts_all_the_same(why)};
    }
    return acted;
  }
  static std::string starts_all_the_same(const std::string& why) {
    return fmt::format("{}this job runs there all the same: {}", kCommentPrefix, why);
  }

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
      const slurm::SiteFacts facts = world_.site_facts();
      max_requeues_ = max_batch_requeues(facts.config);
      problems = slurm::site_problems(facts);
    });
    if (!known) why_not_ = "Slurm does not say how it is set up";
    if (!known) return false;
    for (const Finding& problem : problems) {
      if (problem.severity != Severity::critical) continue;
      const std::string why = fmt::format("act refused, this site's Slurm is not ready: {}", problem.str());
      world_.say(Level::error, why);
      remember("refused", why);
      why_not_ = "this site's Slurm is not ready for nodes to be drained";
      return false;
    }
    return true;
  }

  // The note about the drain that stands and was counted; nullopt: none of ours does, and why_not_ says why.
  std::optional<std::string> drain() {
    const bool before = when_ == When::before_start;
    const Drain end = drain_below_cap(world_, policy_.act, job_.node, reason_);
    why_not_ = fmt::format("the node was not drained, {}", end.why);
    switch (end.end) {
      case DrainEnd::drained:
        world_.say(Level::error, fmt::format("drained {} {}: {}", job_.node, occasion(), reason_));
        count_strike(reason_);
        break;
      case DrainEnd::stands_already:
        world_.say(Level::warn, fmt::format("{} is drained by us already: {}", job_.node, end.reason));
        // The prolog that drained it has told the job; this is its epilog, and some Slurms count the next start by now.
        if (!before) return std::nullopt;
        break;
      case DrainEnd::may_stand:
        world_.say(Level::error, fmt::format("{} may be drained, {}: {}", job_.node, end.why, reason_));
        count_strike(fmt::format("{} (not counted yet: {})", reason_, end.why));
        why_not_ = fmt::format("the node may be drained, but {}", end.why);
        settle_afterwards();
        return std::nullopt;
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

  std::string occasion() const {
    if (job_.job_id == 0) return "in a health check";
    return fmt::format("{} job {}", when_ == When::before_start ? "before" : "after", job_.job_id);
  }

  void count_strike(const std::string& message) const {
    bool relapse = memory_.last_wall_s("drain", "").has_value();
    int strikes = 0;
    memory_.change([&](State& state) {
      relapse = relapse || state.last_undrain_wall_s > 0 || state.strikes > 0;
      strikes = ++state.strikes;
    });
    tell("drain", message, Tell::always, strikes);
    if (!relapse) return;
    world_.say(Level::error, fmt::format("{} was drained by us before: strike {}", job_.node, strikes));
    tell("strike", message, Tell::always, strikes);
  }

  // The prolog has no time to wait until Slurm answers. What is needed is copied: this process ends before.
  void settle_afterwards() const {
    if (!world_.afterwards) return;
    world_.attempt("nobody waits until Slurm answers", [&] {
      world_.afterwards(
          [policy = policy_, job = job_, when = when_, code = code_, reason = reason_](const World& world) {
            const Memory memory(policy, world, job.node);
            Act act(code, reason, when, policy, job, world, memory);
            act.settle();
          });
    });
  }
  void settle() const {
    const Drain end = settle_drain(world_, policy_.act, job_.node, reason_);
    const std::string why = fmt::format("{}: {}", end.why, reason_);
    switch (end.end) {
      case DrainEnd::drained:
        world_.say(Level::error, fmt::format("{} stays drained, {}", job_.node, why));
        memory_.remember(happening("counted", why, 0), Tell::always);
        return;
      case DrainEnd::may_stand:
        world_.say(Level::error, fmt::format("{} may be drained although too many nodes are, {}", job_.node, why));
        memory_.remember(happening("uncounted", why, 0), Tell::always);
        return;
      default:
        world_.say(Level::error, fmt::format("{} is no longer drained, {}", job_.node, why));
        memory_.change([](State& state) { state.strikes = std::max(0, state.strikes - 1); });
        tell("withdrawn", why, Tell::always);
        return;
    }
  }

  void decide_about_job(const std::string& note, Acted& acted) {
    std::optional<slurm::Job> job;
    if (!world_.attempt("asking Slurm for the job", [&] { job = world_.slurm->job(job_.job_id); })) {
      acted.to_user = {note, starts_all_the_same("Slurm does not say whether it can start elsewhere")};
      return;
    }
    het_leader_ = job->het_leader;
    const JobStep step = job_step(*job, job_.preflight, max_requeues_);
    if (!step.fail) {
      world_.say(Level::warn, fmt::format("job {} runs on the drained node: {}", job_.job_id, step.why));
      acted.to_user = {note, starts_all_the_same(step.why)};
      return;
    }
    // Slurm itself drains a node whose prolog fails and that is not drained yet, with a reason that tells
    // nothing and that the cap does not count. So look once more.
    world_.attempt("asking Slurm for the node",
                   [&] { acted.fail_job = drain_step(world_.slurm->node(job_.node)) == DrainStep::stands_already; });
    world_.say(Level::error, acted.fail_job
                                 ? fmt::format("job {} does not start here: {}", job_.job_id, step.why)
                                 : fmt::format("job {} starts: no drain of ours is seen to stand", job_.job_id));
    if (!acted.fail_job) acted.to_user = {note, starts_all_the_same("the drain is not seen to stand any more")};
    if (acted.fail_job && step.ends) tell_who_waits(note, end_note(step.why), job->batch);
  }

  // A job that ends here has no standard error of its own yet. The command that waits for it prints what Slurm sends
  // it; of a batch job the AdminComment says it.
  void tell_who_waits(const std::string& note, const std::string& end, bool batch) {
    end_note_ = end;
    if (batch) return;
    world_.attempt("srun or salloc is not told", [&] {
      for (const std::string& line : {note, end}) world_.slurm->notify(job_.job_id, line);
    });
  }

  // The script of a heterogeneous job begins when the prologs of its own component are done, so it may run already;
  // Slurm ends all components when one of them fails. Its standard error and its comment are where the user looks.
  // Slurm 26.05 asks for the component to be requeued, refuses that, and lets the job run on: so ask for the leader.
  void end_leader(const std::string& note) const {
    if (het_leader_ == 0 || het_leader_ == job_.job_id) return;
    append_to_comment(het_leader_, note);
    const std::string line = fmt::format("{}; Slurm ends all components of this job for it{}", note,
                                         end_note_.empty() ? " and starts them again on other nodes" : "");
    world_.attempt("the script is not told", [&] { world_.slurm->notify(het_leader_, line); });
    if (end_note_.empty()) {
      world_.attempt("the leader is not requeued by this prolog", [&] { world_.slurm->requeue(het_leader_); });
    }
  }

  // Two nodes may append at the same moment, and Slurm only knows how to replace: look again, a few times.
  void append_to_comment(std::uint32_t job, const std::string& note) const {
    if (job == 0) return;
    world_.attempt("the job's AdminComment", [&] {
      for (int round = 0; round < kCommentRounds; ++round) {
        if (round > 0) world_.clock.sleep_s(world_.random() * kCommentPause_s);
        const auto comment = appended_comment(world_.slurm->job(job).admin_comment, note);
        if (!comment) return;  // it is there, or there is no room
        world_.slurm->set_admin_comment(job, *comment);
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
  std::uint32_t het_leader_ = 0;
  std::string end_note_;  // the job ends before it began
  std::string why_not_;   // nothing of ours stands because of this
  int max_requeues_ = 0;
};

}  // namespace

Acted act_on(const std::vector<Finding>& findings, When when, const Policy& policy, const slurm::JobEnv& job,
             const World& world, const Memory& memory) {
  MS_ASSERT(!findings.empty(), "without findings there is nothing to act on");
  return Act(findings[0].code, drain_reason(findings), when, policy, job, world, memory).run();
}

}  // namespace ms::health
