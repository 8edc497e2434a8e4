// Many nodes that drain themselves at once: every node is a thread, but only one runs at a time, and who runs next is
// drawn from a seed at every call of Slurm and every pause. So each order of draining, counting and withdrawing can be
// had again.
#include "health/act/cap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/rng.h"
#include "fake_world.h"
#include "health/act/decide.h"
#include "health/act/prolog_time.h"

namespace ms::health {
namespace {

constexpr std::size_t kNobody = SIZE_MAX;

// Hands one baton round. `timed`: a pause lasts its virtual time, a call 20 to 50 ms; otherwise anybody may be next.
class Turns {
 public:
  Turns(std::uint64_t seed, std::size_t num, bool timed) : seed_(seed), timed_(timed), wake_s_(num), done_(num) {}

  double now_s() {
    const std::lock_guard lock(mutex_);
    return now_s_;
  }
  void begin(std::size_t who) { wait(who); }
  void start() {
    const std::lock_guard lock(mutex_);
    pick();
  }
  void yield(std::size_t who, double seconds) {
    {
      const std::lock_guard lock(mutex_);
      wake_s_[who] = now_s_ + seconds;
      pick();
    }
    wait(who);
  }
  void call(std::size_t who) { yield(who, 0.02 + 0.03 * uniform(seed_, rng_key("latency"), draws_)); }
  void end(std::size_t who) {
    const std::lock_guard lock(mutex_);
    done_[who] = true;
    pick();
  }
  double random() {
    const std::lock_guard lock(mutex_);
    return uniform(seed_, rng_key("pause"), draws_++);
  }

 private:
  void wait(std::size_t who) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == who; });
  }
  void pick() {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < done_.size(); ++i) {
      if (!done_[i]) ready.push_back(i);
    }
    turn_ = kNobody;
    if (!ready.empty()) {
      if (timed_) {
        turn_ = *std::min_element(ready.begin(), ready.end(),
                                  [&](std::size_t a, std::size_t b) { return wake_s_[a] < wake_s_[b]; });
        now_s_ = std::max(now_s_, wake_s_[turn_]);
      } else {
        turn_ = ready[uniform_below(seed_, rng_key("turn"), draws_++, ready.size())];
      }
    }
    changed_.notify_all();
  }

  const std::uint64_t seed_;
  const bool timed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t turn_ = kNobody;
  double now_s_ = 0;
  std::uint64_t draws_ = 0;
  std::vector<double> wake_s_;
  std::vector<bool> done_;
};

class TurnClock final : public Clock {
 public:
  TurnClock(Turns& turns, std::size_t who) : turns_(turns), who_(who) {}
  double now_s() const override { return turns_.now_s(); }
  double wall_s() const override { return 1.8e9 + turns_.now_s(); }
  void sleep_s(double seconds) override { turns_.yield(who_, seconds); }

 private:
  Turns& turns_;
  std::size_t who_;
};

// One node's commands: they set who runs before each call, since a pause gives the baton away.
class CommandsOf final : public slurm::Commands {
 public:
  CommandsOf(std::shared_ptr<const slurm::Commands> all, std::size_t& running, std::size_t who)
      : Commands({}), all_(std::move(all)), running_(running), who_(who) {}
  double left_s() const override { return all_->left_s(); }
  slurm::Node node(const std::string& name) const override { return mine().node(name); }
  std::vector<slurm::Node> nodes() const override { return mine().nodes(); }
  void drain(const std::string& node, const std::string& reason) const override { mine().drain(node, reason); }
  void resume(const std::string& node) const override { mine().resume(node); }

 private:
  const slurm::Commands& mine() const { return running_ = who_, *all_; }

  std::shared_ptr<const slurm::Commands> all_;
  std::size_t& running_;
  std::size_t who_;
};

struct Crowd {
  std::vector<DrainEnd> ends;
  int drained = 0;
  int most_at_once = 0;
};

