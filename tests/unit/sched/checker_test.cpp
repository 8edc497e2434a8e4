// The checker must bite: sound schedules are damaged in every way we could think of, and each must be found.
#include "sched/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "edit.h"
#include "sched/csv.h"

namespace ms::sched {
namespace {

using testing::HasSubstr;

struct Damage {
  const char* name;
  std::function<void(Schedule&)> apply;  // to 1F1B, pp 3, 4 microbatches, late receives
  const char* problem;
};

const Damage kDamages[] = {
    {"dropped send", [](Schedule& s) { drop(s, 0, "SF0.1"); }, "rank 0 has no send_forward of chunk 0, microbatch 1"},
    {"dropped receive", [](Schedule& s) { drop(s, 1, "RB0.2"); }, "(B0.2) comes before its recv_backward"},
    {"dropped forward", [](Schedule& s) { drop(s, 2, "F0.3"); }, "(B0.3) comes before its forward"},
    {"dropped backward", [](Schedule& s) { drop(s, 0, "B0.3"); }, "(D0) comes after 3 of 4 backwards"},
    {"dropped gather", [](Schedule& s) { drop(s, 1, "G0"); }, "before the parameters of its chunk are gathered"},
    {"dropped reduction", [](Schedule& s) { drop(s, 1, "D0"); }, "rank 1 has no reduce_grads of chunk 0"},
    {"row twice",
     [](Schedule& s) {
       const Row row = at(s, 1, "F0.0");
       s.rows[1].insert(s.rows[1].begin() + 2, row);
     },
     "rank 1 row 3 (F0.0) was already done in row 2"},
    {"gather twice", [](Schedule& s) { s.rows[1].push_back(at(s, 1, "G0")); }, "(G0) is there twice"},
    {"early reduction",
     [](Schedule& s) {
       swap(s, 2, "D0", "SB0.3");
       swap(s, 2, "B0.3", "D0");
     },
     "(D0) comes after 3 of 4 backwards"},
    {"send before compute", [](Schedule& s) { swap(s, 0, "F0.2", "SF0.2"); }, "(SF0.2) comes before its forward"},
    {"gradient sent early", [](Schedule& s) { swap(s, 2, "B0.1", "SB0.1"); }, "(SB0.1) comes before its backward"},
    {"compute before receive", [](Schedule& s) { swap(s, 1, "F0.0", "RF0.0"); },
     "(F0.0) comes before its recv_forward"},
    {"backwards out of order",
     [](Schedule& s) {
       std::swap(at(s, 2, "B0.1").microbatch, at(s, 2, "B0.2").microbatch);
       assign_slots(s);
     },
     "before its forward"},
    {"foreign receive",
     [](Schedule& s) { s.rows[0].push_back({.action = Action::recv_forward, .chunk = 0, .microbatch = 0}); },
     "which virtual stage 0 of 3 does not do"},
    {"foreign send",
     [](Schedule& s) { s.rows[2].push_back({.action = Action::send_forward, .chunk = 0, .microbatch = 0}); },
     "which virtual stage 2 of 3 does not do"},
    {"chunk out of range", [](Schedule& s) { at(s, 0, "F0.0").chunk = 1; }, "rank 0 row 1 (F1.0) names chunk 1 of 1"},
    {"negative chunk", [](Schedule& s) { at(s, 0, "F0.0").chunk = -1; }, "names chunk -1"},
    {"microbatch out of range", [](Schedule& s) { at(s, 0, "F0.0").microbatch = 4; }, "names microbatch 4 of 4"},
    {"slot out of range", [](Schedule& s) { at(s, 0, "F0.0").slot = 3; }, "names slot 3 of 3"},
    {"no slot", [](Schedule& s) { at(s, 0, "F0.0").slot = kNone; }, "names slot -1 of 3"},
    {"slot of the other", [](Schedule& s) { at(s, 1, "B0.1").slot = 0; },
     "names slot 0, but its microbatch has slot 1"},
    {"slot in use",
     [](Schedule& s) {
       for (Row& row : s.rows[0]) {
         if (row.microbatch == 1) row.slot = 0;
       }
     },
     "rank 0 row 3 (F0.1) takes slot 0, which microbatch 0 of chunk 0 uses until row"},
    {"wrong channel", [](Schedule& s) { at(s, 1, "SB0.0").channel = 1; }, "(SB0.0) names channel 1 and not 3"},
    {"channel of a computation", [](Schedule& s) { at(s, 1, "F0.0").channel = 0; }, "names channel 0 and not -1"},
    {"slot of a gather", [](Schedule& s) { at(s, 1, "G0").slot = 0; }, "names a microbatch or a slot"},
    {"a rank too few", [](Schedule& s) { s.rows.pop_back(); }, "rows for 2 ranks"},
    {"slots of a rank missing", [](Schedule& s) { s.slots.pop_back(); }, "rows for 3 ranks and slots for 2, pp is 3"},
    {"chunks on one rank", [](Schedule& s) { s.shape = {.pp = 1, .chunks = 2, .microbatches = 4}; }, "only one chunk"},
    {"empty shape", [](Schedule& s) { s.shape.microbatches = 0; }, "below 1"},
    {"backward in evaluation", [](Schedule& s) { s.shape.training = false; }, "in a forward-only schedule"},
};

TEST(Checker, FindsDamage) {
  const Schedule sound = one_f_one_b(3, 4, {.early_receives = false});
  ASSERT_TRUE(check(sound).ok) << check(sound).problem;
  for (const Damage& damage : kDamages) {
    Schedule schedule = sound;
    damage.apply(schedule);
    const Report report = check(schedule);
    EXPECT_FALSE(report.ok) << damage.name;
    EXPECT_THAT(report.problem, HasSubstr(damage.problem)) << damage.name;
  }
}

// Schedules as a user would write them, sound on every rank by itself.
Report check_text(std::string_view text, const Shape& shape) { return check(parse_csv(text, "test", shape)); }

TEST(Checker, SendsAndReceivesInDifferentOrder) {
  const Report report = check_text(
      "G0,F0.0,F0.1,SF0.1,SF0.0,RB0.0,B0.0,RB0.1,B0.1,D0\n"
      "G0,RF0.0,F0.0,RF0.1,F0.1,B0.0,SB0.0,B0.1,SB0.1,D0\n",
      {.pp = 2, .chunks = 1, .microbatches = 2});
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.problem, HasSubstr("rank 0 row 3 (SF0.1) meets rank 1 row 1 (RF0.0)"));
}

TEST(Checker, ChunksCrossedOnTheRing) {
  // Rank 1 sends chunk 0 to rank 0's chunk 1 in the order 0, 1; rank 0 expects 1, 0.
  const Report report = check_text(
      "G0,G1,F0.0,SF0.0,F0.1,SF0.1,RF1.1,F1.1,SF1.1,RF1.0,F1.0,SF1.0\n"
      "G0,G1,RF0.0,F0.0,SF0.0,RF0.1,F0.1,SF0.1,RF1.1,F1.1,RF1.0,F1.0\n",
      {.pp = 2, .chunks = 2, .microbatches = 2, .training = false});
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.problem, HasSubstr("rank 1 row 4 (SF0.0) meets rank 0 row 6 (RF1.1)"));
}

