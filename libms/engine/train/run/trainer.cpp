#include "train/run/trainer.h"

#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/sysroot.h"
#include "base/text.h"
#include "comm/clock_probe.h"
#include "data/chain.h"
#include "data/facts.h"
#include "optim/learning_rate.h"
#include "train/checkpoint/checkpoints.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/tokenizer_files.h"
#include "train/run/data_feed.h"
#include "train/run/guard.h"
#include "train/run/preparation.h"
#include "train/run/replay.h"
#include "train/run/reporter.h"
#include "train/run/sample.h"
#include "watch/beat.h"
#include "watch/deadlines.h"
#include "watch/verdict.h"

namespace ms::train {
namespace {

class Trainer {
 public:
  Trainer(const Plan& plan, comm::World& world, tensor::Device& device, tensor::Device& host, RankGroups groups,
          const TrainerOptions& options, std::atomic<std::int64_t>& step)
      : plan_(plan),
        settings_(plan.settings),
        world_(world),
        feed_(plan, world, *options.loader),
        facts_(data::DataFacts::parse(feed_.facts())),
        preparation_(plan, world, device, options.deadline),
        engine_(plan, device, std::move(groups)),
        guard_(settings_.guard),
        replay_(plan, world, device),
        recorder_(device.recorder()),
        host_(host),
        options_(options),
        step_(step),
        heartbeat_(std::getenv("MS_HEARTBEAT")),
        deadlines_(settings_.run.comm_timeout_s),
        batch_(plan.batch) {
    if (settings_.train.eval_every > 0 && facts_.num_validation_samples == 0) {
      log::warn("train", "no validation data: data.valid is empty and data.valid_fraction holds out no whole sequence");
    }
  }

  Outcome run() {
    beat("load");
    begin();
    beat("step", start_);
    const std::int64_t steps = settings_.train.steps;
    std::int64_t done = start_;
    while (done < steps && !stop_agreed_ && !rollback_) {
      const std::int64_t step = done++;
      step_.store(step, std::memory_order_relaxed);
      options_.faults.at(watch::FaultPoint::step, step);
      engine_.device().slow_down(options_.faults.slowness(step));
      if (options_.faults.spoils_gradients(step)) engine_.spoil_gradients();
      if (options_.faults.flips_bit(step)) engine_.flip_bit();
      issue(step);
      const bool settles = settles_after(step);
      // One step ahead, unless something else has to happen between the two.
      if (step > start_ && !settles_after(step - 1)) finish(step - 1);
      if (settles) finish(step);
      if (checkpoints_ && done < steps && !stop_agreed_ && !rollback_) {
        const comm::Patience::Busy busy(world_.patience(), "saves a checkpoint");
        const trace::HostEvent event(recorder_, trace::Kind::save);
        checkpoints_->boundary(done, samples(done));
      }
    }
    if (done > start_ && !settles_after(done - 1)) finish(done - 1);
    const comm::Patience::Busy busy(world_.patience(), "ends the run");
    if (probe_) probe_clocks();
    outcome_.start = start_;
    outcome_.steps = done;
    outcome_.stopped = done < steps || rollback_;
    if (options_.stop != nullptr) outcome_.stop_cause = options_.stop->asked().value_or("");
    beat("save");
    if (rollback_) {
      outcome_.rolled_back = true;
      outcome_.stop_cause = rollback_->why;
      outcome_.checkpoint = checkpoints_->roll_back(rollback_->at, samples(rollback_->last), rollback_->why);
    } else if (checkpoints_) {
      outcome_.checkpoint = checkpoints_->finish(done, samples(done));
    }
    outcome_.asked = options_.stop != nullptr && options_.stop->asked();
    if (stop_file_ && stop_file_->asked()) {
      outcome_.asked = true;
      if (!rollback_) outcome_.stop_cause = stop_file_->path();
      stop_file_->remove();
    }
    if (settings_.run.sample_tokens > 0 && !outcome_.stopped && done > start_)
      outcome_.sample = sample(engine_, settings_, facts_.prompt);
    if (reporter_) {
      outcome_.tokens_per_s = reporter_->tokens_per_s();
      reporter_->close();
    }
    engine_.synchronize();
    if (probe_) {
      probe_->wait();
      note_probes();
    }
    beat("done");
    return outcome_;
  }

 private:
  // Says what begins now, with the steps done where they are known: for whoever waits for this rank.
  void beat(const char* section, std::int64_t steps = -1, std::map<std::string, double> numbers = {}) const {
    if (!heartbeat_) return;
    heartbeat_.send({.rank = world_.rank(), .step = steps, .section = section, .numbers = std::move(numbers)});
  }

