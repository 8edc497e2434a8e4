#include "train/checkpoint/checkpoints.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utc.h"
#include "base/version.h"
#include "mesh/mesh.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/resume.h"
#include "train/checkpoint/rollbacks.h"
#include "train/checkpoint/save_interval.h"

namespace ms::train {

namespace {

constexpr double kRetryFirst_s = 60, kRetryMost_s = 600;  // after a save that failed; doubles with every one on end
constexpr std::size_t kTypicalSteps = 21;                 // of which the median is a step without a save

mesh::Groups groups_of(const Plan& plan) { return {plan.mesh, plan.chunks, plan.settings.model.tied_embeddings}; }

// A directory of checkpoints is a directory, and not one of the checkpoints in it.
void refuse_wrong_place(const std::string& dir) {
  std::error_code ignored;
  if (std::filesystem::exists(dir, ignored) && !std::filesystem::is_directory(dir, ignored)) {
    throw user_error("ckpt.dir", fmt::format("checkpoint.dir = '{}' is not a directory", dir));
  }
  if (std::filesystem::exists(dir + "/" + std::string(ckpt::kManifestName), ignored)) {
    throw user_error("ckpt.dir",
                     fmt::format("checkpoint.dir = '{}' is a checkpoint, and should be what it lies in", dir),
                     fmt::format("did you mean '{}'?", parent_directory(dir)));
  }
}

// ms-driver sets MS_MTBF to what this run has met.
double expected_mtbf_s(const comm::World& world) {
  const char* const text = std::getenv("MS_MTBF");
  const std::optional<double> met_s = text != nullptr ? parse_duration_s(text) : std::nullopt;
  if (met_s && *met_s > 0) return *met_s;
  return usual_mtbf_s(static_cast<std::size_t>((world.size() + world.ranks_on_node() - 1) / world.ranks_on_node()));
}

// Checkpoints of the time before a rollback are not resumed from.
void leave(const std::string& dir, const std::vector<Rollback>& rollbacks) {
  const std::string aside = set_left_aside(dir, rollbacks);
  if (!aside.empty()) log::info("train", "checkpoints that a rollback has left are now in {}", aside);
}

// A run that begins afresh had no rollbacks. They stay with its checkpoints, where there are any.
void forget_rollbacks(const std::string& dir, const std::string& aside) {
  const std::string text = read_rollbacks(dir);
  if (text.empty()) return;
  if (!aside.empty()) write_file_atomic(rollbacks_path(aside), text);
  write_file_atomic(rollbacks_path(dir), to_json({}));
}

}  // namespace

struct Checkpoints::Impl {
  const Plan& plan;
  const CheckpointConfig& config;
  std::string resolved;
  comm::World& world;
  Engine& engine;
  tensor::Device& host;  // for messages
  Agreement agreement;
  std::optional<ckpt::DirectoryLock> lock = {};  // on rank 0
  std::string run = {}, data = {}, data_chain = {}, matmul_choices = {};
  std::vector<Rollback> rollbacks = {};
  std::optional<ckpt::Saver> saver = {};

  std::int64_t begun = -1, committed = -1;  // steps done, of the newest save
  std::int64_t heard_up_to = -1;            // votes for a save that were cast up to this step have been answered
  bool save_wanted = false;
  int failed_in_a_row = 0;
  double last_save_s = monotonic_s();
  std::deque<double> typical = {};    // seconds of steps without a save
  double excess_s = 0;                // what steps took beyond that since the save began
  std::optional<double> cost_s = {};  // of the last save
  const double mtbf_s = expected_mtbf_s(world);

  bool leads() const { return world.rank() == 0; }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(plan.settings.train.seed); }
  Continuation continuation() const { return {plan.settings, resolved, data}; }

  ckpt::Manifest manifest(std::int64_t done, std::int64_t samples) const {
    ckpt::Manifest made;
    made.step = done;
    made.run = run;
    made.created = utc_text(SystemClock().wall_s());
    made.version = kVersion;
    made.config = resolved;
    made.dp = plan.mesh.dp;
    made.pp = plan.mesh.pp;
    made.tp = plan.mesh.tp;
    made.chunks = plan.chunks;
    made.zero = static_cast<int>(plan.settings.optim.zero);
    made.dtype = plan.settings.train.dtype;
    made.matmul_choices = matmul_choices;
    if (engine.device().kind() == "cpu") made.instruction_set = engine.device().name();
    made.data = {samples, seed(), data, data_chain, std::ssize(rollbacks)};
    return made;
  }

  double interval_s() const {
    const double interval_s = save_interval_s(config, cost_s, mtbf_s);
    const bool is_best = cost_s && (config.mtbf_s > 0 || config.every_s == kNumberWord);
    return is_best ? std::max(interval_s, 2 * last_total_s) : interval_s;  // not before the one before is written
  }

  double retry_s() const { return std::min(kRetryMost_s, std::ldexp(kRetryFirst_s, std::min(failed_in_a_row - 1, 8))); }

