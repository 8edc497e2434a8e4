// Schedules as text: round trips and refusals.
#include "sched/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "edit.h"

namespace ms::sched {
namespace {

using testing::HasSubstr;

TEST(Csv, RoundTrip) {
  for (const Schedule& schedule : {gpipe(3, 5), one_f_one_b(4, 12), one_f_one_b(1, 1), zero_bubble_h1(3, 4),
                                   interleaved(4, 3, 8), forward_only(3, 2, 4)}) {
    EXPECT_EQ(parse_csv(to_csv(schedule), "test", schedule.shape), schedule);
  }
}

TEST(Csv, BlanksCommentsAndLineEnds) {
  const Shape shape{.pp = 2, .chunks = 1, .microbatches = 1, .training = false};
  const Schedule schedule = parse_csv("# by hand\n\n  G0 ,\tF0.0 , SF0.0\r\n# next\nG0,RF0.0,F0.0", "test", shape);
  EXPECT_EQ(schedule, forward_only(2, 1, 1));
}

TEST(Csv, SlotsAndChannelsAreFilledIn) {
  const Schedule schedule = parse_csv(
      "G0,F0.0,SF0.0,RB0.0,B0.0,F0.1,SF0.1,RB0.1,B0.1,D0\n"
      "G0,RF0.0,F0.0,B0.0,SB0.0,RF0.1,F0.1,B0.1,SB0.1,D0\n",
      "test", {.pp = 2, .chunks = 1, .microbatches = 2});
  EXPECT_EQ(schedule.slots[0], 1);
  EXPECT_EQ(schedule.rows[0][5].slot, 0);
  EXPECT_EQ(schedule.rows[0][2].channel, 1);
  EXPECT_EQ(schedule.rows[0][3].channel, 2);
  EXPECT_EQ(schedule.rows[1][1].channel, 0);
  EXPECT_EQ(schedule.rows[1][4].channel, 3);
  EXPECT_EQ(schedule.rows[0][0].slot, kNone);
}

TEST(Csv, Refusals) {
  struct Case {
    const char* text;
    const char* message;
  };
  const Case cases[] = {
      {"G0,F0.0\n", "mine.csv: the schedule has 1 lines for 2 pp ranks"},
      {"", "has 0 lines for 2 pp ranks"},
      {"G0\nG0\nG0\n", "mine.csv:3: the schedule has more lines than the 2 pp ranks"},
      {"# head\nG0,X0.0\nG0\n", "mine.csv:2: cell 2 'X0.0' is not one of F0.0"},
      {"G0,\nG0\n", "mine.csv:1: cell 2 '' is not one of"},
      {",G0\nG0\n", "mine.csv:1: cell 1 '' is not one of"},
      {"G0,F0\nG0\n", "cell 2 'F0' is not one of"},
      {"G0,F0.\nG0\n", "cell 2 'F0.' is not one of"},
      {"G0,F.0\nG0\n", "cell 2 'F.0' is not one of"},
      {"G0,F0.0x\nG0\n", "cell 2 'F0.0x' is not one of"},
      {"G0.1\nG0\n", "cell 1 'G0.1' is not one of"},
      {"G0,F-1.0\nG0\n", "cell 2 'F-1.0' is not one of"},
      {"G0,F0.99999999999\nG0\n", "cell 2 'F0.99999999999' is not one of"},
      {"G0,W0\nG0\n", "cell 2 'W0' is not one of F0.0 B0.0 I0.0 W0.0"},
      {"G0,I0.x\nG0\n", "cell 2 'I0.x' is not one of"},
      {"G0,R0.0\nG0\n", "cell 2 'R0.0' is not one of"},
      {"G0,f0.0\nG0\n", "cell 2 'f0.0' is not one of"},
      {"G0\nG0,F1.0\n", "mine.csv:2: cell 2 'F1.0' names a chunk beyond the 1"},
      {"G0\nG0,F0.0,RB0.3\n", "mine.csv:2: cell 3 'RB0.3' names a microbatch beyond the 3"},
  };
  for (const Case& c : cases) {
    try {
      parse_csv(c.text, "mine.csv", {.pp = 2, .chunks = 1, .microbatches = 3});
      ADD_FAILURE() << "accepted: " << c.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "sched.csv");
      EXPECT_EQ(error.blame(), Blame::user);
      EXPECT_THAT(error.message(), HasSubstr(c.message));
    }
  }
}

}  // namespace
}  // namespace ms::sched
