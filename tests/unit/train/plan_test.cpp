// The plan, and what is said about it: schedules with their slots, the memory of a rank, text and JSON.
#include "train/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cost/zero.h"
#include "sched/checker.h"
#include "sched/csv.h"
#include "train/commands/show_plan.h"
#include "train/engine/rank_tensors.h"

namespace ms::train {
namespace {

using ::testing::HasSubstr;

Settings settings_of(std::int64_t dp, std::int64_t pp, std::int64_t tp, std::int64_t chunks = 1) {
  Settings settings;
  settings.model = {.layers = 8, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32, .tied_embeddings = true};
  settings.mesh = {.dp = dp, .pp = pp, .tp = tp, .chunks = chunks};
  settings.train.global_batch = 8 * dp;
  settings.train.microbatch = 2;
  return settings;
}

Plan plan_for(const Settings& settings) { return make_plan(settings, static_cast<int>(settings.mesh.ranks())); }

std::int64_t bytes_of(const RankMemory& memory, std::string_view what) {
  const auto row =
      std::find_if(memory.rows.begin(), memory.rows.end(), [&](const MemoryRow& r) { return r.what == what; });
  return row == memory.rows.end() ? 0 : row->bytes;
}

TEST(Plan, FollowsFromTheSettings) {
  const Plan plan = plan_for(settings_of(2, 2, 2, 2));
  EXPECT_EQ(plan.mesh, (mesh::Mesh{2, 2, 2}));
  EXPECT_EQ(plan.chunks, 2);
  EXPECT_EQ(plan.microbatches, 4);
  EXPECT_EQ(plan.tokens_per_step(), 16 * 32);
  EXPECT_EQ(plan.dtype, tensor::DType::bf16);
  EXPECT_FALSE(plan.holds_head(0));
  EXPECT_TRUE(plan.holds_head(1));
  EXPECT_EQ(plan.part(1, 0).layer_begin, 2);
  EXPECT_TRUE(plan.part(1, 1).last);
}

TEST(Plan, SchedulesAreSoundWithAsManySlotsAsLiveMicrobatches) {
  for (const auto& [pp, chunks] : {std::pair{1, 1}, {2, 1}, {4, 1}, {2, 2}, {4, 2}}) {
    Settings settings = settings_of(1, pp, 1, chunks);
    for (const char* name : {"1f1b", "gpipe", "zb-h1"}) {
      if (chunks > 1 && std::string_view(name) != "1f1b") continue;
      settings.mesh.schedule = name;
      const Plan plan = plan_for(settings);
      const sched::Report report = sched::check(plan.training);
      ASSERT_TRUE(report.ok) << report.problem;
      EXPECT_TRUE(sched::check(plan.evaluation).ok);
      EXPECT_TRUE(sched::check(plan.single).ok);
      EXPECT_EQ(plan.single.shape.microbatches, 1);
      for (std::size_t p = 0; p < static_cast<std::size_t>(pp); ++p) {
        const int slots = plan.training.slots[p], live = report.ranks[p].peak_chunks;
        EXPECT_GE(slots, live) << name << " pp " << pp << " rank " << p;
        EXPECT_LE(slots, live + 1) << name << " pp " << pp << " rank " << p;
        if (std::string_view(name) == "gpipe") { EXPECT_EQ(slots, plan.microbatches); }
      }
    }
  }
}

TEST(Plan, SchedulesAreMadeForTheOverlap) {
  const auto row_of = [](const std::vector<sched::Row>& rows, std::string_view cell) {
    return std::find_if(rows.begin(), rows.end(), [&](const sched::Row& row) { return sched::cell(row) == cell; }) -
           rows.begin();
  };
  Settings settings = settings_of(2, 2, 1, 4);
  const Plan with = plan_for(settings);
  EXPECT_LT(row_of(with.training.rows[1], "RF0.1"), row_of(with.training.rows[1], "F0.0")) << "received early";
  EXPECT_LT(row_of(with.training.rows[0], "G1"), row_of(with.training.rows[0], "F0.0")) << "prefetched";
  EXPECT_GT(row_of(with.training.rows[0], "G3"), row_of(with.training.rows[0], "F0.0")) << "not needed yet";

  settings.overlap = {.tp = false, .pp = false, .dp = false};
  const Plan without = plan_for(settings);
  EXPECT_GT(row_of(without.training.rows[1], "RF0.1"), row_of(without.training.rows[1], "F0.0"));
  EXPECT_GT(row_of(without.evaluation.rows[1], "RF0.1"), row_of(without.evaluation.rows[1], "F0.0"));
  for (const std::vector<sched::Row>& rows : without.training.rows) {
    for (std::size_t c = 0; c < 4; ++c) EXPECT_EQ(rows[c].action, sched::Action::gather_params) << "all of them first";
  }
  for (const sched::Schedule* schedule : {&without.training, &without.evaluation, &without.single}) {
    const sched::Report report = sched::check(*schedule, {}, sched::Coupling::coupled);
    EXPECT_TRUE(report.ok) << report.problem;
  }
}

TEST(Plan, GradientBuffersAreWhatTheScheduleNeeds) {
  for (const auto& [pp, chunks, schedule] :
       {std::tuple{1, 1, "1f1b"}, {2, 1, "1f1b"}, {4, 1, "zb-h1"}, {4, 2, "1f1b"}}) {
    Settings settings = settings_of(1, pp, 1, chunks);
    settings.mesh.schedule = schedule;
    const Plan plan = plan_for(settings);
    const sched::Report report = sched::check(plan.training);
    const RankTensors tensors = [&plan, pp = pp] {
      tensor::Arena arena = tensor::Arena::measuring();
      return carve_rank(arena, plan, {.dp = 0, .pp = pp - 1, .tp = 0}, nullptr);
    }();
    const int needed = report.ranks.back().gradient_buffers;
    EXPECT_GE(needed, 1);
    for (const ChunkTensors& chunk : tensors.chunks) {
      EXPECT_EQ(chunk.gradients.size(), static_cast<std::size_t>(needed)) << schedule << " pp " << pp;
    }
  }
}

TEST(Plan, RefusesAScheduleThatCannotBeObeyedWithoutOverlap) {
  // Both ranks send before they receive: sound where sends travel under compute, and nowhere else.
  std::string path = (std::filesystem::temp_directory_path() / "ms-plan-test-XXXXXX").string();
  const int file = ::mkstemp(path.data());
  ASSERT_GE(file, 0);
  ::close(file);
  const std::string csv = path + ".csv";
  Settings settings = settings_of(1, 2, 1);
  settings.mesh.schedule = "1f1b";
  std::ofstream(csv) << sched::to_csv(plan_for(settings).training);
  settings.mesh.schedule = csv;
  EXPECT_NO_THROW(plan_for(settings));
  settings.overlap.pp = false;
  try {
    plan_for(settings);
    ADD_FAILURE() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "sched.invalid");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), HasSubstr("cannot run with overlap.pp = false"));
  }
  std::filesystem::remove(path);
  std::filesystem::remove(csv);
}

