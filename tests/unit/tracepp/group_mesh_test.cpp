// The mesh of jobs of PyTorch by their process groups, as frameworks describe them, and the rank that comes last.
#include "tracepp/read/group_mesh.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/json.h"
#include "foreign_files.h"
#include "tracepp/page/page.h"
#include "tracepp/report/report.h"

namespace ms::tracepp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct MadeGroup {
  std::string description;
  std::vector<int> ranks;
};

// One kernel of communication: of a group of the job's list.
struct MadeCall {
  std::size_t group;
  std::string name = "all_reduce";
  int count = 4;
};

// The ranks first, first + stride, ...
std::vector<int> line(int first, int count, int stride) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

// All groups of a kind in a world: lines of `count` ranks at `stride`.
std::vector<MadeGroup> lines(const std::string& description, int world, int count, int stride) {
  std::vector<MadeGroup> groups;
  for (int rank = 0; rank < world; ++rank)
    if (rank / stride % count == 0) groups.push_back({description, line(rank, count, stride)});
  return groups;
}

std::vector<MadeGroup> joined(std::initializer_list<std::vector<MadeGroup>> parts) {
  std::vector<MadeGroup> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

class GroupMesh : public testing::Test {
 protected:
  // Writes the traces of some ranks: each lists the groups that it is in. Without calls it has one kernel.
  void put(int world, const std::vector<MadeGroup>& groups, const std::vector<int>& ranks,
           const std::vector<MadeCall>& calls = {}, bool as_text = false) {
    for (const int rank : ranks) {
      std::string config, events;
      for (std::size_t g = 0; g < groups.size(); ++g) {
        if (std::ranges::find(groups[g].ranks, rank) == groups[g].ranks.end()) continue;
        const std::string list = fmt::format("[{}]", fmt::join(groups[g].ranks, ", "));
        config += fmt::format(R"({}{{"pg_name": "{}", "pg_desc": "{}", "pg_size": {}, "ranks": {}}})",
                              config.empty() ? "" : ",", g, groups[g].description, groups[g].ranks.size(),
                              as_text ? "\"" + list + "\"" : list);
      }
      for (const MadeCall& call : calls) {
        if (std::ranges::find(groups[call.group].ranks, rank) == groups[call.group].ranks.end()) continue;
        for (int i = 0; i < call.count; ++i) {
          events += fmt::format(
              R"({{"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "pid": 0, "tid": 20, "ts": {}, "dur": 5,
                  "args": {{"Collective name": "{}", "Process Group Name": "{}", "Seq": {}, "Dst Rank": 1}}}},)",
              100 * (i + 1), call.name, call.group, i);
        }
      }
      events += R"({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 5})";
      files_.put(fmt::format("rank{}.json", rank),
                 fmt::format(R"({{"schemaVersion": 1, "distributedInfo": {{"backend": "nccl", "rank": {},
                   "world_size": {}, "pg_config": [{}]}}, "traceEvents": [{}]}})",
                             rank, world, config, events));
    }
  }
  RunTrace read() const { return read_run({files_.path()}); }
  const ForeignFiles& files() const { return files_; }

 private:
  ForeignFiles files_;
};

struct Framework {
  const char* name;
  int world;
  std::vector<MadeGroup> groups;
  mesh::Mesh mesh;
};

// tp 2, cp 2, ep 4 over dp and cp, dp 2, pp 2: as Megatron-Core makes them, those of size 1 among them.
std::vector<MadeGroup> megatron() {
  return joined({lines("default_pg", 16, 16, 1), lines("TENSOR_MODEL_PARALLEL_GROUP", 16, 2, 1),
                 lines("CONTEXT_PARALLEL_GROUP", 16, 2, 2), lines("DATA_PARALLEL_GROUP", 16, 2, 4),
                 lines("DATA_PARALLEL_GROUP_WITH_CP", 16, 4, 2), lines("DATA_PARALLEL_GROUP_WITH_CP_GLOO", 16, 4, 2),
                 lines("TENSOR_AND_CONTEXT_PARALLEL_GROUP", 16, 4, 1),
                 lines("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", 16, 8, 1), lines("MODEL_PARALLEL_GROUP", 16, 2, 8),
                 lines("PIPELINE_MODEL_PARALLEL_GROUP", 16, 2, 8), lines("EMBEDDING_GROUP", 16, 2, 8),
                 lines("EXPERT_MODEL_PARALLEL_GROUP", 16, 4, 2), lines("EXPERT_TENSOR_PARALLEL_GROUP", 16, 1, 1),
                 lines("EXPERT_DATA_PARALLEL_GROUP", 16, 1, 1)});
}

