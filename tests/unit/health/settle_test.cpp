// A drain that could not be counted in its prolog's time, and is settled later: Slurm's calls cost no time, pauses do.
#include <gtest/gtest.h>

#include "flow_fixture.h"
#include "health/act/cap.h"

namespace ms::health {
namespace {

class SettleTest : public testing::Test {
 protected:
  SettleTest() { slurm_.set_drained("node02", kReason); }
  DrainEnd settle(const std::string& node = "node02") {
    World world{.clock = clock_,
                .random = [] { return 0.5; },
                .log = [](log::Level, const std::string&) {},
                .run_checks = {},
                .slurm = slurm_.commands()};
    const double end_s = clock_.now_s() + 180;
    slurm_.left = [=, this] { return end_s - clock_.now_s(); };
    return settle_drain(world, act_, node, kReason).end;
  }

  static constexpr const char* kReason = "ms-diag:gpu.ecc gpu 3: bad";
  FakeClock clock_;
  FakeSlurm slurm_{4};
  ActConfig act_;
};

TEST_F(SettleTest, BelowTheCapItStays) {
  EXPECT_EQ(settle(), DrainEnd::drained);
  EXPECT_TRUE(slurm_.is_drained("node02"));
}

TEST_F(SettleTest, OfACrowdTheLastByNameGoAndTheCapIsLeft) {
  for (const char* node : {"node01", "node03", "node04"}) slurm_.set_drained(node, kReason);
  EXPECT_EQ(settle("node04"), DrainEnd::withdrawn);
  EXPECT_EQ(settle("node03"), DrainEnd::withdrawn);
  EXPECT_EQ(settle("node02"), DrainEnd::withdrawn);
  EXPECT_EQ(settle("node01"), DrainEnd::drained);
  EXPECT_EQ(slurm_.num_drained(), 1);
}

TEST_F(SettleTest, ItGoesTooWhereThoseBehindItStay) {
  slurm_.set_drained("node03", "ms-diag:gpu.lost gpu 1: gone");
  EXPECT_EQ(settle(), DrainEnd::withdrawn);
  EXPECT_FALSE(slurm_.is_drained("node02"));
  EXPECT_TRUE(slurm_.is_drained("node03"));
}

TEST_F(SettleTest, ItWaitsUntilSlurmAnswersButNotForEver) {
  slurm_.set_drained("node01", "ms-diag:gpu.lost gpu 1: gone");
  const double begin_s = clock_.now_s();
  slurm_.before = [&](const std::string&) {
    if (clock_.now_s() < begin_s + 100) throw no_answer();
  };
  EXPECT_EQ(settle(), DrainEnd::withdrawn);
  slurm_.set_drained("node02", kReason);
  slurm_.before = [](const std::string&) { throw no_answer(); };
  const double again_s = clock_.now_s();
  EXPECT_EQ(settle(), DrainEnd::may_stand);
  EXPECT_GT(clock_.now_s(), again_s + 120);
  EXPECT_LT(clock_.now_s(), again_s + 181);
}

TEST_F(SettleTest, NoOtherReasonIsTouched) {
  slurm_.set_drained("node01", "ms-diag:gpu.lost gpu 1: gone");
  for (const char* reason : {"taken by alice", "ms-diag:gpu.ecc gpu 3: worse", ""}) {
    slurm_.set_drained("node02", reason);
    EXPECT_EQ(settle(), DrainEnd::failed) << reason;
    EXPECT_EQ(slurm_.nodes.at("node02").reason, reason);
    EXPECT_EQ(slurm_.num_calls("resume"), 0);
  }
}

TEST_F(SettleTest, ADrainThatIsObeyedLateIsSeen) {
  slurm_.set_drained("node01", "ms-diag:gpu.lost gpu 1: gone");
  slurm_.nodes.at("node02") = make_node("node02");
  slurm_.after = [&](const std::string& call) {
    if (call == "nodes" && slurm_.num_calls("nodes") == 1) slurm_.set_drained("node02", kReason);
  };
  EXPECT_EQ(settle(), DrainEnd::withdrawn);
  EXPECT_FALSE(slurm_.is_drained("node02"));
}

TEST_F(FlowTest, ADrainThatMayStandIsToldAndSettledLater) {
  slurm_.before = [&](const std::string& call) {
    if (slurm_.num_calls("drain") > 0 && !call.starts_with("drain")) throw no_answer();
  };
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(slurm_.is_drained("node02"));
  EXPECT_EQ(history(), (Words{"drain", "finding"}));
  const auto event = spooled_events(policy_.paths.spool).at(0).second;
  EXPECT_EQ(event.kind, "drain");
  EXPECT_NE(event.message.find("not counted yet"), std::string::npos);
  EXPECT_NE(note().find("the node may be drained"), std::string::npos) << note();
  ASSERT_EQ(afterwards_.size(), 1);
  slurm_.before = [](const std::string&) {};
  const auto settle = afterwards_[0];
  settle(world());
  EXPECT_TRUE(slurm_.is_drained("node02"));
  EXPECT_EQ(history().back(), "counted");
  EXPECT_EQ(state().strikes, 1);
  slurm_.set_drained("node01", "ms-diag:gpu.lost gpu 1: gone");
  settle(world());
  EXPECT_FALSE(slurm_.is_drained("node02"));
  EXPECT_EQ(events(), (Words{"drain", "withdrawn"}));
  EXPECT_EQ(history().back(), "withdrawn");
  EXPECT_EQ(state().strikes, 0);
}

}  // namespace
}  // namespace ms::health