TEST(Checker, DeadlockOfComputations) {
  // Rank 0 wants the first gradient before it does the second forward; rank 1 does both forwards first.
  const Report report = check_text(
      "G0,F0.0,SF0.0,RB0.0,B0.0,F0.1,SF0.1,RB0.1,B0.1,D0\n"
      "G0,RF0.0,F0.0,RF0.1,F0.1,B0.0,SB0.0,B0.1,SB0.1,D0\n",
      {.pp = 2, .chunks = 1, .microbatches = 2});
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.problem, HasSubstr("deadlock: rank 0 row 4 (B0.0) waits for row 3 (RB0.0)"));
}

TEST(Checker, BackwardsOutOfOrder) {
  const Report report = check_text("G0,F0.0,F0.1,B0.1,B0.0,D0\n", {.pp = 1, .chunks = 1, .microbatches = 2});
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.problem, HasSubstr("rank 0 row 3 (B0.1) is out of order"));
}

// Gradients take the buffers of a ring as they come, so they must come as they are used.
TEST(Checker, GradientsOutOfOrder) {
  const Shape shape{.pp = 2, .chunks = 1, .microbatches = 2};
  const Report sent = check_text(
      "G0,F0.0,SF0.0,F0.1,SF0.1,RB0.0,RB0.1,B0.0,B0.1,D0\n"
      "G0,RF0.0,F0.0,RF0.1,F0.1,B0.0,B0.1,SB0.1,SB0.0,D0\n",
      shape);
  EXPECT_THAT(sent.problem, HasSubstr("rank 1 row 7 (SB0.1) is out of order: the next sent gradient of chunk 0"));
  const Report received = check_text(
      "G0,F0.0,SF0.0,F0.1,SF0.1,RB0.1,RB0.0,B0.0,B0.1,D0\n"
      "G0,RF0.0,F0.0,RF0.1,F0.1,B0.0,SB0.0,B0.1,SB0.1,D0\n",
      shape);
  EXPECT_THAT(received.problem, HasSubstr("rank 0 row 5 (RB0.1) is out of order: the next received gradient"));
}