TEST_F(GroupMesh, FindsTheMeshOfEachFramework) {
  const Framework frameworks[] = {
      {"Megatron-Core", 16, megatron(), {.dp = 4, .pp = 2, .tp = 2}},
      {"torchtitan",
       16,
       joined({lines("default_pg", 16, 16, 1), lines("mesh_pp", 16, 2, 8), lines("mesh_batch", 16, 2, 4),
               lines("mesh_fsdp", 16, 4, 2), lines("mesh_cp", 16, 2, 2), lines("mesh_tp", 16, 2, 1),
               lines("mesh_loss_mesh", 16, 4, 2), lines("mesh_ep", 16, 4, 2)}),
       {.dp = 4, .pp = 2, .tp = 2}},
      {"torchtitan, earlier names, replicas of shards",
       8,
       joined({lines("default_pg", 8, 8, 1), lines("mesh_dp_replicate", 8, 2, 4), lines("mesh_dp_shard_cp", 8, 4, 1)}),
       {.dp = 8}},
      {"FSDP2 on a mesh", 8, joined({lines("default_pg", 8, 8, 1), lines("mesh_fsdp", 8, 8, 1)}), {.dp = 8}},
      {"DDP", 4, lines("default_pg", 4, 4, 1), {.dp = 4}},
      {"DeepSpeed, ZeRO", 4, joined({lines("default_pg", 4, 4, 1), lines("undefined", 4, 4, 1)}), {.dp = 4}},
  };
  for (const Framework& of : frameworks) {
    SCOPED_TRACE(of.name);
    for (const bool as_text : {false, true}) {
      put(of.world, of.groups, line(0, of.world, 1), {}, as_text);
      const RunTrace trace = read();
      EXPECT_TRUE(trace.has_mesh) << trace.mesh_why;
      EXPECT_FALSE(trace.records_mesh());
      EXPECT_NE(trace.mesh_why, "");
      EXPECT_EQ(trace.mesh, of.mesh) << trace.mesh_why;
      EXPECT_EQ(trace.ranks.back().at, of.mesh.coord(of.world - 1));
      for (int rank = 0; rank < of.world; ++rank) std::filesystem::remove(files() / fmt::format("rank{}.json", rank));
    }
    // One rank lists its own groups only: the others lie alike.
    put(of.world, of.groups, {of.world - 1});
    EXPECT_EQ(read().mesh, of.mesh);
    std::filesystem::remove(files() / fmt::format("rank{}.json", of.world - 1));
  }
}

// Groups without a description: by what they do, if that fits just one axis.
TEST_F(GroupMesh, TakesWhatGroupsDoWhereTheyHaveNoDescription) {
  const auto groups = joined({lines("undefined", 8, 8, 1), lines("undefined", 8, 2, 1), lines("undefined", 8, 2, 2),
                              lines("undefined", 8, 2, 4)});
  const auto calls = [&](const std::string& near, const std::string& far) {
    std::vector<MadeCall> made;
    for (std::size_t g = 1; g < 5; ++g) made.push_back({g, near, 20});
    for (std::size_t g = 5; g < 9; ++g) made.push_back({g, far, 2});
    for (std::size_t g = 9; g < 13; ++g) made.push_back({g, "send", 4});
    return made;
  };
  put(8, groups, line(0, 8, 1), calls("allreduce", "_reduce_scatter_base"));
  EXPECT_EQ(read().mesh, (mesh::Mesh{.dp = 2, .pp = 2, .tp = 2})) << read().mesh_why;
  // Neighbours that gather and scatter: sequence parallelism, or shards of the data-parallel state.
  put(8, groups, line(0, 8, 1), calls("_allgather_base", "allreduce"));
  EXPECT_FALSE(read().has_mesh);
  EXPECT_NE(read().mesh_why, "");
}

