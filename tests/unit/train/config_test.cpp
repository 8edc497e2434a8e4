// Configurations: the ones we ship load and plan, and what cannot be is refused with one clear message each.
#include "train/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/other_names.h"
#include "base/text.h"
#include "support/files.h"
#include "train/plan.h"

namespace ms::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Config : public ::testing::Test {
 protected:
  std::string file(const std::string& text) const {
    const std::string path = dir_ + "/run.toml";
    std::ofstream(path) << text;
    return path;
  }
  Error refusal(const std::string& text, const std::vector<std::string>& set) const {
    try {
      const Settings settings = load(file(text), set).settings;
      make_plan(settings, static_cast<int>(settings.mesh.ranks()));
    } catch (const Error& error) { return error; }
    return Error("none", Blame::bug, "it was accepted");
  }

  const test::TempDir temporary_;
  const std::string& dir_ = temporary_.path();
};

constexpr const char* kSmall = R"(
[model]
layers = 8
hidden = 64
heads = 4
vocab = 257
seq = 32

[mesh]
dp = 2
pp = 2
tp = 2

[train]
global_batch = 16
microbatch = 2

[data]
train = ["text"]
)";

TEST(ShippedConfigs, LoadAndPlan) {
  const fs::path configs = fs::path(MS_SOURCE_DIR) / "configs";
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(configs)) {
    if (entry.path().extension() != ".toml") continue;
    ++count;
    const Settings settings = load(entry.path().string(), {}).settings;
    const mesh::MeshConfig& mesh = settings.mesh;
    const Plan plan = make_plan(settings, static_cast<int>(mesh.ranks()));
    EXPECT_EQ(plan.training.rows.size(), static_cast<std::size_t>(mesh.pp)) << entry.path();
    EXPECT_EQ(plan.microbatches * mesh.dp * settings.train.microbatch, settings.train.global_batch) << entry.path();
  }
  EXPECT_GE(count, 4);
}

TEST_F(Config, LoadsWithAssignmentsOnTop) {
  const Loaded loaded = load(file(kSmall), {"train.steps=7", "mesh.sequence_parallel=false", "optim.zero=2"});
  EXPECT_EQ(loaded.settings.model.layers, 8);
  EXPECT_EQ(loaded.settings.train.steps, 7);
  EXPECT_FALSE(loaded.settings.mesh.sequence_parallel);
  EXPECT_EQ(loaded.settings.optim.zero, 2);
  EXPECT_EQ(loaded.settings.model.family, "gpt") << "a default";
  EXPECT_THAT(loaded.resolved, HasSubstr("steps = 7"));
}

TEST_F(Config, TheResolvedConfigurationLoadsToTheSame) {
  const Loaded loaded = load(file(kSmall), {"run.comm_timeout=90s", "optim.lr=0.00025", "data.valid=a,b"});
  const Loaded again = load(file(loaded.resolved), {});
  ConfigSchema first, second;
  Settings a = loaded.settings, b = again.settings;
  bind(first, a);
  bind(second, b);
  EXPECT_EQ(first.dump(false), second.dump(false));
  EXPECT_EQ(again.settings.run.comm_timeout_s, 90);
}

