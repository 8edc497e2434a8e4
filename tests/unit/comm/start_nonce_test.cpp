#include "comm/start_nonce.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

namespace ms::comm {
namespace {

using Environment = std::map<std::string, const char*>;

std::string nonce_in(const Environment& environment) {
  return start_nonce([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second;
  });
}

TEST(StartNonce, IsThatOfAllProcessesOfAStart) {
  const Environment srun{{"SLURM_STEP_NUM_TASKS", "8"},
                         {"SLURM_PROCID", "0"},
                         {"PMIX_NAMESPACE", "slurm.pmix.7.0"},
                         {"SLURM_JOB_ID", "7"},
                         {"SLURM_STEP_ID", "0"}};
  const Environment mpirun{
      {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_NAMESPACE", "16408"}, {"SLURM_JOB_ID", "7"}};
  const auto with = [](Environment environment, const char* name, const char* value) {
    environment[name] = value;
    return environment;
  };
  for (const auto& [what, base, other, same] :
       {std::tuple{"another rank", srun, with(srun, "SLURM_PROCID", "5"), true},
        {"another node", srun, with(srun, "SLURM_NODEID", "1"), true},
        {"requeued", srun, with(srun, "SLURM_RESTART_COUNT", "1"), false},
        {"another step", srun, with(srun, "SLURM_STEP_ID", "1"), false},
        {"another job", srun, with(srun, "SLURM_JOB_ID", "8"), false},
        {"mpirun on another node", mpirun, with(mpirun, "SLURM_STEP_ID", "3"), true},
        {"another mpirun", mpirun, with(mpirun, "PMIX_NAMESPACE", "16409"), false}}) {
    EXPECT_EQ(nonce_in(base) == nonce_in(other), same) << what;
  }
  EXPECT_EQ(nonce_in({}), nonce_in({}));
}

}  // namespace
}  // namespace ms::comm