  // Starts a save; false where the policy is to skip it.
  bool begin(std::int64_t done, std::int64_t samples) {
    if (config.when_busy == "wait") await();
    const tensor::Event ready = engine.state_ready();
    const std::optional<tensor::Event> copied = saver->begin(manifest(done, samples), ready, done - 1);
    heard_up_to = done - 1;
    save_wanted = false;
    last_save_s = monotonic_s();
    if (!copied) {
      if (leads()) log::warn("train", "step {} is not saved: the save before is still being written", done);
      return false;
    }
    engine.update_after(*copied);
    begun = done;
    excess_s = 0;
    return true;
  }

  // Waits until nothing is being saved.
  void await() {
    while (const std::optional<ckpt::SaveOutcome> ended = saver->finish()) note(ended);
  }

  void note(const std::optional<ckpt::SaveOutcome>& outcome) {
    if (!outcome) return;
    if (outcome->committed) {
      committed = outcome->step;
      failed_in_a_row = 0;
      cost_s = excess_s;
      last_total_s = outcome->total_s;
      if (!leads()) return;
      for (const std::string& path : outcome->set_aside) log::warn("train", "an abandoned checkpoint is now {}", path);
      log::info("train", "checkpoint of step {}: committed {:.1f} s after the step, {} a rank written in {:.1f} s",
                outcome->step, outcome->total_s, format_size(static_cast<double>(outcome->bytes)), outcome->write_s);
      for (const std::string& path : outcome->pruned) log::info("train", "{} is deleted", path);
      return;
    }
    ++failed_in_a_row;
    // All ranks come here together. One line for all of them, however many met a full disk: of the highest, since rank
    // 0 may know only that others failed; and whichever is heard when the run ends must know the cause.
    const int teller = static_cast<int>(agreement.highest(outcome->problem.empty() ? 0 : world.rank()));
    last_problem = agreement.broadcast(outcome->problem, teller);
    if (leads()) {
      log::warn("train", "the checkpoint of step {} failed, and another is tried{}{}", outcome->step,
                last_problem.empty() ? "" : ": ", last_problem);
    }
    if (config.max_failed > 0 && failed_in_a_row >= config.max_failed) throw failure(outcome->step);
  }

  Error failure(std::int64_t step) const {
    return {"ckpt.failed", Blame::storage,
            fmt::format("the checkpoint of step {} could not be written to {}{}{}{}", step, config.dir,
                        failed_in_a_row > 1 ? fmt::format(", the {} failure in a row", ordinal(failed_in_a_row)) : "",
                        last_problem.empty() ? "" : ": ", last_problem)};
  }
  static std::string ordinal(int n) { return n == 2 ? "second" : n == 3 ? "third" : fmt::format("{}th", n); }

  std::string last_problem = {};
  double last_total_s = 0;  // from a boundary to the commit
};

Checkpoints::Checkpoints(const Plan& plan, const std::string& resolved, comm::World& world, Engine& engine,
                         tensor::Device& host, bool fresh)
    : impl_(new Impl{.plan = plan,
                     .config = plan.settings.checkpoint,
                     .resolved = resolved,
                     .world = world,
                     .engine = engine,
                     .host = host,
                     .agreement = Agreement(world, host, groups_of(plan).count())}) {
  if (!impl_->leads()) return;
  const std::string& dir = impl_->config.dir;
  refuse_wrong_place(dir);
  impl_->lock.emplace(dir);
  if (const int cleaned = ckpt::clean_up(impl_->lock->directory()); cleaned > 0) {
    log::info("train", "{} left by saves that did not end: deleted",
              plural(static_cast<std::size_t>(cleaned), "thing"));
  }
  if (!fresh) {
    const std::vector<Rollback> rollbacks = parse_rollbacks(read_rollbacks(dir), rollbacks_path(dir));
    require_all(dir, rollbacks);
    leave(dir, rollbacks);
    return;
  }
  const std::string aside = ckpt::set_aside(impl_->lock->directory());
  if (!aside.empty()) log::warn("train", "the checkpoints that were in {} are now in {}", dir, aside);
  forget_rollbacks(dir, aside);
}

Checkpoints::~Checkpoints() = default;

Origin Checkpoints::resume(const std::string& data_fingerprint) {
  Impl& my = *impl_;
  my.data = data_fingerprint;
  const Continuation continuation = my.continuation();
  Resumed resumed = train::resume(my.plan, continuation, my.world, my.engine, my.host, my.agreement);
  Origin& origin = resumed.origin;
  const std::string& dir = my.config.dir;
  my.rollbacks =
      parse_rollbacks(my.agreement.broadcast(my.leads() ? read_rollbacks(dir) : std::string()), rollbacks_path(dir));
  my.run = resumed.run;
  my.begun = my.committed = origin.restored ? origin.step : -1;
  my.saver.emplace(ckpt::SaverOptions{.dir = my.config.dir,
                                      .keep_last = my.config.keep_last,
                                      .keep_every = my.config.keep_every,
                                      .resumed_from = origin.restored ? origin.step : -1,
                                      .wait_when_busy = my.config.when_busy == "wait",
                                      .group_id = groups_of(my.plan).count() + 1},
                   my.engine.state(), my.world, my.engine.device(), my.host, std::move(resumed.memory));
  if (!origin.restored && !my.config.load.empty()) {
    origin = load_origin(continuation, my.world, my.engine, my.agreement);
  }
  origin.skips = skips_of(my.rollbacks, my.data, my.seed());
  return origin;
}

