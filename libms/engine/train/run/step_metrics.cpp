#include "train/run/step_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "cost/mfu.h"

namespace ms::train {
namespace {

struct Metric {
  std::string_view key, doc;
};

constexpr Metric kMetrics[] = {
    {"step", "Number of the step, from 1."},
    {"loss", "Mean over the targets of the step's batch, in nats, before the step's update. null if targets is 0."},
    {"grad_norm", "L2 norm of all gradients before clipping. If it is not finite, it is null and skipped is true."},
    {"lr", "The step's learning rate."},
    {"tokens", "Tokens trained on since the beginning of the data."},
    {"targets", "Tokens of the step that the loss counts, over all ranks. Absent if it counts all of them."},
    {"data_chain",
     "Hash of all samples trained on, in the order of steps, as ms-data sample --chain computes it. Two runs with the "
     "same hash trained on the same data, regardless of dp and of the number of resumes. Absent if the run resumed "
     "from a checkpoint without it."},
    {"tokens_per_s", "Tokens per second: tokens of the step divided by step_s."},
    {"step_s", "Seconds since the end of the previous step, without evaluation."},
    {"skipped", "true: [guard] skipped the step's update."},
    {"valid_loss", "Loss on the validation data, in steps with an evaluation that has targets."},
    {"grad_norms", "Gradient norms by module of the model, in the steps that metrics.grad_norms_every selects."},
    {"expert_load",
     "Loads of experts since the last such step, in the steps that metrics.expert_load_every selects: layers has a "
     "list for each layer, 1 being an even share of its tokens, empty for a dense layer; most and least are those of "
     "all; dropped is the share of rows, a token for an expert each, that were dropped (train.moe_capacity)."},
    {"resumed", "In the first step of a resumed run: the checkpoint, and the cost of loading it."},
    {"save", "true: a checkpoint of this step is being saved."},
    {"saving", "true: a save was in progress when the step ended."},
    {"saved",
     "A save ended: its step, whether it was committed, rank 0's bytes and times, and the time from the step to the "
     "commit."},
    {"memory_bytes",
     "tensors: planned, on the rank with the most; process, process_peak: resident memory of rank 0's process, which "
     "includes all ranks that are its threads; device, device_total: used memory of rank 0's GPU, and its size."},
    {"tflops",
     "Model TFLOP/s per rank: GEMMs, and attention as the MegaScale paper counts it (the convention 'reported'), "
     "without recomputation."},
    {"mfu",
     "Model FLOPs utilization: model TFLOP/s divided by the peak, by convention. gemm: GEMMs only; causal: with "
     "unmasked attention; full: with all attention; reported: as tflops. Absent if the peak is not known, see "
     "run.peak_tflops."},
    {"seconds", "On rank 0: data_wait, the host's wait for tokens; and device time by class of operation."},
};

}  // namespace

MemoryUse process_memory(std::string_view status) {
  const auto bytes_of = [&](std::string_view key) -> std::int64_t {
    const std::size_t at = status.find(key);
    if (at == std::string_view::npos) return -1;
    std::string_view rest = status.substr(at + key.size());
    rest = trim(rest.substr(0, rest.find('\n')));
    std::int64_t kib = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), kib);
    return error == std::errc() ? kib * 1024 : -1;
  };
  return {.process_bytes = bytes_of("VmRSS:"), .process_peak_bytes = bytes_of("VmHWM:"), .device = {}};
}

std::vector<std::vector<double>> expert_shares(const StepResult& result, std::int64_t experts) {
  std::vector<std::vector<double>> layers;
  for (std::size_t at = 0; at < result.expert_loads.size(); at += static_cast<std::size_t>(experts)) {
    const auto begin = result.expert_loads.begin() + static_cast<std::ptrdiff_t>(at);
    std::vector<double> loads(begin, begin + experts);
    const double even = std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(experts);
    if (even == 0) loads.clear();
    for (double& load : loads) load = std::round(1e3 * load / even) / 1e3;
    layers.push_back(std::move(loads));
  }
  return layers;
}

Json step_metrics(const StepReport& report, const RunFacts& run) {
  const double rate = report.tokens_per_s();
  const std::optional<double> loss = report.result.mean_loss();
  Json json{{"step", report.step},
            {"loss", loss ? Json(*loss) : Json()},
            {"grad_norm", report.result.grad_norm},
            {"lr", report.lr},
            {"tokens", report.tokens},
            {"tokens_per_s", rate},
            {"step_s", report.seconds}};
  if (report.result.num_targets < report.step_tokens) json["targets"] = report.result.num_targets;
  if (!report.data_chain.empty()) json["data_chain"] = report.data_chain;
  if (report.result.skipped) json["skipped"] = true;
  if (report.valid_loss) json["valid_loss"] = *report.valid_loss;
  for (std::size_t i = 0; i < report.result.module_norms.size(); ++i) {
    json["grad_norms"][run.modules[i]] = report.result.module_norms[i];
  }
  if (const auto loads = expert_shares(report.result, run.experts); !loads.empty()) {
    double most = 0, least = std::numeric_limits<double>::max();
    for (const std::vector<double>& layer : loads) {
      if (layer.empty()) continue;
      most = std::max(most, std::ranges::max(layer));
      least = std::min(least, std::ranges::min(layer));
    }
    json["expert_load"] = {{"most", most}, {"least", least}, {"dropped", report.result.dropped}, {"layers", loads}};
  }
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
  Json memory{{"tensors", run.tensor_bytes}};
  if (report.memory.process_bytes >= 0) memory["process"] = report.memory.process_bytes;
  if (report.memory.process_peak_bytes >= 0) memory["process_peak"] = report.memory.process_peak_bytes;
  if (const tensor::DeviceMemory& device = report.memory.device; device.total_bytes >= 0) {
    memory["device"] = device.total_bytes - device.free_bytes;
    memory["device_total"] = device.total_bytes;
  }
  json["memory_bytes"] = std::move(memory);
  json["tflops"] = run.flops.reported * rate / run.ranks * 1e-12;
  if (run.peak_flops > 0) {
    auto mfu = [&](double flops) { return cost::mfu(flops, rate, run.peak_flops, run.ranks); };
    json["mfu"] = {{"gemm", mfu(run.flops.gemm)},
                   {"causal", mfu(run.flops.causal)},
                   {"full", mfu(run.flops.full)},
                   {"reported", mfu(run.flops.reported)},
                   {"peak_tflops", run.peak_flops * 1e-12}};
  }
  Json seconds{{"data_wait", report.data_wait_s}};
  for (std::size_t i = 0; i < report.op_seconds.size(); ++i) {
    seconds[std::string(to_string(static_cast<tensor::OpClass>(i)))] = report.op_seconds[i];
  }
  json["seconds"] = std::move(seconds);
  return json;
}

std::vector<std::pair<std::string, std::string>> metrics_manual() {
  std::vector<std::pair<std::string, std::string>> items;
  for (const Metric& metric : kMetrics) items.emplace_back(metric.key, metric.doc);
  return items;
}

std::vector<trace::Scalar> scalars_of(const Json& metrics) {
  std::vector<trace::Scalar> scalars;
  const auto add = [&](std::string tag, const Json& value) {
    if (value.is_number()) scalars.push_back({std::move(tag), value.get<double>()});
  };
  for (const auto& [key, value] : metrics.items()) {
    if (key == "step") continue;
    if (!value.is_object()) add("train/" + key, value);
    if (!value.is_object()) continue;
    for (const auto& [name, part] : value.items()) add(key + "/" + name, part);
  }
  return scalars;
}

}  // namespace ms::train
