// Lists of hosts: what people and MPI write, what Slurm tells a job, and what is refused, with its line.
#include "slurm/hostfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "base/error.h"

namespace ms::slurm {
namespace {

using testing::HasSubstr;
using Pairs = std::vector<std::pair<std::string, int>>;

Pairs pairs(const std::vector<HostSlots>& hosts) {
  Pairs out;
  for (const HostSlots& host : hosts) out.emplace_back(host.name, host.slots);
  return out;
}

TEST(Hostfile, ReadsWhatPeopleAndMpiWrite) {
  struct Row {
    const char* text;
    Pairs hosts;
  };
  const Row rows[] = {
      {"n1", {{"n1", 1}}},
      {"n1\nn2\n", {{"n1", 1}, {"n2", 1}}},
      {"# all\n\n  n1 slots=8   # first\n\tn2\tslots=4\r\n", {{"n1", 8}, {"n2", 4}}},
      {"n[08-10] slots=8\nlogin:2\n", {{"n08", 8}, {"n09", 8}, {"n10", 8}, {"login", 2}}},
      {"n[1-2],x:3", {{"n1", 3}, {"n2", 3}, {"x", 3}}},
      {"gpu-1.example.org slots=4096", {{"gpu-1.example.org", 4096}}},
  };
  for (const Row& row : rows) EXPECT_EQ(pairs(parse_hostfile(row.text, "hosts")), row.hosts) << row.text;
}

TEST(Hostfile, RefusesWithTheLine) {
  struct Row {
    const char* text;
    const char* message;
  };
  const Row rows[] = {
      {"", "hosts names no host"},
      {"# nothing\n", "hosts names no host"},
      {"n1\nn1 slots=2", "hosts:2: host n1 is there twice, first in line 1"},
      {"n[1-3]\n\nn[3-4]:2", "hosts:3: host n3 is there twice, first in line 1"},
      {"n1 slots=0", "hosts:1: '0' is not a number of slots from 1 to 4096"},
      {"n1 slots=4097", "'4097' is not a number"},
      {"n1 slots=-1", "'-1' is not a number"},
      {"n1 slots=", "'' is not a number"},
      {"n1 slots=8x", "'8x' is not a number"},
      {"n1 slots=8 max_slots=9", "'8 max_slots=9' is not a number"},
      {"n1:", "is not a number"},
      {"n1:2 slots=2", "hosts:1: the slots stand there twice"},
      {"n1 cpus=8", "hosts:1: 'cpus=8' is not understood"},
      {"n1 n2", "'n2' is not understood"},
      {"x\nn[1-", "hosts:2: 'n[1-' is no host and no hostlist"},
      {"n1,", "is no host and no hostlist"},
      {"n1;rm", "is no host and no hostlist"},
  };
  for (const Row& row : rows) {
    try {
      parse_hostfile(row.text, "hosts");
      FAIL() << "taken: " << row.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "slurm.hostfile") << row.text;
      EXPECT_EQ(error.blame(), Blame::user);
      EXPECT_THAT(error.message(), HasSubstr(row.message)) << row.text;
    }
  }
}

using Variables = std::map<std::string, std::string>;

Getenv from(const Variables& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(Hostfile, ReadsWhatSlurmTellsAJob) {
  const Variables variables = {{"SLURM_JOB_NODELIST", "node[01-03],x"}, {"SLURM_TASKS_PER_NODE", "2(x3),1"}};
  EXPECT_EQ(pairs(job_hosts(from(variables))), (Pairs{{"node01", 2}, {"node02", 2}, {"node03", 2}, {"x", 1}}));
}

TEST(Hostfile, RefusesWhatIsNoJob) {
  struct Row {
    Variables variables;
    const char* message;
  };
  const Row rows[] = {
      {{}, "SLURM_JOB_NODELIST is not set"},
      {{{"SLURM_JOB_NODELIST", "n1"}}, "SLURM_TASKS_PER_NODE is not set"},
      {{{"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}}, "does not go with the 3 nodes"},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", "2(x"}}, "does not go with"},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", "2(x999999999)"}}, "does not go with"},
      {{{"SLURM_JOB_NODELIST", ""}, {"SLURM_TASKS_PER_NODE", ""}}, "does not go with the 0 nodes"},
      {{{"SLURM_JOB_NODELIST", "n["}, {"SLURM_TASKS_PER_NODE", "1"}}, "n["},
  };
  for (const Row& row : rows) {
    try {
      job_hosts(from(row.variables));
      FAIL() << "taken: " << row.message;
    } catch (const Error& error) { EXPECT_THAT(error.message(), HasSubstr(row.message)); }
  }
}

}  // namespace
}  // namespace ms::slurm