TEST(Checker, GradientBuffers) {
  const auto buffers = [](const Schedule& schedule, Coupling coupling) {
    int most = 0;
    for (const RankReport& rank : check(schedule, {}, coupling).ranks) most = std::max(most, rank.gradient_buffers);
    return most;
  };
  for (const bool early : {false, true}) {
    const Options options{.early_receives = early};
    const Coupling coupling = early ? Coupling::decoupled : Coupling::coupled;
    EXPECT_EQ(buffers(one_f_one_b(1, 4, options), coupling), 1);
    EXPECT_LE(buffers(one_f_one_b(4, 8, options), coupling), 2);
    EXPECT_LE(buffers(zero_bubble_h1(4, 8, options), coupling), 2);
    EXPECT_LE(buffers(gpipe(4, 8, options), coupling), 2);
    EXPECT_LE(buffers(interleaved(4, 2, 8, options), coupling), 3);
    EXPECT_EQ(buffers(forward_only(4, 2, 8, options), coupling), 0);
  }
  // Two that wait to be used, and one that waits to be sent while the next is made.
  const Report waiting = check_text(
      "G0,F0.0,SF0.0,F0.1,SF0.1,RB0.0,RB0.1,B0.0,B0.1,D0\n"
      "G0,RF0.0,F0.0,RF0.1,F0.1,B0.0,B0.1,SB0.0,SB0.1,D0\n",
      {.pp = 2, .chunks = 1, .microbatches = 2});
  ASSERT_TRUE(waiting.ok) << waiting.problem;
  EXPECT_EQ(waiting.ranks[0].gradient_buffers, 2);
  EXPECT_EQ(waiting.ranks[1].gradient_buffers, 2);
}

// Every row is in order and every channel matches, yet rank 0 may not start its third microbatch before rank 1 has
// taken the second, which rank 1 has no slot for before rank 0 takes the first back as chunk 1: only a run finds that.
TEST(Checker, DeadlockThroughSlots) {
  const Shape shape{.pp = 2, .chunks = 2, .microbatches = 4, .training = false};
  Schedule schedule = parse_csv(
      "G0,G1,F0.0,SF0.0,F0.1,SF0.1,F0.2,SF0.2,F0.3,SF0.3,"
      "RF1.0,F1.0,SF1.0,RF1.1,F1.1,SF1.1,RF1.2,F1.2,SF1.2,RF1.3,F1.3,SF1.3\n"
      "G0,G1,RF0.0,F0.0,SF0.0,RF0.1,F0.1,SF0.1,RF0.2,F0.2,SF0.2,RF0.3,F0.3,SF0.3,"
      "RF1.0,F1.0,RF1.1,F1.1,RF1.2,F1.2,RF1.3,F1.3\n",
      "test", shape);
  ASSERT_EQ(schedule.slots, (std::vector<int>{1, 1}));
  const Report report = check(schedule);
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.problem, HasSubstr("deadlock: rank 0 row 6 (F0.2) waits for row 5 (SF0.1)"));
  // With a slot for every microbatch nothing waits for a slot, and the same order runs.
  for (auto& rows : schedule.rows) {
    for (Row& row : rows) row.slot = row.microbatch;
  }
  schedule.slots = {4, 4};
  EXPECT_TRUE(check(schedule).ok) << check(schedule).problem;
}