TEST_F(Config, RefusesWithOneClearMessage) {
  struct Case {
    std::vector<std::string> set;
    const char* message;
  };
  const Case cases[] = {
      {{"model.layrs=3"}, "unknown key 'model.layrs', did you mean 'model.layers'?"},
      {{"train.dtype=fp8"}, "fp8"},
      {{"model.family=llama", "model.head_dim=12", "run.device=cuda", "train.dtype=bf16"}, "heads of 12"},
      {{"train.steps=0"}, "train.steps"},
      {{"optim.zero=4"}, "optim.zero"},
      {{"model.heads=6"}, "model.hidden = 64 is not divisible by model.heads = 6"},
      {{"model.heads=1"}, "model.heads = 1 is not divisible by mesh.tp = 2"},
      {{"model.ffn_hidden=99"}, "model.ffn_hidden = 99 is not divisible by mesh.tp = 2"},
      {{"train.global_batch=18"}, "train.global_batch = 18 is not divisible by mesh.dp x train.microbatch = 4"},
      {{"mesh.chunks=2", "train.global_batch=12"},
       "3 microbatches per step; the interleaved schedule needs a multiple of mesh.pp = 2"},
      {{"mesh.pp=1", "mesh.chunks=2"}, "mesh.chunks > 1 needs mesh.pp > 1"},
      {{"mesh.pp=16"}, "8 layers for 16 pipeline stages x 1 chunks"},
      {{"mesh.pp=1", "mesh.last_layers=2"}, "one stage has all layers"},
      {{"mesh.first_layers=8"}, "leave 0 of 8 layers for"},
      {{"mesh.chunks=2", "mesh.schedule=gpipe"}, "gpipe has no interleaved form"},
      {{"mesh.chunks=2", "mesh.schedule=zb-h1"}, "zb-h1 has no interleaved form: mesh.chunks must be 1"},
      {{"mesh.schedule=zigzag"}, "no schedule is called 'zigzag': 1f1b, "},
      {{"overlap.pp=perhaps"}, "overlap.pp"},
      {{"optim.schedule=exponential"}, "exponential"},
      {{"optim.schedule=wsd", "optim.decay_steps=1001"}, "1001 steps of decay in a run of 1000 steps"},
      {{"optim.muon_scale=spectral"}, "optim.muon_scale"},
      {{"optim.name=muon", "optim.muon_momentum=1"}, "optim.muon_momentum"},
      {{"optim.name=muon", "mesh.dp=2048", "mesh.pp=1", "train.global_batch=4096", "run.device=cuda",
        "train.dtype=bf16"},
       "set optim.shard_group to 1024 or fewer"},
      {{"optim.zero=3", "train.fp8=true", "train.dtype=bf16"}, "set optim.zero = 2"},
      {{"optim.zero=3", "guard.replay_every=10"}, "set optim.zero = 2"},
      {{"optim.prefetch=-1"}, "optim.prefetch"},
      {{"optim.shard_group=-1"}, "optim.shard_group"},
      {{"mesh.dp=4", "optim.shard_group=3"}, "optim.shard_group = 3 does not divide mesh.dp = 4"},
      {{"mesh.dp=4", "mesh.cp=2", "optim.shard_group=3"}, "does not divide mesh.dp x mesh.cp = 8"},
      {{"mesh.dp=4", "optim.shard_group=1"}, "set optim.zero = 0"},
      {{"mesh.dp=3", "mesh.cp=2", "mesh.tp=1", "train.global_batch=12", "optim.shard_group=3"},
       "optim.shard_group = 3 and mesh.cp = 2"},
      {{"optim.name=muon", "mesh.dp=1024", "mesh.pp=1", "train.global_batch=4096", "run.device=cuda",
        "train.dtype=bf16", "model.family=llama", "model.experts=4", "mesh.expert_tp=1"},
       "muon takes at most 1024 replicas of a matrix"},
      {{"mesh.dp=4", "optim.shard_group=2", "model.family=llama", "model.experts=4", "mesh.expert_tp=1"},
       "optim.shard_group does not work with mesh.expert_tp = 1"},
      {{"mesh.cp=3"}, "model.seq = 32 is not divisible by 2 x mesh.cp = 6"},
      {{"mesh.cp=2", "mesh.cp_type=p2p"}, "did you mean 'ring'"},
      {{"mesh.cp=4", "mesh.cp_type=all-to-all"},
       "all-to-all shares the 4 key-value heads over mesh.tp x mesh.cp = 2 x 4"},
      {{"mesh.cp=4", "run.device=cuda", "train.dtype=bf16", "model.head_dim=16"}, "a GPU attends to whole sequences"},
      {{"mesh.cp=2", "run.device=cuda", "train.dtype=bf16", "model.head_dim=16", "mesh.cp_type=ring"}, "mesh.cp_type"},
      {{"mesh.cp=2", "run.device=cuda", "train.dtype=bf16", "model.head_dim=16", "mesh.cp_type=all-gather"},
       "a GPU attends to whole sequences"},
      {{"mesh.cp=2", "guard.replay_every=10"}, "guard.replay_every"},
      {{"mesh.cp=2", "run.sample_tokens=10"}, "run.sample_tokens"},
      {{"mesh.cp=2", "mesh.ep=2", "model.family=llama", "model.experts=4"}, "mesh.ep"},
      {{"mesh.cp=2", "model.family=llama", "model.experts=4", "train.moe_aux_loss=0.01"}, "train.moe_aux_loss"},
      {{"mesh.expert_tp=1", "model.family=llama", "model.experts=4", "optim.name=lamb"},
       "lamb does not sum over the experts of mesh.expert_tp"},
      {{"mesh.expert_tp=1", "model.family=llama", "model.experts=4", "guard.replay_every=10"}, "guard.replay_every"},
      {{"mesh.expert_tp=1", "model.family=llama", "model.experts=4", "checkpoint.memory_dir=/dev/shm/x"},
       "checkpoint.memory_dir"},
      {{"optim.groups=embed.*"}, "'embed.*' is not a parameter group: it takes a pattern of names"},
      {{"optim.groups=heads.* lr=0.1"}, "no parameter is called 'heads.*'"},
      {{"train.z_loss=-1"}, "train.z_loss"},
      {{"optim.main_grads_dtype=bf16", "train.dtype=fp32"},
       "optim.main_grads_dtype=bf16: bf16 gradients belong to bf16 parameters: set train.dtype = \"bf16\""},
      {{"optim.moments_dtype=bf16", "optim.name=lamb"}, "optim.moments_dtype=bf16: lamb keeps its state in fp32"},
      {{"optim.moments_dtype=bf16", "optim.name=muon"}, "optim.moments_dtype=bf16: muon keeps its state in fp32"},
      {{"train.rampup_increment=4"}, "train.rampup_start: without it rampup_increment and rampup_samples mean nothing"},
      {{"train.rampup_start=4"}, "train.rampup_start: it needs rampup_increment and rampup_samples"},
      {{"train.rampup_start=16", "train.rampup_increment=4", "train.rampup_samples=99"},
       "16 is not below global_batch = 16"},
      {{"train.rampup_start=4", "train.rampup_increment=2", "train.rampup_samples=99"},
       "4 and rampup_increment = 2 must be multiples of 4, as global_batch is"},
      {{"train.rampup_start=4", "train.rampup_increment=8", "train.rampup_samples=99"},
       "from 4 to global_batch = 16 is not a multiple of rampup_increment = 8"},
      {{"train.rampup_start=4", "train.rampup_increment=4", "train.rampup_samples=99", "mesh.chunks=2"},
       "must be multiples of 8"},
      {{"run.cpu_threads=1025"}, "run.cpu_threads"},
      {{"metrics.tensorboard=tb"}, "metrics.tensorboard"},
      {{"metrics.grad_norms_every=-1"}, "metrics.grad_norms_every"},
      {{"metrics.tensorbord=true"}, "did you mean 'metrics.tensorboard'?"},
      {{"data.train=text.bin"}, "text.bin"},
      {{"data.train=0.5 a,b"}, "data.train"},
      {{"checkpoint.max_failed=-1"}, "checkpoint.max_failed"},
      {{"checkpoint.weights_only=true"}, "checkpoint.weights_only is about checkpoint.load, which is empty"},
      {{"checkpoint.dir=ck", "checkpoint.load=./ck/"}, "but a run resumes from checkpoint.dir = 'ck' by itself"},
      {{"checkpoint.dir=ck/", "checkpoint.load=ck/step-00000300"}, "leave checkpoint.load empty"},
      {{"run.dir=same/", "checkpoint.dir=./same"}, "checkpoint.dir = './same' is run.dir, too"},
  };
  for (const Case& c : cases) {
    const Error error = refusal(kSmall, c.set);
    EXPECT_EQ(error.kind(), "config.invalid") << c.message << "\n" << error.message();
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), HasSubstr(c.message));
    EXPECT_THAT(error.message(), Not(HasSubstr("\n"))) << "one problem, one line";
  }
}

