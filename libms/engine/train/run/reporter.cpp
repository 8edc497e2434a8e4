#include "train/run/reporter.h"

#include "base/log.h"
#include "base/text.h"
#include "trace/expert_loads.h"
#include "train/simulate/memory.h"

namespace ms::train {

namespace {

RunFacts facts_of(const Plan& plan, double peak_flops) {
  return {.ranks = plan.mesh.size(),
          .flops = cost::flops_per_token(plan.model_shape()),
          .peak_flops = peak_flops,
          .tensor_bytes = largest_stage(plan).bytes,
          .modules = module_names(plan.settings.model),
          .experts = plan.settings.model.experts};
}

double rate_of(double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

}  // namespace

Reporter::Reporter(const Plan& plan, double peak_flops, std::int64_t start)
    : plan_(plan),
      facts_(facts_of(plan, peak_flops)),
      metrics_(plan.settings.run.dir + "/metrics.jsonl", start),
      expectation_(plan.settings) {
  if (plan.settings.metrics.tensorboard) {
    curves_.emplace(plan.settings.run.dir + "/tensorboard", start + 1, clock_.wall_s());
  }
  const ProgressOptions options = progress_options();
  if (options.terminal) progress_.emplace("train", plan.settings.train.steps, "steps", clock_, options);
}

double Reporter::tokens_per_s() const {
  if (steps_ == 0) return 0;
  return steps_ == 1 ? rate_of(first_tokens_, first_s_) : rate_of(tokens_, seconds_);
}

void Reporter::step(const StepReport& report) {
  const auto tokens = static_cast<double>(report.step_tokens);
  (steps_ == 0 ? first_tokens_ : tokens_) += tokens;
  (steps_++ == 0 ? first_s_ : seconds_) += report.seconds;
  line_tokens_ += tokens, line_s_ += report.seconds;
  const double rate = rate_of(line_tokens_, line_s_);
  if (report.valid_loss) valid_loss_ = report.valid_loss;

  const Json line = step_metrics(report, facts_);
  keep(report.step, [&] {
    metrics_.write(line.dump());
    if (curves_) curves_->write(report.step, clock_.wall_s(), scalars_of(line));
  });

  const std::optional<double> loss = report.result.mean_loss();
  const std::string losses = (loss ? fmt::format("loss {:.4f}", *loss) : "no targets") +
                             (valid_loss_ ? fmt::format(", valid {:.4f}", *valid_loss_) : std::string());
  last_note_ = fmt::format("{}, {} tokens/s", losses, format_count(rate));
  if (progress_) progress_->update(report.step, last_note_);
  if (!report.warning.empty()) log::warn("train", "{}", report.warning);
  warn_of_experts(report);
  const bool due = report.step % plan_.settings.train.log_every == 0 || report.step == plan_.settings.train.steps;
  if (!progress_ && (due || report.valid_loss)) {
    log::info("train", "step {} of {}, {}, grad_norm {:.3f}, lr {:.3g}, {} tokens/s", report.step,
              plan_.settings.train.steps, losses, report.result.grad_norm, report.lr, format_count(rate));
  }
  if (due) line_tokens_ = line_s_ = 0;
  expectation_.step(report.step, report.seconds);
}

void Reporter::warn_of_experts(const StepReport& report) {
  if (report.result.expert_loads.empty()) return;
  const std::string warning = trace::starving_experts(expert_shares(report.result, facts_.experts));
  if (!warning.empty() && !starves_) log::warn("train", "{}", warning);
  starves_ = !warning.empty();
  constexpr double kMany = 0.01;
  const bool drops = report.result.dropped > kMany;
  if (drops && !drops_)
    log::warn("train", "{:.1f} % of the rows of experts were dropped: raise train.moe_capacity or train.moe_aux_loss",
              100 * report.result.dropped);
  drops_ = drops;
}

void Reporter::keep(std::int64_t step, const std::function<void()>& write) {
  try {
    write();
    if (not_written_ > 0) {
      log::warn("train", "metrics are written again from step {} on; {} are missing", step,
                plural(static_cast<std::size_t>(not_written_), "step"));
    }
    not_written_ = 0;
  } catch (const Error& error) {
    if (not_written_++ == 0) {
      log::warn("train", "the metrics of step {} are lost, training continues: {}", step, error.message());
    }
  }
}

void Reporter::close() {
  if (progress_) progress_->finish(last_note_);
  if (not_written_ > 0) {
    log::warn("train", "the metrics of the last {} are missing",
              plural(static_cast<std::size_t>(not_written_), "step"));
  }
  not_written_ = 0;
  keep(steps_, [&] {
    metrics_.close();
    if (curves_) curves_->close();
  });
}

}  // namespace ms::train