TEST(Plan, RefusesAnotherWorld) {
  for (const int world : {0, 1, 4, 16}) {
    try {
      make_plan(settings_of(2, 2, 2), world);
      FAIL() << world << " ranks were accepted for 2 x 2 x 2";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "mesh.size");
      EXPECT_EQ(error.blame(), Blame::user);
    }
  }
}

TEST(Memory, RowsAddUp) {
  for (const char* family : {"gpt", "llama"}) {
    for (const std::int64_t zero : {0, 1, 2}) {
      Settings settings = settings_of(2, 2, 2, 2);
      settings.model.family = family;
      settings.optim.zero = zero;
      const Plan plan = plan_for(settings);
      for (int rank = 0; rank < plan.mesh.size(); ++rank) {
        const RankMemory memory = rank_memory(plan, plan.mesh.coord(rank));
        std::int64_t sum = 0;
        for (const MemoryRow& row : memory.rows) {
          EXPECT_GT(row.bytes, 0) << row.what;
          sum += row.bytes;
        }
        EXPECT_EQ(sum, memory.total_bytes);
        EXPECT_EQ(bytes_of(memory, "logits and loss") > 0, plan.mesh.coord(rank).pp == 1);
        EXPECT_EQ(bytes_of(memory, "gradient buffer") > 0, zero == 2);
      }
    }
  }
}