// A shorter run than the configuration is made for is no mistake.
TEST_F(Config, ClampsTheWarmUp) {
  const Loaded loaded = load(file(kSmall), {"optim.warmup_steps=2000", "train.steps=1000"});
  EXPECT_EQ(loaded.settings.optim.warmup_steps, 1000);
  EXPECT_THAT(loaded.resolved, HasSubstr("warmup_steps = 1000"));
  ASSERT_EQ(loaded.warnings.size(), 1U);
  EXPECT_THAT(loaded.warnings[0], HasSubstr("optim.warmup_steps = 2000 is clamped to train.steps = 1000"));
  EXPECT_TRUE(load(file(kSmall), {"optim.warmup_steps=1000", "train.steps=1000"}).warnings.empty());
}

TEST_F(Config, WarnsOfKeysWithoutEffect) {
  struct Case {
    std::vector<std::string> set;
    const char* warning;  // nullptr: none
  };
  for (const Case& c :
       {Case{{"model.rotary_base=500000"}, "model.rotary_base has no effect: a gpt learns"},
        Case{{"model.rotary_base=10000"}, nullptr}, Case{{"model.rotary_base=500000", "model.family=llama"}, nullptr},
        Case{{"optim.decay_fraction=0.5"}, "optim.decay_fraction has no effect"},
        Case{{"optim.decay_fraction=0.5", "optim.schedule=wsd"}, nullptr},
        Case{{"optim.decay_steps=50"}, "optim.decay_steps has no effect"},
        Case{{"optim.decay_steps=50", "optim.schedule=wsd"}, nullptr},
        Case{{"optim.decay_steps=50", "optim.decay_fraction=0.5", "optim.schedule=wsd"},
             "optim.decay_fraction has no effect"},
        Case{{"optim.min_lr_ratio=0.5", "optim.schedule=constant"}, "optim.min_lr_ratio"},
        Case{{"optim.shard_group=2", "optim.zero=0"}, "optim.shard_group has no effect"},
        Case{{"optim.prefetch=2"}, "optim.prefetch has no effect"}, Case{{"optim.prefetch=2", "optim.zero=3"}, nullptr},
        Case{{"optim.shard_group=2"}, nullptr}, Case{{"optim.muon_scale=original"}, "optim.muon_scale has no effect"},
        Case{{"optim.muon_momentum=0.9"}, "optim.muon_momentum has no effect"},
        Case{{"optim.muon_momentum=0.9", "optim.muon_scale=original", "optim.name=muon"}, nullptr},
        Case{{"checkpoint.every_steps=5"}, "checkpoint.dir is empty"},
        Case{{"checkpoint.every_steps=5", "checkpoint.dir=ck"}, nullptr}}) {
    const Loaded loaded = load(file(kSmall), c.set);
    ASSERT_EQ(loaded.warnings.size(), c.warning == nullptr ? 0U : 1U) << c.set[0];
    if (c.warning != nullptr) { EXPECT_THAT(loaded.warnings[0], HasSubstr(c.warning)); }
    EXPECT_EQ(load(file(loaded.resolved), {}).warnings.size(), loaded.warnings.size()) << "of its own dump";
  }
}

