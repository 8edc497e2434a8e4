// An agent whose driver is gone: it queues the job again once Slurm has lost the driver's node, and only then.
#include "driver/heir.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ms::driver {
namespace {

class Losing : public slurm::Commands {
 public:
  explicit Losing(FakeClock& clock) : Commands(slurm::CommandOptions{}), clock_(clock) {}

  slurm::Config config() const override { return {{"SlurmdTimeout", "300 sec"}}; }
  slurm::Node node(const std::string& name) const override {
    slurm::Node node;
    node.name = name;
    return node;
  }
  slurm::Job job(std::uint32_t) const override {
    ++asked;
    if (clock_.now_s() < away_until_s) throw Error(slurm::kNoAnswer, Blame::slurm, "no answer");
    slurm::Job job;
    job.state = "RUNNING";
    job.batch = batch;
    job.restarts = restarts;
    job.nodes = clock_.now_s() < lost_s ? "node[01-04]" : "node[02-04]";
    return job;
  }
  void requeue(std::uint32_t) const override { queued_s.push_back(clock_.now_s()); }

  bool batch = true;
  int restarts = 0;
  double away_until_s = 0, lost_s = 1e9;
  mutable std::vector<double> queued_s;
  mutable int asked = 0;

 private:
  FakeClock& clock_;
};

struct Orphan {
  FakeClock clock;
  Losing slurm{clock};
  bool inherits(std::size_t turn = 0) {
    return inherit({.job = 7, .restarts = 0, .driver_node = "node01", .turn = turn}, slurm, clock);
  }
};

TEST(Heir, QueuesTheJobOnceItsNodeIsLost) {
  Orphan orphan;
  orphan.slurm.lost_s = 200;
  EXPECT_TRUE(orphan.inherits());
  ASSERT_EQ(orphan.slurm.queued_s.size(), 1U);
  EXPECT_GE(orphan.slurm.queued_s[0], 200);
  EXPECT_LT(orphan.slurm.queued_s[0], 220);
}

TEST(Heir, AsksASlurmThatDoesNotAnswerAgain) {
  Orphan orphan;
  orphan.slurm.away_until_s = 120;
  orphan.slurm.lost_s = 0;
  EXPECT_TRUE(orphan.inherits());
}

TEST(Heir, LeavesAJobAloneWhoseNodeIsThere) {
  Orphan orphan;
  EXPECT_FALSE(orphan.inherits());
  EXPECT_LT(orphan.clock.now_s(), 400);
  EXPECT_LT(orphan.slurm.asked, 30);
}

TEST(Heir, LeavesALaterStartAlone) {
  Orphan orphan;
  orphan.slurm.lost_s = 0;
  orphan.slurm.restarts = 1;
  EXPECT_FALSE(orphan.inherits());
}

TEST(Heir, LeavesASallocAlone) {
  Orphan orphan;
  orphan.slurm.lost_s = 0;
  orphan.slurm.batch = false;
  EXPECT_FALSE(orphan.inherits());
}

TEST(Heir, ComesAfterTheNodesBeforeIt) {
  Orphan orphan;
  orphan.slurm.lost_s = 0;
  EXPECT_TRUE(orphan.inherits(3));
  EXPECT_GE(orphan.slurm.queued_s.at(0), 90);
}

}  // namespace
}  // namespace ms::driver