  // From the newest checkpoint, from that of checkpoint.load, or from the beginning.
  void begin() {
    const std::string& data = facts_.fingerprint;
    if (!settings_.checkpoint.dir.empty()) {
      checkpoints_.emplace(plan_, options_.resolved, world_, engine_, host_, options_.fresh);
      origin_ = checkpoints_->resume(data);
    } else if (!settings_.checkpoint.load.empty()) {
      const mesh::Groups groups(plan_.mesh, plan_.chunks, settings_.model.tied_embeddings);
      agreement_.emplace(world_, host_, groups.count());
      origin_ = load_origin({settings_, options_.resolved, data}, world_, engine_, *agreement_);
    }
    compare_instruction_sets();
    preparation_.take(origin_.matmul_choices);
    if (checkpoints_) checkpoints_->set_matmul_choices(preparation_.choices());
    if (!origin_.restored) engine_.initialize(static_cast<std::uint64_t>(settings_.train.seed));
    start_ = origin_.step;
    batch_.origin_step = origin_.step;
    batch_.origin_sample = origin_.samples;
    batch_.skips = origin_.skips;
    if (world_.rank() == 0) keep_chain(start_, origin_.data_chain);
    if (world_.rank() == 0) keep_tokenizer(settings_);
    if (start_ >= settings_.train.steps && world_.rank() == 0) {
      log::info("train",
                "{} has {}, and train.steps is {}: the run is complete. For more steps raise train.steps; for a new "
                "run from these weights set checkpoint.load, checkpoint.weights_only and another checkpoint.dir",
                origin_.path, plural(start_, "step"), settings_.train.steps);
    }
    if (world_.rank() == 0) {
      if (!checkpoints_)
        log::warn("train",
                  "checkpoint.dir is empty: no checkpoints are saved, and the model is lost when the run ends");
      reporter_.emplace(plan_, options_.peak_flops, start_);
      stop_file_.emplace(settings_.run.dir, options_.goes_on);
    }
    const bool validates = facts_.num_validation_samples > 0;
    order_ = {.begin = start_,
              .end = settings_.train.steps,
              .validate_every = validates ? settings_.train.eval_every : 0,
              .rounds = evaluation_rounds(settings_)};
    feed_.begin(order_, batch_, !chain_after(start_).empty());
    if (recorder_ != nullptr && settings_.trace.probe_every_s > 0) {
      const mesh::Groups groups(plan_.mesh, plan_.chunks, settings_.model.tied_embeddings);
      probe_.emplace(world_, host_, groups.count());
      probe_clocks();
    }
    if (options_.stop != nullptr) options_.stop->arm();
    last_end_s_ = monotonic_s();
  }

  // Whoever resumes on another processor should not look for a bug when bits differ.
  void compare_instruction_sets() {
    const std::string& before = origin_.instruction_set;
    tensor::Device& device = engine_.device();
    if (world_.rank() != 0 || before.empty() || device.kind() != "cpu" || device.name() == before) return;
    log::warn("train",
              "the checkpoint was computed on {}, this run computes on {}: bits may differ from those of an "
              "uninterrupted run",
              before, device.name());
  }

  std::int64_t samples(std::int64_t done) const { return batch_.first_sample(done); }
  // Rank 0 alone has the chain, and knows it of the steps that may not be finished yet.
  std::string& chain_after(std::int64_t done) { return chains_[static_cast<std::size_t>(done % 2)]; }
  void keep_chain(std::int64_t done, std::string chain) {
    if (checkpoints_) checkpoints_->set_data_chain(chain);
    chain_after(done) = std::move(chain);
  }

  bool stop_asked() { return (options_.stop && options_.stop->asked()) || (stop_file_ && stop_file_->asked()); }
  Votes cast() {
    Votes votes;
    const comm::Patience::Busy busy(world_.patience(), "looks whether it is to stop");
    votes.stop = stop_asked() ? 1 : 0;
    if (checkpoints_) checkpoints_->cast(votes);
    votes.probe = probe_ && world_.rank() == 0 && monotonic_s() - last_probe_s_ >= probe_pause_s() ? 1 : 0;
    return votes;
  }