TEST_F(Config, WarnsOfWhatIsOdd) {
  struct Case {
    std::vector<std::string> set;
    const char* warning;  // nullptr: none
  };
  const std::string ramp = "train.rampup_start=4", by = "train.rampup_increment=4";
  const std::string rollback = "guard.nonfinite=rollback", ck = "checkpoint.dir=ck";
  for (const Case& c :
       {Case{{ramp, by, "train.rampup_samples=90", "train.steps=9"},
             "its ramp-up takes 15 steps, and train.steps is 9"},
        Case{{ramp, by, "train.rampup_samples=90"}, nullptr},
        Case{{R"(optim.groups=["*.bias lr=2", "* lr=3", "*.bias lr=4"])"}, "optim.groups has '*.bias' twice"},
        Case{{R"(optim.groups=["*.bias lr=2", "* lr=3"])"}, nullptr},
        Case{{"optim.schedule=wsd", "train.steps=100", "optim.warmup_steps=60", "optim.decay_steps=50"},
             "a decay of 50 steps are more than train.steps = 100: the decay has the last 40 only"},
        Case{{"optim.schedule=wsd", "train.steps=100", "optim.warmup_steps=60", "optim.decay_steps=40"}, nullptr},
        Case{{"train.steps=100", "optim.warmup_steps=90"}, nullptr},
        Case{{"data.train=1 a,2 ./b", "data.valid=b"}, "both name 'b'"},
        Case{{"data.train=a", "data.valid=b"}, nullptr},
        Case{{"data.train=1 b,0:1;50:2 a", "train.steps=50"},
             "the weight of 'a' changes once 50 steps are done, and train.steps is 50"},
        Case{{"data.train=1 b,0:1;49:2 a", "train.steps=50"}, nullptr},
        Case{{"guard.spike=warn", "guard.window=49", "train.steps=50"}, "guard.spike = \"warn\" never acts"},
        Case{{"guard.spike=warn", "guard.window=48", "train.steps=50"}, nullptr},
        Case{{rollback, ck, "checkpoint.every_steps=49", "train.steps=50"}, nullptr},
        Case{{rollback, ck, "checkpoint.every_steps=50", "train.steps=50"},
             "\"rollback\" never acts in this run: the first checkpoint is of step 50"},
        Case{{rollback, ck, "checkpoint.every_steps=40", "guard.rollback_steps=20", "train.steps=50"}, "never acts"},
        Case{{rollback, ck, "checkpoint.every=0s"}, "only the last step is saved"},
        Case{{rollback, ck, "checkpoint.every=30s"}, nullptr},
        Case{{rollback, ck, "checkpoint.every_steps=5", "checkpoint.keep_last=2", "guard.rollback_steps=11",
              "train.steps=50"},
             "checkpoint.keep_last = 2 are kept, one each 5 steps"},
        Case{{rollback, ck, "checkpoint.every_steps=5", "checkpoint.keep_last=2", "guard.rollback_steps=10",
              "train.steps=50"},
             nullptr}}) {
    const Loaded loaded = load(file(kSmall), c.set);
    ASSERT_EQ(loaded.warnings.size(), c.warning == nullptr ? 0U : 1U) << c.set[0];
    if (c.warning != nullptr) { EXPECT_THAT(loaded.warnings[0], HasSubstr(c.warning)); }
  }
}

