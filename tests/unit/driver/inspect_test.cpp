// What ms-driver inspect takes for the run of a job, and how it shows what nodes told, or did not.
#include "driver/inspect.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "base/file.h"

namespace ms::driver {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Inspect, TheRunOfAJobIsItsNewestStep) {
  const auto task = [](int pid, int step, int attempt = -1) {
    return Task{.pid = pid, .job = 7, .step = step, .attempt = attempt, .rank = 0};
  };
  struct Row {
    const char* what;
    std::vector<Task> tasks;
    std::optional<int> step;
    std::vector<int> pids;
  };
  for (const Row& row : {
           Row{"a batch script and its step", {task(1, -1), task(2, 0), task(3, 0)}, {}, {2, 3}},
           Row{"two steps, the last of which looks", {task(1, 0), task(2, 1), task(3, 9)}, {}, {2}},
           Row{"a batch script alone", {task(1, -1), task(2, 9)}, {}, {1}},
           Row{"a run of ms-driver, whose agents are another step",
               {task(1, 0), task(2, 1, 1), task(3, 2, 2)},
               {},
               {3}},
           Row{"an attempt that began before the agents did again", {task(1, 4), task(2, 1, 2)}, {}, {2}},
           Row{"the step that was asked for", {task(1, -1), task(2, 0), task(3, 1)}, 0, {2}},
           Row{"the batch script that was asked for", {task(1, -1), task(2, 0)}, -1, {1}},
           Row{"a step that is not there", {task(1, -1), task(2, 0)}, 5, {}},
           Row{"nothing but the look", {task(3, 9)}, {}, {}},
           Row{"nothing", {}, {}, {}},
       }) {
    std::vector<int> pids;
    for (const Task& it : run_of(row.tasks, 9, row.step)) pids.push_back(it.pid);
    EXPECT_EQ(pids, row.pids) << row.what;
  }
}

TEST(Inspect, WhatWasNotHadIsNamedWithItsNodes) {
  std::string pattern = testing::TempDir() + "inspect-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const std::string dir = pattern;
  Inspection it;
  it.job = 7;
  it.nodes = {"n1", "n2", "n3", "n4"};
  it.dir = dir;
  const auto put = [&](const std::string& name, const std::string& text) { write_file_atomic(dir + "/" + name, text); };
  put("look-n1.json", to_json(NodeLook{.node = "n1", .step = 0, .ranks = 8, .missing = {"RAS"}}));
  put("look-n2.json", to_json(NodeLook{.node = "n2", .step = 0, .ranks = 8, .missing = {"RAS", "py-spy"}}));
  put("look-n3.json", "{\"node\": \"n3\"");  // cut off
  put("check-n2.json",
      "{\n\"findings\": [{\"severity\": \"critical\", \"code\": \"gpu.xid\", \"entity\": \"gpu 3\", "
      "\"message\": \"79\"}]\n}\n");
  read_looks(it);
  EXPECT_THAT(it.looks, SizeIs(2));
  EXPECT_THAT(it.findings, ElementsAre(testing::Pair("n2", HasSubstr("gpu.xid"))));
  const auto missing = it.missing();
  EXPECT_THAT(missing.at("RAS"), ElementsAre("n1", "n2"));
  EXPECT_THAT(missing.at("py-spy"), ElementsAre("n2"));
  EXPECT_THAT(missing, SizeIs(3));  // and the two nodes that did not answer
  const Json json = Json::parse(to_json(it));
  EXPECT_TRUE(json.at("verdict").is_null());
  EXPECT_EQ(json.at("nodes").size(), 2U);
  EXPECT_EQ(json.at("findings").size(), 1U);
  EXPECT_THAT(inspection_text(it), HasSubstr("n[3-4]"));
  it.looks[1].step = 3;
  EXPECT_THAT(it.missing(), SizeIs(4));  // of which run it tells is not known, either
  it.unread = "no such file";
  EXPECT_THAT(it.missing(), SizeIs(5));
  std::filesystem::remove_all(dir);
}