  // All ranks at the same step: each round follows a vote, or begins or ends the run.
  void probe_clocks() {
    constexpr int kSamples = 16;
    last_probe_s_ = monotonic_s();
    if (probe_rounds_ == 0) first_probe_s_ = last_probe_s_;
    probe_->round(probe_rounds_++, kSamples);
  }
  // Rounds follow each other quickly at first: a drift is known as well as the rounds are far apart, and whenever a run
  // ends, half of it at the least lies between two of them.
  double probe_pause_s() const {
    constexpr double kShortest_s = 2;
    return std::min(std::max(last_probe_s_ - first_probe_s_, kShortest_s), settings_.trace.probe_every_s);
  }
  void note_probes() {
    for (const trace::format::Probe& probe : probe_->take()) recorder_->probe(probe);
  }

  bool evaluation_due(std::int64_t step) const { return order_.validates_after(step); }
  // Whether a step is finished before the next one is issued. A checkpoint that the loop waits for is on disk before
  // the next step, and must not be there without the step's line in metrics.jsonl.
  bool settles_after(std::int64_t step) const {
    const CheckpointConfig& config = settings_.checkpoint;
    const bool saves = checkpoints_ && !config.async && config.every_steps > 0 && (step + 1) % config.every_steps == 0;
    return saves || evaluation_due(step) || replay_.due(step);
  }
  double lr(std::int64_t step) const { return optim::learning_rate(settings_.optim, step, settings_.train.steps); }

  void issue(std::int64_t step) {
    if (recorder_ != nullptr) recorder_->begin_step(step, trace::now_ns());
    engine_.prefetch();  // its all-gathers overlap the wait for tokens
    const Votes votes = cast();
    if (!engine_.needs_input()) return engine_.issue_step(step, lr(step), {}, {}, votes, {}, guard_.limit(step));
    const double start = monotonic_s();
    const data::Batch batch = wait_for_data(step);
    data_wait_s_ += monotonic_s() - start;
    const std::string& chain = chain_after(step);
    if (!chain.empty()) keep_chain(step + 1, data::extend_chain(chain, batch.digest));
    engine_.issue_step(step, lr(step), batch.tokens, batch.targets, votes, batch.starts, guard_.limit(step),
                       batch.num_targets, batch.patches);
    feed_.release();  // the engine has copied it
  }

  data::Batch wait_for_data(std::int64_t step) {
    const comm::Patience::Busy busy(world_.patience(), "waits for data");
    const trace::HostEvent event(recorder_, trace::Kind::data_wait);
    options_.faults.at(watch::FaultPoint::data, step);
    return feed_.next({.step = step});
  }

  void finish(std::int64_t step) {
    StepReport report;
    report.step = step + 1;
    report.result = engine_.finish_step(step);
    const comm::Patience::Busy busy(world_.patience(), "reports a step");
    const double end = monotonic_s();
    report.op_seconds = engine_.device().op_seconds();
    if (recorder_ != nullptr) recorder_->end_step(step, trace::now_ns(), report.op_seconds);
    report.data_chain = chain_after(step + 1);
    report.lr = lr(step);
    report.seconds = end - last_end_s_;
    if (step > start_) deadlines_.took("step", report.seconds);  // what is made once takes its time in the first
    const double patience_s = deadlines_.sure("step", settings_.run.least_timeout_s);
    world_.patience().set(std::chrono::milliseconds(static_cast<std::int64_t>(patience_s * 1e3)));
    report.step_tokens = plan_.tokens_of(step);
    report.tokens = (samples(step + 1) - batch_.skipped_before(step + 1)) * settings_.model.seq;
    if (report.result.votes.stop > 0) stop_agreed_ = true;
    if (probe_) {
      note_probes();
      if (report.result.votes.probe > 0) probe_clocks();
    }
    if (checkpoints_) {
      checkpoints_->step_took(report.seconds);
      report.saved = checkpoints_->heard(step, report.result.votes);
      report.save_begun = checkpoints_->begun() == report.step;
      report.saving = checkpoints_->busy();
    }
    if (origin_.restored && step == start_) report.resumed = origin_;
    outcome_.loss = report.result.mean_loss();
    const Ruling ruling = guard_.judge(step, outcome_.loss, report.result.grad_norm);
    report.warning = ruling.warning;
    if (!ruling.rollback.empty()) {  // at the next step, too, which was under way
      if (!rollback_) rollback_ = {.at = step + 1, .last = step + 1, .why = ruling.rollback};
      rollback_->last = step + 1;
    }
    const bool stops = ruling.stop && !rollback_;
    double evaluation_s = 0;
    if (replay_.due(step) && !stops && !rollback_) {
      replay_.check(engine_, step);
      evaluation_s = monotonic_s() - end;
    }
    if (evaluation_due(step) && !stops && !rollback_) {
      beat("evaluate");
      outcome_.valid_loss = report.valid_loss = evaluate(step);
      evaluation_s = monotonic_s() - end;
    }
    if (reporter_) {
      report.data_wait_s = std::exchange(data_wait_s_, 0.0);
      for (std::size_t i = 0; i < report.op_seconds.size(); ++i) {
        if (op_seconds_.size() <= i) op_seconds_.push_back(0);
        report.op_seconds[i] -= std::exchange(op_seconds_[i], report.op_seconds[i]);
      }
      report.memory = process_memory(Sysroot().read("/proc/self/status").value_or(""));
      report.memory.device = engine_.device().memory();
      reporter_->step(report);
    }
    if (stops) throw *ruling.stop;  // on every rank
    if (reporter_) {
      std::map<std::string, double> numbers{{"grad_norm", report.result.grad_norm},
                                            {"step_s", report.seconds},
                                            {"tokens_per_s", static_cast<double>(report.step_tokens) / report.seconds}};
      if (outcome_.loss) numbers["loss"] = *outcome_.loss;
      beat("step", step + 1, std::move(numbers));
    } else {
      beat("step", step + 1);
    }
    last_end_s_ = end + evaluation_s;  // no part of the next step; this step is reported while that is under way
  }