TEST_F(GroupMesh, InventsNone) {
  const std::pair<const char*, std::vector<MadeGroup>> unknown[] = {
      {"no groups", {}},
      {"the group of a further axis is not listed", lines("mesh_dp", 8, 4, 2)},
      {"tp is not the fastest axis", joined({lines("mesh_tp", 8, 2, 4), lines("mesh_dp", 8, 4, 1)})},
      {"groups of one kind differ", {{"mesh_tp", {0, 1}}, {"mesh_tp", {2, 3, 4, 5}}, {"mesh_dp", line(0, 8, 1)}}},
      {"ranks beyond the world", {{"mesh_tp", {0, 1}}, {"mesh_dp", {0, 2, 4, 6, 8}}}},
      {"only groups of no single axis", lines("MODEL_PARALLEL_GROUP", 8, 4, 2)},
  };
  for (const auto& [what, groups] : unknown) {
    SCOPED_TRACE(what);
    put(8, groups, line(0, 8, 1));
    const RunTrace trace = read();
    EXPECT_FALSE(trace.has_mesh) << trace.mesh_why;
    EXPECT_NE(trace.mesh_why, "");
    EXPECT_TRUE(Json::parse(info_json(trace))["mesh"].is_null());
    for (const RankTrace& rank : trace.ranks) EXPECT_EQ(rank.at, mesh::Coord{});
  }
}

TEST(RoleOfGroup, IsByItsDescription) {
  const std::pair<const char*, GroupRole> roles[] = {{"TENSOR_MODEL_PARALLEL_GROUP", GroupRole::tp},
                                                     {"mesh_tp", GroupRole::tp},
                                                     {"PIPELINE_MODEL_PARALLEL_GROUP", GroupRole::pp},
                                                     {"mesh_dp_shard_cp", GroupRole::dp},
                                                     {"DATA_PARALLEL_GROUP_WITH_CP_AG", GroupRole::dp},
                                                     {"EXPERT_TENSOR_PARALLEL_GROUP", GroupRole::other},
                                                     {"TENSOR_AND_DATA_PARALLEL_GROUP", GroupRole::other},
                                                     {"mesh_efsdp", GroupRole::other},
                                                     {"default_pg", GroupRole::world},
                                                     {"default_pg:split:3", GroupRole::unknown},
                                                     {"undefined", GroupRole::unknown},
                                                     {"", GroupRole::unknown}};
  for (const auto& [description, role] : roles) EXPECT_EQ(role_of_group(description), role) << description;
}

// A job whose ranks compute, then meet in an all_reduce, in every step.
struct MadeJob {
  int ranks = 4, slow = 2, steps = 10;
  bool has_arguments = true, has_config = true;
  std::vector<int> traced = {0, 1, 2, 3};
};

void put(const ForeignFiles& files, const MadeJob& job) {
  for (const int rank : job.traced) {
    std::string events;
    for (int step = 0; step < job.steps; ++step) {
      const int begin = 10000 * step + 1000, computes = (rank == job.slow ? 6000 : 4000) + 10 * rank;
      events += fmt::format(
          R"({{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{}", "pid": 9, "tid": 9, "ts": {}, "dur": 9000}},
             {{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": {}, "dur": {}}},
             {{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 20, "ts": {}, "dur": {},
               "args": {{{}}}}},)",
          step, begin, begin, computes, begin + computes, 8000 - computes,
          job.has_arguments ? fmt::format(R"("Collective name": "allreduce", "Process Group Name": "0", "Seq": {},
               "Process Group Ranks": "[0, 1, 2, 3]")",
                                          step)
                            : "");
    }
    events.pop_back();
    const std::string config = fmt::format(
        R"("distributedInfo": {{"rank": {}, "world_size": {}, "pg_config": [{{"pg_name": "0", "pg_desc": "default_pg",
           "ranks": [0, 1, 2, 3]}}]}},)",
        rank, job.ranks);
    files.put(fmt::format("rank{}.json", rank),
              fmt::format(R"({{"schemaVersion": 1, {} "traceEvents": [{}]}})", job.has_config ? config : "", events));
  }
}