void Checkpoints::set_matmul_choices(std::string choices) { impl_->matmul_choices = std::move(choices); }

void Checkpoints::set_data_chain(std::string chain) { impl_->data_chain = std::move(chain); }

void Checkpoints::cast(Votes& votes) {
  votes.saving = impl_->saver->votes();
  if (!impl_->leads()) return;
  const double waited_s = monotonic_s() - impl_->last_save_s;
  const double interval = impl_->config.every_steps > 0 ? 0 : impl_->interval_s();
  const bool again = impl_->failed_in_a_row > 0 && !impl_->saver->busy() && waited_s >= impl_->retry_s();
  if (again || (interval > 0 && waited_s >= interval)) votes.save = 1;
}

std::optional<ckpt::SaveOutcome> Checkpoints::heard(std::int64_t step, const Votes& sum) {
  if (sum.save > 0 && step > impl_->heard_up_to) impl_->save_wanted = true;
  const std::optional<ckpt::SaveOutcome> ended = impl_->saver->agreed(step, sum.saving);
  impl_->note(ended);
  return ended;
}

std::int64_t Checkpoints::begun() const { return impl_->begun; }
bool Checkpoints::busy() const { return impl_->saver->busy(); }

void Checkpoints::boundary(std::int64_t done, std::int64_t samples) {
  Impl& my = *impl_;
  const std::int64_t every = my.config.every_steps;
  if (!(every > 0 && done % every == 0) && !my.save_wanted) return;
  if (my.begin(done, samples) && !my.config.async) my.await();
}

void Checkpoints::step_took(double seconds) {
  Impl& my = *impl_;
  if (my.saver->busy()) {
    if (my.typical.empty()) return;
    std::vector<double> sorted(my.typical.begin(), my.typical.end());
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
    my.excess_s += std::max(0.0, seconds - sorted[sorted.size() / 2]);
    return;
  }
  my.typical.push_back(seconds);
  if (my.typical.size() > kTypicalSteps) my.typical.pop_front();
}

std::string Checkpoints::finish(std::int64_t done, std::int64_t samples) {
  Impl& my = *impl_;
  my.await();
  if (my.committed != done) {
    MS_ASSERT(my.begin(done, samples), "a saver that has finished is busy");
    my.await();
  }
  if (my.committed != done) throw my.failure(done);
  if (done >= my.plan.settings.train.steps) my.saver->drop_copies();  // nothing is left to resume
  return my.config.dir + "/" + ckpt::step_name(done);
}

std::string Checkpoints::roll_back(std::int64_t at, std::int64_t end, const std::string& why) {
  Impl& my = *impl_;
  const GuardConfig& guard = my.plan.settings.guard;
  my.await();
  const std::int64_t made = std::ssize(my.rollbacks);
  if (made >= guard.max_rollbacks) {
    throw user_error(
        "train.rollback",
        fmt::format("{}, and the run had {}, as many as guard.max_rollbacks allows", why, plural(made, "rollback")),
        "a lower optim.lr or a longer warm-up may help; rollbacks.json in checkpoint.dir lists them");
  }
  std::string path;
  if (my.leads()) {
    const std::optional<ckpt::Found> found = ckpt::newest_complete(my.config.dir, at - guard.rollback_steps + 1);
    if (found) {
      // The same position as a start from there would have.
      const std::int64_t begin = my.continuation().origin(*found->manifest, found->path, 0, 0).samples;
      my.rollbacks.push_back({.at = at,
                              .skip = {.step = found->step, .begin = begin, .end = end},
                              .source = my.data,
                              .seed = my.seed(),
                              .why = why});
      write_file_atomic(rollbacks_path(my.config.dir), to_json(my.rollbacks));
      leave(my.config.dir, my.rollbacks);
      log::warn("train", "{}; rolling back to {}, samples {} to {} are left out: rollback {} of at most {}", why,
                found->path, begin, end - 1, made + 1, guard.max_rollbacks);
      path = found->path;
    }
  }
  path = my.agreement.broadcast(path);
  if (!path.empty()) return path;
  throw user_error("train.rollback",
                   fmt::format("{}, and no checkpoint is at least {} older", why, plural(guard.rollback_steps, "step")),
                   "see checkpoint.every_steps, checkpoint.keep_last and guard.rollback_steps");
}

}  // namespace ms::train
