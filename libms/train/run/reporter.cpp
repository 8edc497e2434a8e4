#include "train/run/reporter.h"

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "cost/mfu.h"

namespace ms::train {

Reporter::Reporter(const Plan& plan, double peak_flops, std::int64_t start)
    : plan_(plan),
      flops_(cost::flops_per_token(plan.model_shape())),
      peak_flops_(peak_flops),
      metrics_(plan.settings.run.dir + "/metrics.jsonl", start) {
  const ProgressOptions options = progress_options();
  if (options.terminal) progress_.emplace("train", plan.settings.train.steps, "steps", clock_, options);
}

double Reporter::tokens_per_s() const {
  if (steps_ == 0) return 0;
  return steps_ == 1 ? first_tokens_ / first_s_ : tokens_ / seconds_;
}

void Reporter::step(const StepReport& report) {
  const auto tokens = static_cast<double>(plan_.tokens_of(report.step - 1));
  (steps_ == 0 ? first_tokens_ : tokens_) += tokens;
  (steps_++ == 0 ? first_s_ : seconds_) += report.seconds;
  const double rate = tokens / report.seconds;
  if (report.valid_loss) valid_loss_ = report.valid_loss;

  Json json{{"step", report.step},     {"loss", report.result.loss}, {"grad_norm", report.result.grad_norm},
            {"lr", report.lr},         {"tokens", report.tokens},    {"tokens_per_s", rate},
            {"step_s", report.seconds}};
  if (report.result.skipped) json["skipped"] = true;
  if (report.valid_loss) json["valid_loss"] = *report.valid_loss;
  if (report.resumed) {
    json["resumed"] = {{"step", report.resumed->step},
                       {"path", report.resumed->path},
                       {"bytes", report.resumed->bytes},
                       {"bytes_read", report.resumed->bytes_read},
                       {"seconds", report.resumed->seconds}};
  }
  if (report.save_begun) json["save"] = true;
  if (report.saving) json["saving"] = true;
  if (const auto& saved = report.saved) {
    json["saved"] = {{"step", saved->step},       {"committed", saved->committed}, {"rank_bytes", saved->bytes},
                     {"write_s", saved->write_s}, {"cpu_s", saved->cpu_s},         {"total_s", saved->total_s}};
  }
  if (peak_flops_ > 0) {
    auto mfu = [&](double flops) { return cost::mfu(flops, rate, peak_flops_, plan_.mesh.size()); };
    json["mfu"] = {{"gemm", mfu(flops_.gemm)},
                   {"causal", mfu(flops_.causal)},
                   {"full", mfu(flops_.full)},
                   {"reported", mfu(flops_.reported)},
                   {"peak_tflops", peak_flops_ * 1e-12}};
  }
  Json seconds{{"data_wait", report.data_wait_s}};
  for (std::size_t i = 0; i < report.op_seconds.size(); ++i) {
    seconds[std::string(to_string(static_cast<tensor::OpClass>(i)))] = report.op_seconds[i];
  }
  json["seconds"] = std::move(seconds);
  metrics_.write(json.dump());

  const std::string losses = fmt::format("loss {:.4f}{}", report.result.loss,
                                         valid_loss_ ? fmt::format(", valid {:.4f}", *valid_loss_) : std::string());
  last_note_ = fmt::format("{}, {} tokens/s", losses, format_count(rate));
  if (progress_) progress_->update(report.step, last_note_);
  if (report.result.skipped) {
    log::warn("train", "step {}: the gradient norm is {}, the step was skipped", report.step, report.result.grad_norm);
  }
  const bool due = report.step % plan_.settings.train.log_every == 0 || report.step == plan_.settings.train.steps;
  if (!progress_ && (due || report.valid_loss)) {
    log::info("train", "step {} of {}, {}, norm {:.3f}, lr {:.3g}, {} tokens/s", report.step,
              plan_.settings.train.steps, losses, report.result.grad_norm, report.lr, format_count(rate));
  }
}

void Reporter::close() {
  if (progress_) progress_->finish(last_note_);
  metrics_.close();
}

}  // namespace ms::train