// `fail_every`: one call of so many gets no answer; whether it was obeyed is drawn too. 0: none.
Crowd run_crowd(std::uint64_t seed, std::size_t num_nodes, std::int64_t cap, bool timed, std::uint64_t fail_every = 0) {
  FakeSlurm slurm(static_cast<int>(num_nodes));
  Turns turns(seed, num_nodes, timed);
  Crowd crowd;
  crowd.ends.resize(num_nodes);
  std::uint64_t failures = 0;
  ActConfig act;
  act.max_drained_percent = 100;
  act.max_drained = cap;
  std::size_t running = kNobody;  // who calls; only the thread with the baton writes it
  std::vector<bool> failed(num_nodes);
  const auto fails = [&](const std::string& key) {
    if (fail_every == 0 || uniform_below(seed, rng_key(key), failures++, fail_every) != 0) return false;
    // Once a node: a withdrawal that fails for good is another case, tried below.
    if (failed[running]) return false;
    failed[running] = true;
    return true;
  };
  slurm.before = [&](const std::string&) {
    const std::size_t who = running;
    turns.call(who);
    running = who;
    if (fails("before")) throw no_answer();
  };
  slurm.after = [&](const std::string&) {
    crowd.most_at_once = std::max(crowd.most_at_once, slurm.num_drained());
    if (fails("after")) throw no_answer();
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < num_nodes; ++i) {
    threads.emplace_back([&, i] {
      turns.begin(i);
      running = i;
      TurnClock clock(turns, i);
      World world{.clock = clock,
                  .random = [&] { return turns.random(); },
                  .log = [](log::Level, const std::string&) {},
                  .run_checks = {},
                  .slurm = std::make_shared<CommandsOf>(slurm.commands(), running, i)};
      crowd.ends[i] = drain_below_cap(world, act, fmt::format("node{:02}", i + 1), "ms-diag:gpu.ecc gpu 0: bad").end;
      turns.end(i);
    });
  }
  turns.start();
  threads.clear();
  crowd.drained = slurm.num_drained();
  return crowd;
}

struct CapRow {
  std::size_t num_nodes;
  std::int64_t cap;
};

class CapTest : public testing::TestWithParam<CapRow> {};

TEST_P(CapTest, NeverEndsAboveTheCapWhateverTheOrder) {
  int most_at_once = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Crowd crowd = run_crowd(seed, GetParam().num_nodes, GetParam().cap, false);
    ASSERT_LE(crowd.drained, GetParam().cap) << "seed " << seed;
    ASSERT_EQ(std::count(crowd.ends.begin(), crowd.ends.end(), DrainEnd::drained), crowd.drained) << "seed " << seed;
    most_at_once = std::max(most_at_once, crowd.most_at_once);
  }
  // The orders that matter were met: for a moment there were too many.
  EXPECT_GT(most_at_once, GetParam().cap);
}

TEST_P(CapTest, NeverEndsAboveTheCapWhenCallsFail) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Crowd crowd = run_crowd(seed, GetParam().num_nodes, GetParam().cap, false, 5);
    ASSERT_LE(crowd.drained, GetParam().cap) << "seed " << seed;
  }
}

TEST_P(CapTest, MostlySomeStayInRealTime) {
  int runs_with_some = 0;
  double total = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Crowd crowd = run_crowd(seed, GetParam().num_nodes, GetParam().cap, true);
    ASSERT_LE(crowd.drained, GetParam().cap) << "seed " << seed;
    runs_with_some += crowd.drained > 0 ? 1 : 0;
    total += crowd.drained;
  }
  RecordProperty("mean_drained", std::to_string(total / 60));
  EXPECT_GE(runs_with_some, 54);
  EXPECT_GE(total / 60, 0.6 * static_cast<double>(GetParam().cap));
}

INSTANTIATE_TEST_SUITE_P(Crowds, CapTest,
                         testing::Values(CapRow{2, 1}, CapRow{3, 1}, CapRow{8, 1}, CapRow{8, 2}, CapRow{12, 4}));

