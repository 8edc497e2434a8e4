// A job that is queued again by a Slurm that is slow, away for a while, or has not yet seen that a node is gone.
#include "driver/slurm_job.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ms::driver {
namespace {

class SlowSlurm : public slurm::Commands {
 public:
  explicit SlowSlurm(FakeClock& clock) : Commands(slurm::CommandOptions{}), clock_(clock) {}

  slurm::Config config() const override {
    ++asked;
    clock_.advance_s(answer_s);
    if (clock_.now_s() < away_until_s) throw Error(slurm::kNoAnswer, Blame::slurm, "no answer");
    return {{"SlurmdTimeout", "300 sec"}};
  }
  std::vector<slurm::Node> nodes() const override { return {}; }
  slurm::Job job(std::uint32_t) const override {
    slurm::Job job;
    job.state = "RUNNING";
    return job;
  }
  void requeue(std::uint32_t) const override {
    if (refuses) throw Error("slurm.command", Blame::slurm, "Requested operation is presently disabled");
    ++queued;
  }

  bool is_expedited(std::uint32_t) const override { return expedited; }
  void forbid_requeue(std::uint32_t) const override { forbidden = true; }

  double away_until_s = 0, answer_s = 0;
  bool refuses = false, expedited = false;
  mutable bool forbidden = false;
  mutable int asked = 0, queued = 0;

 private:
  FakeClock& clock_;
};

struct Trial {
  Trial() { options.nodes = {"node01", "node02"}; }
  bool queue(double patience_s) { return SlurmJob(options, slurm, clock).queue_again({}, {}, patience_s); }
  FakeClock clock;
  SlowSlurm slurm{clock};
  DriverOptions options;
};

TEST(SlurmJob, IsQueuedOnceSlurmAnswersAgain) {
  Trial run;
  run.slurm.away_until_s = run.clock.now_s() + 400;
  EXPECT_TRUE(run.queue(SlurmJob::kPatience_s));
  EXPECT_EQ(run.slurm.queued, 1);
  EXPECT_LT(run.slurm.asked, 20);  // a controller that is too busy is not asked all the time
}

TEST(SlurmJob, AnswersOfTenSecondsAreAnswers) {
  Trial run;
  run.slurm.answer_s = 10;
  EXPECT_TRUE(run.queue(0));
  EXPECT_EQ(run.slurm.asked, 1);
}

TEST(SlurmJob, ARefusalIsFinal) {
  Trial run;
  run.slurm.refuses = true;
  EXPECT_FALSE(run.queue(SlurmJob::kPatience_s));
  EXPECT_EQ(run.slurm.asked, 1);
}

TEST(SlurmJob, AnExpeditedJobThatEndsForGoodIsNotStartedAgain) {
  for (const bool expedited : {false, true}) {
    Trial run;
    run.slurm.expedited = expedited;
    SlurmJob(run.options, run.slurm, run.clock).end_for_good();
    EXPECT_EQ(run.slurm.forbidden, expedited);
  }
}

TEST(SlurmJob, ARunThatOnlyChangesItsSizeDoesNotWait) {
  Trial run;
  run.slurm.away_until_s = run.clock.now_s() + 400;
  EXPECT_FALSE(run.queue(0));
  EXPECT_EQ(run.slurm.asked, 1);
}

}  // namespace
}  // namespace ms::driver