TEST_F(Config, SuggestsForNamesOfOtherPrograms) {
  for (const auto& [set, meant] : {std::pair{"parallel.tp=2", "mesh.tp"},
                                   {"mesh.pipeline=2", "mesh.pp"},
                                   {"mesh.expert_tensor_parallel_size=1", "mesh.expert_tp"},
                                   {"optim.learning_rate=1", "optim.lr"},
                                   {"train.lr=1", "optim.lr"},
                                   {"model.hidden_size=8", "model.hidden"},
                                   {"data.path=x", "data.train"},
                                   {"train.micro-batch-size=2", "train.microbatch"}}) {
    EXPECT_THAT(refusal(kSmall, {set}).message(), HasSubstr(fmt::format("did you mean '{}'?", meant))) << set;
  }
  EXPECT_THAT(refusal(std::string(kSmall) + "[optimizer]\nlr = 1\n", {}).message(),
              HasSubstr("unknown section 'optimizer', did you mean 'optim'?"));
  Settings settings;
  ConfigSchema schema;
  bind(schema, settings);
  std::set<std::string> known;
  for (const ConfigRow& row : schema.reference()) known.insert({row.section, row.section + "." + row.key});
  for (const OtherNames& row : kOtherNames) {
    EXPECT_TRUE(known.contains(std::string(row.ours))) << row.ours;
    for (const std::string& theirs : split(row.theirs, ' ')) EXPECT_FALSE(known.contains(theirs)) << theirs;
  }
}

TEST_F(Config, ReportsAllProblemsWithTheirPlaces) {
  const std::string text = std::string(kSmall) + "[optim]\nzero = 7\nname = \"sgd\"\nbeta3 = 0.5\n";
  const Error error = refusal(text, {"train.global_batch=18", "mesh.tp=3"});
  for (const char* part : {"run.toml:21:", "run.toml:22:", "run.toml:23:", "optim.beta3", "--set train.global_batch=18",
                           "model.heads = 4 is not divisible by mesh.tp = 3"}) {
    EXPECT_THAT(error.message(), HasSubstr(part));
  }
}

TEST_F(Config, TheTimeBetweenSavesMayBeAWord) {
  const Loaded loaded = load(file(kSmall), {"checkpoint.dir=ck", "checkpoint.every=auto"});
  EXPECT_EQ(loaded.settings.checkpoint.every_s, kNumberWord);
  EXPECT_THAT(loaded.resolved, HasSubstr("every = \"auto\""));
  EXPECT_THAT(refusal(kSmall, {"checkpoint.every=often"}).message(), HasSubstr("or \"auto\", got"));
  EXPECT_THAT(refusal(kSmall, {"checkpoint.every=-1s"}).message(), HasSubstr("checkpoint.every"));
}

TEST_F(Config, AFileThatIsNotThereIsTheUsersMistake) {
  try {
    load(dir_ + "/absent.toml", {});
    FAIL() << "an absent file was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), HasSubstr("absent.toml"));
  }
}

}  // namespace
}  // namespace ms::train