TEST(Memory, InferenceHoldsTheParametersAndWhatAForwardNeeds) {
  for (const std::int64_t zero : {0, 1, 2}) {
    for (const std::string_view dtype : {"fp32", "bf16"}) {
      Settings settings = settings_of(2, 2, 2, 2);
      settings.optim.zero = zero;
      settings.train.dtype = dtype;
      settings.train.recompute = "full";
      const Plan training = plan_for(settings), plan = make_inference_plan(settings, 8, false);
      for (int rank = 0; rank < plan.mesh.size(); ++rank) {
        const mesh::Coord at = plan.mesh.coord(rank);
        std::int64_t parameters = 0;
        for (int c = 0; c < plan.chunks; ++c) {
          for (const nn::SpanSpec& span : plan.spans(at.pp, at.tp, c)) parameters += span.numel;
        }
        const RankMemory memory = rank_memory(plan, at), whole = rank_memory(training, at);
        EXPECT_NEAR(static_cast<double>(bytes_of(memory, "parameters")),
                    static_cast<double>(parameters * tensor::size_of(plan.dtype)), 4 * tensor::Arena::kAlignment);
        EXPECT_EQ(bytes_of(memory, "gradient buffer") + bytes_of(memory, "activation gradients"), 0);
        EXPECT_LE(bytes_of(memory, "activations"), bytes_of(whole, "activations"));
        EXPECT_LT(memory.total_bytes, whole.total_bytes / 2);
      }
      // To generate: keys and values of every layer; stage 0 has half of them.
      settings.mesh.sequence_parallel = false;
      const Plan generating = make_inference_plan(settings, 8, true);
      EXPECT_EQ(bytes_of(rank_memory(generating, {}), "keys and values"),
                settings.model.layers / 2 * settings.model.seq * 2 * generating.shape(0).kv_cols() *
                    tensor::size_of(plan.dtype));
      settings.run.device = "cuda";
      EXPECT_FALSE(make_inference_plan(settings, 8, true).caches);
    }
  }
}

TEST(Memory, StateAgreesWithTheZeroFormula) {
  const auto name = [](bool is_bf16) { return is_bf16 ? "bf16" : "fp32"; };
  // 64 bf16 elements are half a unit of the arena: tensors may end in the middle of one.
  const auto aligning = [](double each, std::int64_t elements) {
    const auto bytes = static_cast<std::int64_t>(each) * elements;
    return mesh::pad_to_multiple(bytes, tensor::Arena::kAlignment) - bytes;
  };
  for (const std::int64_t zero : {0, 1, 2}) {
    for (const auto& [bf16, grads, moments] :
         {std::tuple{false, false, false}, {true, true, false}, {true, false, true}}) {
      for (const auto& [dp, shards] : {std::pair{1, 1}, {2, 2}, {4, 4}, {4, 2}}) {
        Settings settings = settings_of(dp, 2, 2, 2);
        settings.optim.zero = zero;
        if (shards < dp) settings.optim.shard_group = shards;
        settings.train.dtype = name(bf16);
        settings.optim.main_grads_dtype = name(grads);
        settings.optim.moments_dtype = name(moments);
        const Plan plan = plan_for(settings);
        const cost::StateBytes state = cost::state_bytes(bf16, grads, moments ? 1 : 2);
        for (int p = 0; p < 2; ++p) {
          std::int64_t padded = 0, largest = 0, aligning_bytes = 0;
          for (int c = 0; c < plan.chunks; ++c) {
            std::int64_t elements = 0;
            for (const nn::SpanSpec& span : plan.spans(p, 0, c)) {
              elements += span.numel;
              aligning_bytes += aligning(state.parameter, span.numel) +
                                aligning(state.gradient, zero == 2 ? span.numel / shards : span.numel) +
                                2 * aligning(moments ? 2 : 4, zero == 0 ? span.numel : span.numel / shards);
            }
            padded += elements;
            largest = std::max(largest, elements);
          }
          const RankMemory memory = rank_memory(plan, {.dp = 0, .pp = p, .tp = 0});
          const double bytes = cost::zero_bytes_per_parameter(state, static_cast<int>(zero), shards);
          EXPECT_EQ(static_cast<double>(bytes_of(memory, "parameters, gradients, optimizer") - aligning_bytes),
                    bytes * static_cast<double>(padded))
              << testing::PrintToString(std::tuple(bf16, grads, moments, zero, dp, shards, p));
          EXPECT_EQ(bytes_of(memory, "gradient buffer"),
                    zero == 2 ? mesh::pad_to_multiple((grads ? 2 : 4) * largest, tensor::Arena::kAlignment) : 0);
        }
      }
    }
  }
}

