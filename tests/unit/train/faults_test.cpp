// Faults of simulated jobs: the forms of files, what is drawn from them, and what is refused.
#include "train/simulate/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "support/files.h"

namespace ms::train {
namespace {

using ::testing::HasSubstr;

constexpr double kHour_s = 3600;

class Faults : public testing::Test {
 protected:
  FaultSource read(const std::string& text, std::optional<std::int64_t> watched = {}) {
    write_file_atomic(path_, text);
    return read_faults(path_, watched);
  }
  std::string refusal(const std::string& text, std::optional<std::int64_t> watched = {}) {
    try {
      read(text, watched);
    } catch (const Error& error) {
      EXPECT_EQ(error.blame(), Blame::user);
      return error.message() + " hint: " + error.hint();
    }
    return "accepted";
  }
  const test::TempDir dir_;
  const std::string path_ = dir_.path() + "/faults";
};

std::string event(double day, const char* type, const char* node, const char* desc = "GPU xid Error") {
  return fmt::format(R"({{"node_id":"{}","event_time":{},"event_type":"{}","fault_type":{{"Desc":"{}"}}}})", node, day,
                     type, desc);
}

TEST_F(Faults, OverlappingFaultsOfANodeAreOneOutage) {
  const FaultSource source =
      read("[" + event(1, "fault_start", "a", "Link Down") + "," + event(2, "fault_start", "a") + "," +
               event(3, "fault_end", "a") + "," + event(4, "fault_start", "b") + "," + event(5, "fault_end", "a") +
               "," + event(6, "fault_start", "a") + "," + event(8, "fault_end", "a") + "]",
           10);
  ASSERT_EQ(source.histories.size(), 2U);
  const std::vector<Fault>& a = source.histories[0];
  ASSERT_EQ(a.size(), 2U);
  EXPECT_EQ(a[0].kind, FaultKind::hang);
  EXPECT_NEAR(a[0].repair_s, 4 * kSecondsPerDay, 1e-6);
  EXPECT_EQ(a[1].kind, FaultKind::crash);
  EXPECT_NEAR(source.histories[1][0].repair_s, 4 * kSecondsPerDay, 1e-6);  // not ended: until the trace's end
  EXPECT_NEAR(source.span_s, 8 * kSecondsPerDay, 1e-6);
  EXPECT_NEAR(source.per_node_day(), 3.0 / 80, 1e-12);
}

TEST_F(Faults, ACsvTraceIsTheSame) {
  const FaultSource source = read("# ours\nnode,begin,repair,kind\na,1,4,hang\n\na,2,1,crash\nb,4,4,slow\n", 2);
  ASSERT_EQ(source.histories.size(), 2U);
  ASSERT_EQ(source.histories[0].size(), 1U);
  EXPECT_NEAR(source.histories[0][0].repair_s, 4 * kSecondsPerDay, 1e-6);
  EXPECT_EQ(source.histories[1][0].kind, FaultKind::slow);
}

TEST_F(Faults, HazardsComeAsOftenAsTheySay) {
  const FaultSource source = read("kind,per_node_day,repair\nlost,0.01,0.5\nhang,0.03,0\n");
  EXPECT_NEAR(source.per_node_day(), 0.04, 1e-12);
  const std::vector<NodeFault> faults = draw_faults(source, 1000, 100 * kSecondsPerDay, 1);
  EXPECT_NEAR(static_cast<double>(faults.size()), 4000, 4 * 64);  // four standard deviations
  double repairs_s = 0, lost = 0;
  for (const NodeFault& fault : faults) {
    if (fault.kind == FaultKind::hang) { EXPECT_EQ(fault.repair_s, 0); }
    if (fault.kind != FaultKind::lost) continue;
    repairs_s += fault.repair_s;
    ++lost;
  }
  EXPECT_NEAR(repairs_s / lost, 12 * kHour_s, 2 * kHour_s);
}

TEST_F(Faults, ATraceIsDrawnAsOftenAsItSaysAndANodesFaultsAreItsOwn) {
  const FaultSource source = read("node,begin,repair\na,1,1\nb,3,1\nb,9,1\n", 100);  // 3 in 1000 node-days
  std::vector<NodeFault> many;
  double number = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    many = draw_faults(source, 20'000, 40 * kSecondsPerDay, seed);
    number += static_cast<double>(many.size());
  }
  EXPECT_NEAR(number / 10, 3.0 / 1000 * 20'000 * 40, 4 * 40);  // four standard deviations: nodes have 4, 8 or no faults
  const std::vector<NodeFault> few = draw_faults(source, 5000, 40 * kSecondsPerDay, 10);
  std::vector<NodeFault> first;
  for (const NodeFault& fault : many) {
    if (fault.node < 5000) first.push_back(fault);
  }
  ASSERT_EQ(first.size(), few.size());
  for (std::size_t i = 0; i < few.size(); ++i) EXPECT_EQ(first[i].begin_s, few[i].begin_s);
}

TEST_F(Faults, RatesAreRead) {
  EXPECT_EQ(read_faults("0.004", {}).mean_repair_s(), 0);
  EXPECT_EQ(read_faults("0.004:12h", {}).mean_repair_s(), 12 * kHour_s);
  EXPECT_NEAR(read_faults("4e-3", {}).per_node_day(), 0.004, 1e-12);
}

TEST_F(Faults, RefusesWhatItCannotKnow) {
  EXPECT_THAT(refusal("node,begin,repair\na,1,1\n"), HasSubstr("--trace-nodes N"));
  EXPECT_THAT(refusal("node,begin,repair\na,1,1\nb,1,1\n", 1), HasSubstr("names 2 nodes"));
  EXPECT_THAT(refusal("kind,per_node_day,repair\nlost,1,1\n", 7), HasSubstr("is not a trace"));
  EXPECT_THAT(refusal("node,begin,repair\na,1,-1\n"), HasSubstr(":2: repair '-1' is not a number"));
  EXPECT_THAT(refusal("node,begin,repair\na,nan,1\n"), HasSubstr("begin 'nan' is not a number"));
  EXPECT_THAT(refusal("node,begin,repair\na,1\n"), HasSubstr(":2: 2 cells, but the first line names 3"));
  EXPECT_THAT(refusal("kind,per_node_day,repair\nfire,1,1\n"),
              HasSubstr("'fire' is not one of crash, lost, hang, slow"));
  EXPECT_THAT(refusal("a,b\n1,2\n"), HasSubstr("names neither node, begin, repair nor"));
  EXPECT_THAT(refusal(""), HasSubstr("names neither"));
  EXPECT_THAT(refusal("node,begin,repair\n"), HasSubstr("it has no faults"));
  EXPECT_THAT(refusal("[]"), HasSubstr("it has no faults"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("no such trace"));
  EXPECT_THAT(refusal("[" + event(2, "fault_start", "a") + "," + event(1, "fault_end", "a") + "]"),
              HasSubstr("event 2: the events are not in the order of time"));
  EXPECT_THAT(refusal("[" + event(2, "fault_end", "a") + "]"), HasSubstr("event 1: the fault that ends had not begun"));
  EXPECT_THAT(refusal("[" + event(2, "end", "a") + "]"), HasSubstr("neither fault_start nor fault_end"));
  for (const char* rate : {"0.004:soon", "-1", "1e9"}) EXPECT_THROW(read_faults(rate, {}), Error) << rate;
  EXPECT_THROW(read_faults(dir_.path() + "/none", {}), Error);
  EXPECT_THROW(draw_faults(read_faults("1000", {}), 100'000, 1000 * kSecondsPerDay, 1), Error);
}

}  // namespace
}  // namespace ms::train