// One node alone, and everything that Slurm may say.
class OneNodeTest : public testing::Test {
 protected:
  Drain drain() {
    World world{.clock = clock_,
                .random = [] { return 0.5; },
                .log = [this](log::Level, const std::string& line) { lines_.push_back(line); },
                .run_checks = {},
                .slurm = slurm_.commands()};
    return drain_below_cap(world, act_, "node02", kReason);
  }
  bool said(const std::string& words) const {
    return std::any_of(lines_.begin(), lines_.end(),
                       [&](const std::string& line) { return line.find(words) != std::string::npos; });
  }

  static constexpr const char* kReason = "ms-diag:gpu.ecc gpu 3: bad";
  FakeClock clock_;
  FakeSlurm slurm_{4};
  ActConfig act_;
  std::vector<std::string> lines_;
};

TEST_F(OneNodeTest, Drains) {
  const Drain end = drain();
  EXPECT_EQ(end.end, DrainEnd::drained);
  EXPECT_EQ(end.reason, kReason);
  EXPECT_EQ(slurm_.nodes.at("node02").reason, kReason);
  EXPECT_EQ(slurm_.calls, (std::vector<std::string>{"nodes", std::string("drain node02 ") + kReason, "nodes"}));
}

TEST_F(OneNodeTest, NeverTouchesWhatStandsOrIsSomebodyElses) {
  slurm_.set_drained("node02", "ms-diag:gpu.lost gpu 1: gone");
  EXPECT_EQ(drain().end, DrainEnd::stands_already);
  slurm_.set_drained("node02", "rack 4 is moved on Monday", "alice");
  EXPECT_EQ(drain().end, DrainEnd::somebody_elses);
  slurm_.set_drained("node02", "", "alice");
  EXPECT_EQ(drain().end, DrainEnd::somebody_elses);
  slurm_.nodes.at("node02") = make_node("node02", "watch the fan");
  EXPECT_EQ(drain().end, DrainEnd::somebody_elses);
  EXPECT_EQ(slurm_.num_calls("drain") + slurm_.num_calls("resume"), 0);
}

TEST_F(OneNodeTest, AtTheCapItIsNotEvenTried) {
  slurm_.set_drained("node01", "ms-diag:gpu.lost gpu 1: gone");
  const Drain end = drain();
  EXPECT_EQ(end.end, DrainEnd::above_cap);
  EXPECT_EQ(slurm_.calls, (std::vector<std::string>{"nodes"}));
  slurm_.set_drained("node01", "somebody's own reason");  // does not count
  EXPECT_EQ(drain().end, DrainEnd::drained);
}

TEST_F(OneNodeTest, AnotherOneAtTheSameMomentMakesItWithdraw) {
  bool once = true;
  slurm_.after = [&](const std::string& call) {
    if (!call.starts_with("drain") || !once) return;
    once = false;
    slurm_.set_drained("node01", "ms-diag:gpu.lost gpu 1: gone");
  };
  EXPECT_EQ(drain().end, DrainEnd::withdrawn);
  EXPECT_FALSE(slurm_.is_drained("node02"));
  EXPECT_TRUE(slurm_.is_drained("node01"));
  EXPECT_GT(clock_.now_s(), 0);  // it tried again
}

TEST_F(OneNodeTest, SomebodysReasonIsNeverWithdrawn) {
  slurm_.after = [&](const std::string& call) {
    if (!call.starts_with("drain")) return;
    slurm_.set_drained("node01", "ms-diag:gpu.lost gpu 1: gone");
    slurm_.set_drained("node02", "taken by alice", "alice");
  };
  EXPECT_EQ(drain().end, DrainEnd::failed);
  EXPECT_EQ(slurm_.nodes.at("node02").reason, "taken by alice");
  EXPECT_EQ(slurm_.num_calls("resume"), 0);
}