TEST(Memory, RecomputeKeepsLess) {
  for (const char* family : {"gpt", "llama"}) {
    std::vector<std::int64_t> activations;
    for (const char* recompute : {"none", "selective", "full"}) {
      Settings settings = settings_of(1, 2, 2);
      settings.model.family = family;
      settings.train.recompute = recompute;
      activations.push_back(bytes_of(rank_memory(plan_for(settings), {}), "activations"));
    }
    EXPECT_GT(activations[0], activations[1]) << family;
    EXPECT_GT(activations[1], activations[2]) << family;
  }
  // full: the input of every layer and the output of the chunk, for each slot, in the compute type.
  Settings settings = settings_of(1, 2, 2);
  settings.train.recompute = "full";
  const Plan plan = plan_for(settings);
  const std::int64_t tensor_bytes = 2 * 32 / 2 * 64 * 2;  // microbatch x seq / tp x hidden x 2 bytes
  const int slots = std::max({plan.training.slots[0], plan.evaluation.slots[0], plan.single.slots[0]});
  EXPECT_EQ(bytes_of(rank_memory(plan, {}), "activations"), slots * (4 + 1) * tensor_bytes);
}

// One pool of slots for all chunks of a rank: as many as chunks are alive at once and one that is received early, each
// as large as the largest chunk that is put there. Some hold the smaller chunk only.
TEST(Memory, ChunksShareTheirSlots) {
  Settings settings = settings_of(1, 4, 1, 2);
  settings.model.layers = 9;  // stage 0 has one more
  settings.train.microbatch = 1;
  settings.train.recompute = "full";
  const Plan plan = plan_for(settings);
  const int live = sched::check(plan.training).ranks[0].peak_chunks;
  const std::int64_t tensor_bytes = 32 * 64 * 2;                         // seq x hidden x 2 bytes
  const auto tensors_of = [](int chunk) { return chunk == 0 ? 3 : 2; };  // inputs of its layers, and the output
  std::int64_t alive = 0, most_alive = 0;
  for (const sched::Row& row : plan.training.rows[0]) {
    if (row.action == sched::Action::forward) most_alive = std::max(most_alive, alive += tensors_of(row.chunk));
    if (row.action == sched::Action::backward) alive -= tensors_of(row.chunk);
  }
  const std::int64_t bytes = bytes_of(rank_memory(plan, {}), "activations");
  EXPECT_LT(bytes, (live + 1) * tensors_of(0) * tensor_bytes);
  EXPECT_LE(bytes, (most_alive + tensors_of(0)) * tensor_bytes);
}

// A batch that grows: a sound schedule for every size, and slots for the largest.
TEST(Plan, TheStepsOfARampUpHaveSchedulesOfTheirOwn) {
  Settings settings = settings_of(2, 2, 1);  // 16 sequences, 4 microbatches of 2
  settings.train.rampup_start = settings.train.rampup_increment = 4;
  settings.train.rampup_samples = 60;
  const Plan plan = plan_for(settings);
  EXPECT_EQ(plan.batch.ramp, (std::vector<data::RampStage>{{4, 5}, {8, 3}, {12, 2}}));
  for (const auto& [step, microbatches] : {std::pair{0, 1}, {4, 1}, {5, 2}, {8, 3}, {9, 3}, {10, 4}, {1000, 4}}) {
    const sched::Schedule& schedule = plan.schedule_of(step);
    EXPECT_EQ(schedule.shape.microbatches, microbatches) << "step " << step;
    EXPECT_TRUE(sched::check(schedule).ok);
    EXPECT_EQ(plan.tokens_of(step), microbatches * 2 * 2 * 32);
  }
  EXPECT_THAT(plan_text(plan), HasSubstr("512 tokens a step, after 10 steps that begin with 4 sequences"));
}

TEST(Memory, ASplitBackwardKeepsMore) {
  constexpr const char* kKept = "kept for weights' gradients";
  for (const char* family : {"gpt", "llama"}) {
    Settings settings = settings_of(1, 4, 2);
    settings.model.family = family;
    const RankMemory whole = rank_memory(plan_for(settings), {});
    settings.mesh.schedule = "zb-h1";
    const RankMemory split = rank_memory(plan_for(settings), {});
    EXPECT_EQ(bytes_of(whole, kKept), 0);
    EXPECT_GT(bytes_of(split, kKept), 0);
    std::int64_t sum = 0;
    for (const MemoryRow& row : split.rows) sum += row.bytes;
    EXPECT_EQ(sum, split.total_bytes);
  }
}

