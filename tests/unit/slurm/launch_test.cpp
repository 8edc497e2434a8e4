#include "slurm/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace ms::slurm {
namespace {

struct LaunchRow {
  const char* name;
  std::map<std::string, const char*> environment;
  Launch launch;
};
class Launches : public ::testing::TestWithParam<LaunchRow> {};

TEST_P(Launches, AreRead) {
  const LaunchRow& row = GetParam();
  const Launch got = launch_in([&](const char* name) {
    const auto found = row.environment.find(name);
    return found == row.environment.end() ? nullptr : found->second;
  });
  EXPECT_EQ(got.launcher, row.launch.launcher);
  EXPECT_EQ(got.rank, row.launch.rank);
  EXPECT_EQ(got.size, row.launch.size);
  EXPECT_EQ(got.pmix, row.launch.pmix);
  EXPECT_EQ(got.local_rank, row.launch.local_rank);
  EXPECT_EQ(got.local_size, row.launch.local_size);
}

INSTANTIATE_TEST_SUITE_P(
    All, Launches,
    ::testing::Values(
        LaunchRow{"alone", {}, {"", 0, 1, false}},
        LaunchRow{"in_a_batch_script", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, {"", 0, 1, false}},
        LaunchRow{"mpirun",
                  {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"PMIX_RANK", "2"}},
                  {"mpirun", 2, 4, true}},
        LaunchRow{"srun_with_pmix",
                  {{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "7"}, {"PMIX_RANK", "7"}},
                  {"srun", 7, 8, true}},
        LaunchRow{"srun_without", {{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "7"}}, {"srun", 7, 8, false}},
        LaunchRow{"mpirun_inside_srun",
                  {{"SLURM_STEP_NUM_TASKS", "2"},
                   {"SLURM_PROCID", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "16"},
                   {"OMPI_COMM_WORLD_RANK", "11"},
                   {"PMIX_RANK", "11"}},
                  {"mpirun", 11, 16, true}},
        LaunchRow{"mpirun_some_on_this_node",
                  {{"OMPI_COMM_WORLD_SIZE", "16"},
                   {"OMPI_COMM_WORLD_RANK", "11"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                   {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}},
                  {"mpirun", 11, 16, false, 3, 8}},
        LaunchRow{"srun_some_on_this_node",
                  {{"SLURM_STEP_NUM_TASKS", "7"},
                   {"SLURM_PROCID", "5"},
                   {"SLURM_LOCALID", "1"},
                   {"SLURM_NODEID", "2"},
                   {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}},
                  {"srun", 5, 7, false, 1, 2}},
        LaunchRow{"srun_last_node",
                  {{"SLURM_STEP_NUM_TASKS", "7"},
                   {"SLURM_PROCID", "6"},
                   {"SLURM_LOCALID", "0"},
                   {"SLURM_NODEID", "3"},
                   {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}},
                  {"srun", 6, 7, false, 0, 1}},
        LaunchRow{"srun_node_unheard_of",
                  {{"SLURM_STEP_NUM_TASKS", "2"},
                   {"SLURM_PROCID", "1"},
                   {"SLURM_LOCALID", "5"},
                   {"SLURM_NODEID", "9"},
                   {"SLURM_STEP_TASKS_PER_NODE", "rubbish"}},
                  {"srun", 1, 2, false, 0, 1}}),
    [](const auto& row) { return row.param.name; });

using Environment = std::map<std::string, const char*>;

TEST(OtherLaunchers, AreKnown) {
  const Environment torchrun{{"TORCHELASTIC_RUN_ID", "x"}, {"WORLD_SIZE", "4"}, {"RANK", "1"}};
  const Environment of_a_pod{{"WORLD_SIZE", "4"}}, alone{{"TORCHELASTIC_RUN_ID", "x"}, {"WORLD_SIZE", "1"}};
  const Environment mpich{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
  Environment srun = mpich;  // --mpi=pmi2
  srun.insert({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}});
  for (const auto& [environment, name] : {std::pair(torchrun, "torchrun"),
                                          {of_a_pod, ""},
                                          {alone, ""},
                                          {mpich, "mpiexec of MPICH or Intel MPI"},
                                          {srun, ""}}) {
    EXPECT_EQ(other_launcher_in([&environment = environment](const char* key) {
                const auto found = environment.find(key);
                return found == environment.end() ? nullptr : found->second;
              }),
              name);
  }
}

}  // namespace
}  // namespace ms::slurm