TEST_F(OneNodeTest, NorWhereItCameBetweenAFailureAndTheWithdrawal) {
  slurm_.before = [&](const std::string& call) {
    if (call != "nodes" || slurm_.num_calls("drain") == 0) return;
    slurm_.set_drained("node02", "taken by alice", "alice");
    throw no_answer();
  };
  EXPECT_EQ(drain().end, DrainEnd::failed);
  EXPECT_EQ(slurm_.nodes.at("node02").reason, "taken by alice");
  slurm_ = FakeSlurm(4);
  slurm_.before = [&](const std::string& call) {
    if (call == "nodes" && slurm_.num_calls("drain") > 0) {
      slurm_.set_drained("node02", "ms-diag:gpu.lost gpu 0: another one's", "root");
      throw no_answer();
    }
  };
  EXPECT_EQ(drain().end, DrainEnd::failed);
  EXPECT_TRUE(slurm_.is_drained("node02"));  // ours, but not this one
}

TEST_F(OneNodeTest, EveryCallThatFailsLeavesTheNodeAsItWas) {
  for (const bool obeyed : {false, true}) {
    for (int failing = 0; failing < 3; ++failing) {
      slurm_ = FakeSlurm(4);
      int number = 0;
      (obeyed ? slurm_.after : slurm_.before) = [&](const std::string&) {
        if (number++ == failing) throw no_answer();
      };
      const Drain end = drain();
      EXPECT_EQ(end.end, DrainEnd::failed) << failing << obeyed;
      EXPECT_FALSE(slurm_.is_drained("node02")) << failing << obeyed;
    }
  }
}

TEST_F(OneNodeTest, AWithdrawalThatFailsOnceIsRepeatedAndTwiceIsSaid) {
  for (const int failures : {1, 2}) {
    slurm_ = FakeSlurm(4);
    lines_.clear();
    int left = failures;
    slurm_.after = [&](const std::string& call) {
      if (call.starts_with("drain")) throw no_answer();
    };
    slurm_.before = [&](const std::string& call) {
      if (call.starts_with("resume") && left-- > 0) throw no_answer();
    };
    EXPECT_EQ(drain().end, failures == 2 ? DrainEnd::may_stand : DrainEnd::failed);
    EXPECT_EQ(slurm_.is_drained("node02"), failures == 2);
    EXPECT_EQ(said("may stand"), failures == 2);
  }
}

TEST_F(OneNodeTest, WithLittleTimeLeftNothingIsBegun) {
  slurm_.left_s = kNeeded_s - 0.1;
  EXPECT_EQ(drain().end, DrainEnd::failed);
  EXPECT_TRUE(slurm_.calls.empty());
}

TEST_F(OneNodeTest, NoPauseIsMadeThatNoTimeIsLeftAfter) {
  slurm_.left_s = kNeeded_s + 0.1;
  slurm_.after = [&](const std::string& call) {
    if (call.starts_with("drain")) slurm_.set_drained("node01", "ms-diag:gpu.lost gpu 1: gone");
  };
  EXPECT_EQ(drain().end, DrainEnd::withdrawn);
  EXPECT_FALSE(slurm_.is_drained("node02"));
  EXPECT_EQ(clock_.now_s(), 0);
}

TEST_F(OneNodeTest, ANodeThatSlurmDoesNotKnowIsLeftAlone) {
  slurm_.nodes.erase("node02");
  EXPECT_EQ(drain().end, DrainEnd::failed);
  EXPECT_EQ(slurm_.num_calls("drain"), 0);
}

TEST_F(OneNodeTest, ADrainThatCannotBeCountedMayStand) {
  slurm_.before = [&](const std::string&) {
    if (slurm_.num_calls("drain") > 0 && !slurm_.calls.back().starts_with("drain")) throw no_answer();
  };
  const Drain end = drain();
  EXPECT_EQ(end.end, DrainEnd::may_stand);
  EXPECT_EQ(end.reason, kReason);
}

TEST_F(OneNodeTest, ACapOfNoneDrainsNone) {
  act_.max_drained = 0;
  EXPECT_EQ(drain().end, DrainEnd::above_cap);
}

}  // namespace
}  // namespace ms::health