// The chunks of a rank share its slots: one that another chunk still uses is not free.
TEST(Checker, SlotInUseByAnotherChunk) {
  Schedule schedule = interleaved(2, 2, 2);
  ASSERT_TRUE(check(schedule).ok) << check(schedule).problem;
  for (Row& row : schedule.rows[0]) {
    if (row.chunk == 1 && row.microbatch == 0) row.slot = at(schedule, 0, "F0.1").slot;
  }
  EXPECT_THAT(check(schedule).problem, HasSubstr("(F0.1) takes slot 2, which microbatch 0 of chunk 1 uses until row"));
}

// Whatever is swapped or dropped in a sound schedule: the checker accepts it only if the text still says something
// sound, and then time and work must be those of a complete schedule. It never crashes.
TEST(Checker, EveryDroppedRowIsFound) {
  for (const Schedule& sound :
       {gpipe(3, 3), one_f_one_b(3, 4), zero_bubble_h1(3, 4), interleaved(2, 2, 4), forward_only(3, 2, 4)}) {
    for (std::size_t rank = 0; rank < sound.rows.size(); ++rank) {
      for (std::size_t i = 0; i < sound.rows[rank].size(); ++i) {
        Schedule schedule = sound;
        schedule.rows[rank].erase(schedule.rows[rank].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(check(schedule).ok) << "rank " << rank << " without " << cell(sound.rows[rank][i]);
        assign_slots(schedule);
        EXPECT_FALSE(check(schedule).ok) << "rank " << rank << " without " << cell(sound.rows[rank][i]);
      }
    }
  }
}

TEST(Checker, SwappedComputationsAreFoundUnlessHarmless) {
  // Exchanging computations of GPipe's last rank, transfers staying where they are, breaks a dependency or the order of
  // backwards, but for two: the first backward may come as soon as its own forward is done.
  const Schedule sound = gpipe(2, 3, {.early_receives = false});
  const std::vector<Row>& rows = sound.rows[1];
  std::vector<std::string> harmless;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      if (!rows[i].is_compute() || !rows[j].is_compute()) continue;
      Schedule schedule = sound;
      std::swap(schedule.rows[1][i], schedule.rows[1][j]);
      assign_slots(schedule);
      if (check(schedule).ok) harmless.push_back(cell(rows[i]) + " " + cell(rows[j]));
    }
  }
  EXPECT_THAT(harmless, testing::ElementsAre("F0.1 B0.0", "F0.2 B0.0"));
}

TEST(Checker, RequireSound) {
  EXPECT_NO_THROW(require_sound(gpipe(2, 2), "gpipe"));
  Schedule schedule = gpipe(2, 2);
  schedule.rows[1].pop_back();
  try {
    require_sound(schedule, "mine.csv");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "sched.invalid");
    EXPECT_THAT(error.message(), HasSubstr("the schedule mine.csv cannot run: rank 1 has no reduce_grads of chunk 0"));
  }
}

TEST(Checker, OperationsAtOnce) {
  EXPECT_EQ(check(one_f_one_b(1, 4)).ranks[0].at_once, 1) << "alone there is only compute";
  const Report late = check(one_f_one_b(4, 8, {.early_receives = false}));
  for (const RankReport& rank : late.ranks) {
    EXPECT_GE(rank.at_once, 2);
    EXPECT_LE(rank.at_once, 5);
  }
  EXPECT_LE(late.ranks[0].at_once, 3) << "the first rank has two channels";
}

}  // namespace
}  // namespace ms::sched