Analysis analysed(const ForeignFiles& files) {
  RunTrace trace = read_run({files.path()});
  return analyse(trace);
}

TEST(LastComer, HasTheConfidenceOfWhatItRestsOn) {
  struct Row {
    const char* what;
    MadeJob job;
    bool found;
    double least, most;  // confidence
    bool in_doubt;
  };
  const Row rows[] = {
      {"groups and numbers", {}, true, 0.85, 0.95, false},
      {"older traces: the one group that is listed", {.has_arguments = false}, true, 0.85, 0.95, false},
      {"no groups at all: by order", {.has_arguments = false, .has_config = false}, true, 0.3, 0.6, false},
      {"a rank without a trace", {.traced = {0, 2, 3}}, true, 0.2, 0.5, true},
      {"too few steps", {.steps = 4}, true, 0.2, 0.5, true},
      {"one step", {.steps = 1}, false, 0, 0, false},
      {"no slow rank", {.slow = -1}, true, 0, 1, false},  // the last by 10 us: of no cost
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const ForeignFiles files;
    put(files, row.job);
    const Analysis analysis = analysed(files);
    ASSERT_EQ(analysis.last_comer.has_value(), row.found);
    if (!row.found) continue;
    if (row.job.slow < 0) {
      EXPECT_LT(analysis.last_comer->cost_share, 0.01);
      continue;
    }
    EXPECT_THAT(analysis.last_comer->ranks, ElementsAre(row.job.slow));
    EXPECT_GE(analysis.last_comer->confidence, row.least);
    EXPECT_LE(analysis.last_comer->confidence, row.most);
    EXPECT_EQ(!analysis.last_comer->doubt.empty(), row.in_doubt);
    EXPECT_NEAR(analysis.last_comer->cost_s, 0.002, 0.0002);
  }
}

// Two tensor-parallel groups do not leave their collectives together.
TEST(GroupByOrder, RefusesRanksThatDoNotMeet) {
  const ForeignFiles files;
  for (int rank = 0; rank < 4; ++rank) {
    std::string events;
    for (int i = 0; i < 10; ++i) {
      const int begin = 1000 * i + (rank < 2 ? 300 * (i % 3) : 0);
      events += fmt::format(
          R"({{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 1, "ts": {}, "dur": 50}},)",
          begin + 1000);
    }
    events.pop_back();
    files.put(fmt::format("rank{}.json", rank), R"({"schemaVersion": 1, "traceEvents": [)" + events + "]}");
  }
  const RunTrace trace = read_run({files.path()});
  for (const EventInfo& info : trace.infos) EXPECT_EQ(info.group, -1);
  EXPECT_TRUE(trace.groups.empty());
}

// The page invents no place in a mesh that is not known.
TEST(UnknownMesh, HasNoPlacesOnThePage) {
  const ForeignFiles files;
  put(files, {.has_arguments = false, .has_config = false});
  RunTrace trace = read_run({files.path()});
  const Analysis analysis = analyse(trace);
  EXPECT_FALSE(trace.has_mesh);
  const std::string page = report_page(trace, analysis, {});
  EXPECT_THAT(page, HasSubstr("\"knows_mesh\":false"));
  EXPECT_THAT(page, testing::Not(HasSubstr("id=\"mesh\"")));
  EXPECT_THAT(page, testing::Not(HasSubstr("id=\"grid\"")));
  EXPECT_THAT(page, testing::Not(testing::ContainsRegex("dp [0-9]+ pp [0-9]+")));
}

}  // namespace
}  // namespace ms::tracepp
