#include "train/run/step_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace ms::train {
namespace {

using ::testing::ElementsAre;

// A step with everything that a step can have.
StepReport full_report() {
  StepReport report;
  report.step = 8;
  report.result = {.loss = 2,
                   .grad_norm = 0.5,
                   .skipped = true,
                   .votes = {},
                   .module_norms = {0.3, 0.4},
                   .expert_loads = {30, 10, 0, 0, 20, 20},
                   .dropped = 0.125,
                   .num_targets = 200};
  report.step_tokens = 512;
  report.tokens = 4096;
  report.data_chain = "0123456789abcdef";
  report.lr = 1e-3;
  report.seconds = 0.5;
  report.op_seconds = {0.25};
  report.memory = {.process_bytes = 100, .process_peak_bytes = 200, .device = {.free_bytes = 30, .total_bytes = 80}};
  report.valid_loss = 3;
  report.resumed = Origin{};
  report.save_begun = report.saving = true;
  report.saved = ckpt::SaveOutcome{};
  return report;
}
RunFacts facts() {
  return {.ranks = 4,
          .flops = {.gemm = 6e9, .causal = 7e9, .full = 9e9, .reported = 8e9},
          .peak_flops = 8e12,
          .tensor_bytes = 64,
          .modules = {"embed", "layers.0.attn"},
          .experts = 3};
}

TEST(StepMetrics, EveryKeyIsInTheManualAndEveryRowIsAKey) {
  std::vector<std::string> keys, rows;
  const Json json = step_metrics(full_report(), facts());
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  for (const auto& [key, doc] : metrics_manual()) {
    rows.push_back(key);
    EXPECT_THAT(doc, ::testing::EndsWith("."));
  }
  EXPECT_THAT(rows, ::testing::UnorderedElementsAreArray(keys));
}

TEST(StepMetrics, CountTargetsOnlyWhereTheLossIgnoresTokens) {
  StepReport report = full_report();
  EXPECT_EQ(step_metrics(report, facts()).get<int>("targets"), 200);
  report.result.num_targets = report.step_tokens;
  EXPECT_FALSE(step_metrics(report, facts()).contains("targets"));
}

TEST(StepMetrics, AStepWithoutTargetsHasNoLoss) {
  StepReport report = full_report();
  report.result.num_targets = 0;
  report.result.loss = 0;
  const Json json = step_metrics(report, facts());
  EXPECT_TRUE(json.at("loss").is_null());
  EXPECT_EQ(json.get<int>("targets"), 0);
  for (const trace::Scalar& scalar : scalars_of(json)) EXPECT_NE(scalar.tag, "train/loss");
}

TEST(StepMetrics, CountRatesOfARank) {
  const Json json = step_metrics(full_report(), facts());
  EXPECT_DOUBLE_EQ(json.get<double>("tokens_per_s"), 1024);
  EXPECT_DOUBLE_EQ(json.get<double>("tflops"), 8e9 * 1024 / 4 * 1e-12);
  EXPECT_DOUBLE_EQ(json.at("mfu").get<double>("causal"), 7e9 * 1024 / (4 * 8e12));
  EXPECT_EQ(json.at("memory_bytes").dump(),
            R"({"tensors":64,"process":100,"process_peak":200,"device":50,"device_total":80})");
  EXPECT_EQ(json.at("grad_norms").dump(), R"({"embed":0.3,"layers.0.attn":0.4})");
  EXPECT_EQ(json.at("expert_load").dump(),
            R"({"most":2.25,"least":0.0,"dropped":0.125,"layers":[[2.25,0.75,0.0],[0.0,1.5,1.5]]})");
  StepReport dense = full_report();
  std::fill_n(dense.result.expert_loads.begin(), 3, 0.0);
  EXPECT_EQ(step_metrics(dense, facts()).at("expert_load").dump(),
            R"({"most":1.5,"least":0.0,"dropped":0.125,"layers":[[],[0.0,1.5,1.5]]})");
}

TEST(StepMetrics, AStepWithoutTimeHasNoRate) {
  StepReport report = full_report();
  report.seconds = 0;
  const Json json = step_metrics(report, facts());
  for (const char* key : {"tokens_per_s", "tflops"}) EXPECT_EQ(json.get<double>(key), 0) << key;
}

TEST(StepMetrics, LeaveOutWhatIsNotKnown) {
  StepReport report;
  report.seconds = 1;
  RunFacts run = facts();
  run.peak_flops = 0;
  const Json json = step_metrics(report, run);
  for (const char* key : {"mfu", "grad_norms", "valid_loss", "skipped", "resumed", "saved"}) {
    EXPECT_FALSE(json.contains(key)) << key;
  }
  EXPECT_TRUE(json.contains("tflops"));
  EXPECT_EQ(json.at("memory_bytes").dump(), R"({"tensors":64})");
}

TEST(StepMetrics, NumbersBecomeScalars) {
  StepReport report = full_report();
  report.result.grad_norm = NAN;
  std::map<std::string, double> values;
  std::vector<std::string> tags;
  for (const trace::Scalar& scalar : scalars_of(step_metrics(report, facts()))) {
    EXPECT_TRUE(values.emplace(scalar.tag, scalar.value).second) << scalar.tag;
    tags.push_back(scalar.tag);
  }
  EXPECT_EQ(values.at("train/loss"), 2);
  EXPECT_TRUE(std::isnan(values.at("train/grad_norm")));
  EXPECT_EQ(values.at("grad_norms/layers.0.attn"), 0.4);
  EXPECT_THAT(tags, ::testing::IsSupersetOf({"train/loss", "train/grad_norm", "train/lr", "train/valid_loss",
                                             "grad_norms/layers.0.attn", "mfu/causal", "memory_bytes/device",
                                             "saved/write_s", "seconds/data_wait"}));
  // Neither the axis nor what is no number.
  EXPECT_THAT(tags, ::testing::Each(::testing::Not(::testing::AnyOf("train/step", "train/save", "resumed/path"))));
}

TEST(ProcessMemory, ReadsTheSystemsWords) {
  const struct {
    std::string_view status;
    std::int64_t now, peak;
  } kRows[] = {
      {"Name:\tms-train\nVmHWM:\t  2048 kB\nVmRSS:\t    1024 kB\nThreads:\t3\n", 1 << 20, 2 << 20},
      {"VmRSS:\t7 kB", 7168, -1},
      {"VmRSS:\nVmHWM: x kB\n", -1, -1},
      {"", -1, -1},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(process_memory(row.status).process_bytes, row.now) << row.status;
    EXPECT_EQ(process_memory(row.status).process_peak_bytes, row.peak) << row.status;
  }
}

TEST(ModuleNames, AreWhatAUserCanName) {
  const struct {
    std::string_view parameter, module;
  } kRows[] = {{"embed.tokens.weight", "embed"},
               {"layers.3.attn.q.weight", "layers.3.attn"},
               {"layers.12.norm1.bias", "layers.12.norm1"},
               {"final_norm.weight", "final_norm"},
               {"head.weight", "head"},
               {"odd", "odd"}};
  for (const auto& row : kRows) EXPECT_EQ(module_of(row.parameter), row.module);
  nn::ModelConfig model;
  model.layers = 2;
  EXPECT_THAT(module_names(model),
              ElementsAre("embed", "layers.0.norm1", "layers.0.attn", "layers.0.norm2", "layers.0.mlp",
                          "layers.1.norm1", "layers.1.attn", "layers.1.norm2", "layers.1.mlp", "final_norm"));
}

}  // namespace
}  // namespace ms::train