TEST(ShowPlan, SaysWhatOverlapsAndHowLongTheBubbleIs) {
  Settings settings = settings_of(2, 4, 1);
  struct Case {
    const char* schedule;
    OverlapConfig overlap;
    const char *schedule_text, *overlap_text;
  };
  // 8 microbatches: 3 x (1 + 2) of 24 + 9; with the backward in halves 3 x 1 of 24 + 3.
  for (const Case& c :
       {Case{"1f1b", {false, true, true}, "1f1b, bubble 27.3 % at backward = 2 x forward\n", "overlapped: pp, dp\n"},
        {"zb-h1",
         {false, false, true},
         "zb-h1, bubble 11.1 % at backward = 2 x forward, split in halves\n",
         "overlapped: dp; not overlapped: pp\n"},
        {"zb-h1", {true, false, false}, "zb-h1", "not overlapped: pp, dp\n"}}) {
    settings.mesh.schedule = c.schedule;
    settings.overlap = c.overlap;
    settings.train.microbatch = 1;
    const Plan plan = plan_for(settings);
    EXPECT_THAT(plan_text(plan), HasSubstr(c.schedule_text));
    EXPECT_THAT(plan_text(plan), HasSubstr(c.overlap_text));
    EXPECT_EQ(nlohmann::json::parse(plan_json(plan)).at("overlap"),
              (nlohmann::json{{"tp", c.overlap.tp}, {"pp", c.overlap.pp}, {"dp", c.overlap.dp}, {"ep", c.overlap.ep}}));
  }
  EXPECT_THAT(plan_text(plan_for(settings_of(1, 1, 1))), HasSubstr("one rank has no communication"));
}

TEST(ShowPlan, TextHasTheFigures) {
  Settings settings = settings_of(2, 2, 2, 2);
  const Plan plan = plan_for(settings);
  const std::string text = plan_text(plan);
  const std::int64_t parameters = cost::count_parameters(plan.model_shape()).total;
  for (const std::string& part :
       {std::string("gpt, 8 layers, hidden 64, heads 4, kv heads 4, ffn 256, vocabulary 257, sequence 32"),
        std::to_string(parameters), std::string("8 ranks: tp 2 (fastest) x dp 2 x pp 2, 2 chunks a rank"),
        std::string("16 sequences = 4 microbatches of 2 on each of 2 dp ranks, 512 tokens a step"),
        std::string("bf16, zero 1: 12.00 bytes a parameter"),
        fmt::format("causal {:.4e}", cost::flops_per_token(plan.model_shape()).causal),
        std::string("embedding, 0-1, 4-5"), std::string("2-3, 6-7, head"), std::string("activations")}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(ShowPlan, JsonHasTheFigures) {
  const Plan plan = plan_for(settings_of(2, 2, 2, 2));
  const nlohmann::json json = nlohmann::json::parse(plan_json(plan));
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("parameters"), nn::parameter_count(plan.settings.model));
  EXPECT_EQ(json.at("mesh"),
            nlohmann::json::parse(
                R"({"world":8, "dp":2, "pp":2, "tp":2, "cp":1, "cp_type":null, "ep":1, "expert_tp":2, "shard_group":2,
                                                       "chunks":2, "sequence_parallel":true})"));
  EXPECT_EQ(json.at("batch").at("tokens_per_step"), 512);
  const cost::FlopsPerToken flops = cost::flops_per_token(plan.model_shape());
  EXPECT_EQ(json.at("flops_per_token").at("reported"), flops.reported);
  EXPECT_THAT(json.at("schedule").at("csv").get<std::string>(), HasSubstr("F0.0"));
  ASSERT_EQ(json.at("stages").size(), 2U);
  for (int p = 0; p < 2; ++p) {
    const nlohmann::json& stage = json["stages"][static_cast<std::size_t>(p)];
    EXPECT_EQ(stage.at("chunks").size(), 2U);
    const RankMemory memory = rank_memory(plan, {.dp = 0, .pp = p, .tp = 0});
    EXPECT_EQ(stage.at("memory_bytes").at("total"), memory.total_bytes);
    for (const MemoryRow& row : memory.rows) EXPECT_EQ(stage["memory_bytes"].at(row.what), row.bytes);
  }
  EXPECT_EQ(json["stages"][0]["chunks"][1]["layers"], (nlohmann::json{4, 6}));
}

}  // namespace
}  // namespace ms::train