  // nullopt: there are no targets, or this rank reads no data, or the run stops, and does not wait for all rounds.
  std::optional<double> evaluate(std::int64_t step) {
    const comm::Patience::Busy busy(world_.patience(), "evaluates");
    double loss = 0, targets = 0;  // of the whole evaluation
    for (std::int64_t round = 0; round < order_.rounds && !stop_agreed_; ++round) {
      const data::Batch batch = engine_.needs_input() ? feed_.next({.step = step, .round = round}) : data::Batch();
      targets = static_cast<double>(batch.num_targets);
      const auto part =
          engine_.evaluate(batch.tokens, batch.targets, targets, batch.starts, stop_asked(), batch.patches);
      if (engine_.needs_input()) feed_.release();
      stop_agreed_ = !part;
      loss += part.value_or(0);
    }
    if (!stop_agreed_) return targets > 0 ? std::optional(loss) : std::nullopt;
    if (reporter_)
      log::warn("train", "the evaluation after step {} is left out, as the run stops; see ms-train eval", step + 1);
    return std::nullopt;
  }

  const Plan& plan_;
  const Settings& settings_;
  comm::World& world_;
  DataFeed feed_;
  const data::DataFacts facts_;
  Preparation preparation_;
  Engine engine_;
  Guard guard_;
  Replay replay_;
  trace::Recorder* recorder_;  // nullptr: nothing is traced
  tensor::Device& host_;       // for messages of the host's memory
  TrainerOptions options_;
  std::atomic<std::int64_t>& step_;
  const watch::Heartbeat heartbeat_;
  watch::Deadlines deadlines_;
  data::BatchShape batch_;
  data::BatchOrder order_;
  std::optional<comm::ClockProbe> probe_;
  int probe_rounds_ = 0;
  double first_probe_s_ = 0, last_probe_s_ = 0;
  std::array<std::string, 2> chains_;  // of the last two steps, by parity
  std::optional<Reporter> reporter_;
  std::optional<Checkpoints> checkpoints_;
  std::optional<Agreement> agreement_;  // without them, for checkpoint.load; the device knows its stream to the end
  std::optional<watch::StopFile> stop_file_;  // on rank 0
  Origin origin_;
  std::int64_t start_ = 0;  // steps done when this run began
  bool stop_agreed_ = false;
  // The guard wants to go back before step `at`, and leaves out the data up to step `last`; both counted from 1.
  struct WantedRollback {
    std::int64_t at = 0, last = 0;
    std::string why;
  };
  std::optional<WantedRollback> rollback_;
  Outcome outcome_;
  double last_end_s_ = 0, data_wait_s_ = 0;
  std::vector<double> op_seconds_;
};

}  // namespace

Outcome train(const Plan& plan, comm::World& world, tensor::Device& device, tensor::Device& host,
              const TrainerOptions& options, std::atomic<std::int64_t>& step) {
  // Groups before all else: what they take of a GPU is not free then.
  Trainer trainer(plan, world, device, host, RankGroups(plan, world, device), options, step);
  try {
    return trainer.run();
  } catch (const Error& error) {
    watch::begin_ending();
    options.failed(error);
    throw;
  }
}

}  // namespace ms::train