// Ranks 0 and 1 of a job as /proc shows them, with dumps of a flight recorder of which that of rank 1 is too large.
class InspectLook : public testing::Test {
 protected:
  InspectLook() {
    std::string pattern = testing::TempDir() + "look-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    dir_ = pattern;
    put("root/proc/uptime", "1000.00 1000.00\n");
    for (const int rank : {0, 1}) {
      const std::string process = fmt::format("root/proc/{}/", 40 + rank);
      put(process + "environ", fmt::format("SLURM_JOB_ID=7\nSLURM_STEP_ID=0\nSLURM_PROCID={}\nNCCL_RAS_ENABLE=0\n"
                                           "TORCH_FR_DUMP_TEMP_FILE={}/trace_\n",
                                           rank, dir_));
      std::string stat = fmt::format("{} (python) S", 40 + rank);
      for (int field = 4; field <= 52; ++field) stat += " 0";
      put(process + "stat", stat);
      put("trace_" + std::to_string(rank), std::string(rank == 0 ? 8 : 9, 'x'));
    }
    std::filesystem::create_directories(dir_ + "/seen");
  }
  ~InspectLook() override { std::filesystem::remove_all(dir_); }

  void put(const std::string& name, std::string text) const {
    if (name.ends_with("environ")) std::ranges::replace(text, '\n', '\0');
    std::filesystem::create_directories(std::filesystem::path(dir_ + "/" + name).parent_path());
    write_file_atomic(dir_ + "/" + name, text);
  }
  NodeLook look() const {
    look_into_node({.job = 7,
                    .own_step = 9,
                    .step = {},
                    .node = "n1",
                    .dir = dir_ + "/seen",
                    .diag = dir_ + "/none",
                    .root = Sysroot(dir_ + "/root"),
                    .most_dump_bytes = 8});
    return read_node_look(read_file(dir_ + "/seen/look-n1.json")).value_or(NodeLook{.node = {}, .missing = {}});
  }

  std::string dir_;
};

TEST_F(InspectLook, OfADumpThatIsTooLargeTheBeginningIsKept) {
  const NodeLook seen = look();
  EXPECT_EQ(seen.ranks, 2);
  EXPECT_EQ(read_file(dir_ + "/seen/dumps/trace_0"), "xxxxxxxx");
  EXPECT_EQ(read_file(dir_ + "/seen/dumps/trace_1"), "xxxxxxxx");
  EXPECT_THAT(seen.missing, testing::Contains(testing::AllOf(HasSubstr("flight recorders: all but the first"),
                                                             HasSubstr(dir_ + "/trace_1"))));
  EXPECT_THAT(seen.missing, testing::Not(testing::Contains(HasSubstr("/trace_0"))));
}

TEST_F(InspectLook, DumpsThatCannotBeCopiedEndNoLook) {
  put("seen/dumps", "a file in the place of the folder");
  const NodeLook seen = look();
  EXPECT_EQ(seen.ranks, 2);
  for (const char* name : {"/trace_0", "/trace_1"}) EXPECT_THAT(seen.missing, testing::Contains(HasSubstr(name)));
  EXPECT_THAT(read_file(dir_ + "/seen/attempt-0.n1.stacks"), HasSubstr("rank 1"));
}

TEST(Inspect, AnswersOfNodesAreReadBack) {
  const NodeLook look{.node = "n1", .step = -1, .ranks = 3, .missing = {"a", "b"}};
  const std::optional<NodeLook> read = read_node_look(to_json(look));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->node, "n1");
  EXPECT_EQ(read->step, -1);
  EXPECT_EQ(read->ranks, 3);
  EXPECT_EQ(read->missing, look.missing);
  for (const char* text : {"", "{}", "[]", R"({"node": 3, "step": 0, "ranks": 0, "missing": []})"})
    EXPECT_FALSE(read_node_look(text)) << text;
}

}  // namespace
}  // namespace ms::driver
