// Runs that take the ranks that they are given: which sizes there are, what a world makes, and what each is worth.
#include "train/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/errors.h"
#include "support/files.h"
#include "train/simulate/speed_up.h"

namespace ms::train {
namespace {

using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kElastic = R"(
model = {layers = 4, hidden = 32, heads = 4, vocab = 257, seq = 32}
mesh = {dp = "auto", tp = 2}
train = {global_batch = 24, microbatch = 2}
data.train = ["text"]
)";

class Elastic : public testing::Test {
 protected:
  Loaded loaded(std::optional<std::int64_t> world, const std::vector<std::string>& set = {}) {
    const std::string path = dir_ / "c.toml";
    test::spill(path, kElastic);
    return load(path, set, world);
  }
  const test::TempDir dir_;
};

TEST_F(Elastic, SizesAreThoseThatKeepTheGlobalBatchWithinTheBounds) {
  const Loaded all = loaded({});
  EXPECT_THAT(all.dp_sizes, ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_EQ(all.settings.mesh.dp, 12) << "the most, where no world is known";
  EXPECT_THAT(all.resolved, HasSubstr("dp = \"auto\"  # set by file"));
  EXPECT_THAT(loaded({}, {"mesh.dp_min=2", "mesh.dp_max=5"}).dp_sizes, ElementsAre(2, 3, 4));
  EXPECT_THAT(loaded({}, {"train.rampup_start=8", "train.rampup_increment=8", "train.rampup_samples=64"}).dp_sizes,
              ElementsAre(1, 2, 4));
  const std::vector<std::string> interleaved{"mesh.pp=2", "mesh.chunks=2"};
  EXPECT_THAT(loaded({}, interleaved).dp_sizes, ElementsAre(1, 2, 3, 6)) << "microbatches in multiples of pp";
  EXPECT_TRUE(loaded({}, {"mesh.dp=3"}).dp_sizes.empty());
}

TEST_F(Elastic, AWorldMakesItsSizeOrIsRefused) {
  const Loaded four = loaded(8);
  EXPECT_EQ(four.settings.mesh.dp, 4);
  EXPECT_THAT(four.resolved, HasSubstr("dp = 4  # set by file"));
  const Error over = thrown_by([&] { loaded(10); });
  EXPECT_EQ(over.message(),
            "mesh.dp = \"auto\" may be 1, 2, 3, 4, 6 or 12, with 2 ranks of mesh.pp x mesh.tp = 2 each, and there are "
            "10 ranks");
  EXPECT_THAT(over.hint(), HasSubstr("start 8 ranks, which leaves 2 over"));
  EXPECT_THAT(thrown_by([&] { loaded(5); }).hint(), HasSubstr("start 4 ranks, which leaves 1 over"));
  EXPECT_THAT(thrown_by([&] { loaded(1); }).hint(), HasSubstr("start at least 2 ranks"));
  EXPECT_THAT(thrown_by([&] { loaded(100); }).hint(), HasSubstr("start 24 ranks"));
  EXPECT_EQ(loaded(8, {"mesh.cp=2"}).settings.mesh.dp, 2);
  EXPECT_THAT(thrown_by([&] { loaded(10, {"mesh.cp=2"}); }).message(),
              HasSubstr("with 4 ranks of mesh.pp x mesh.tp x mesh.cp = 4 each"));
}

TEST_F(Elastic, WhatNoSizeMendsIsReportedAsEver) {
  const auto refused = [&](const std::vector<std::string>& set) {
    return thrown_by([&] { loaded(8, set); }).message();
  };
  EXPECT_THAT(refused({"mesh.tp=3"}), HasSubstr("model.heads = 4 is not divisible by mesh.tp = 3"));
  EXPECT_THAT(refused({"train.microbatch=5"}), HasSubstr("not divisible by mesh.dp x train.microbatch"));
  EXPECT_THAT(refused({"mesh.dp_min=4", "mesh.dp_max=2"}), HasSubstr("mesh.dp_max = 2 is below mesh.dp_min = 4"));
  EXPECT_THAT(refused({"mesh.dp_min=7", "mesh.dp_max=9"}), HasSubstr("not divisible"));
  EXPECT_THAT(refused({"mesh.dp=many"}), HasSubstr("mesh.dp: expected an integer or \"auto\", got"));
  EXPECT_THAT(refused({"mesh.dp=0"}), HasSubstr("mesh.dp: must be 1 to"));
}

TEST_F(Elastic, EachSizeHasItsSpeed) {
  const Loaded sizes = loaded({}, {"mesh.dp_max=4"});
  const cost::Cluster cluster = cost::load_cluster(MS_SOURCE_DIR "/configs/clusters/a100-8x200g.toml", {});
  const std::vector<SpeedUp> rows = speed_ups(sizes.settings, sizes.dp_sizes, cluster);
  ASSERT_EQ(rows.size(), 4U);
  for (const SpeedUp& row : rows) {
    EXPECT_EQ(row.ranks, 2 * row.dp);
    EXPECT_NEAR(row.tokens_per_s * row.iteration_s, 24 * 32, 1e-6) << "the same global batch";
  }
  EXPECT_GT(rows[3].tokens_per_s, rows[0].tokens_per_s);
  EXPECT_THAT(speed_up_csv(rows), testing::StartsWith("num_replicas,local_bsz,step_time\n2,384,"));
  cost::Cluster small = cluster;
  small.device.memory_bytes = 1 << 10;
  const std::vector<SpeedUp> none = speed_ups(sizes.settings, sizes.dp_sizes, small);
  EXPECT_THAT(none[0].problem, HasSubstr("stage 0 of 1 needs"));
  EXPECT_THAT(speed_up_text(none), HasSubstr("dp 1 cannot run: stage 0 of 1 needs"));
  EXPECT_THAT(thrown_by([&] { speed_up_csv(none); }).message(), HasSubstr("stage 0 of 1 needs"));
}

}  // namespace
}  // namespace ms::train
