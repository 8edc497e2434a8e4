// The environment of prologs and epilogs: what is believed of it, and that everything else counts as absent.
#include "slurm/job_env.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace ms::slurm {
namespace {

using Table = std::map<std::string, std::string>;

std::optional<JobEnv> read(const Table& table) {
  return read_job_env([&](const char* name) {
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second.c_str();
  });
}

Table with(const std::string& name, const std::string& value) {
  Table table = {{"SLURM_JOB_ID", "17"}, {"SLURM_JOB_UID", "1000"}, {"SLURMD_NODENAME", "node02"}};
  table[name] = value;
  return table;
}

TEST(JobEnv, ReadsAProlog) {
  const auto job = read({{"SLURM_JOB_ID", "17"},
                         {"SLURM_JOB_UID", "1000"},
                         {"SLURMD_NODENAME", "node01"},
                         {"SLURM_NODELIST", "node[01-04]"},
                         {"SLURM_JOB_RESTART_COUNT", "2"},
                         {"SLURM_JOB_GPUS", "0,2"},
                         {"MS_PREFLIGHT", "require"}});
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->job_id, 17U);
  EXPECT_EQ(job->user_id, 1000U);
  EXPECT_EQ(job->node, "node01");
  EXPECT_EQ(job->nodes, "node[01-04]");
  EXPECT_TRUE(job->is_batch_host());
  EXPECT_EQ(job->restarts, 2);
  EXPECT_EQ(job->gpus, (std::vector<int>{0, 2}));
  EXPECT_EQ(job->exit_status, std::nullopt);
  EXPECT_EQ(job->preflight, Preflight::require);
}

TEST(JobEnv, WithoutAnIdOrANodeThereIsNoJob) {
  for (const char* id : {"", "0", "-1", "x", "17x", " 17", "4294967296", "1e3"}) {
    EXPECT_FALSE(read(with("SLURM_JOB_ID", id))) << id;
  }
  for (const char* node : {"", "a b", "node01,node02", "../x", "$(id)", "node01\n"}) {
    EXPECT_FALSE(read(with("SLURMD_NODENAME", node))) << node;
  }
  EXPECT_FALSE(read({}));
}

TEST(JobEnv, NonsenseCountsAsAbsent) {
  EXPECT_NE(read(with("SLURM_JOB_UID", "root"))->user_id, 0U);
  EXPECT_NE(read(with("SLURM_JOB_UID", "-1"))->user_id, 0U);
  EXPECT_EQ(read(with("SLURM_JOB_NODELIST", "node[1;reboot]"))->nodes, "");
  EXPECT_FALSE(read(with("SLURM_JOB_NODELIST", "node[1;reboot]"))->is_batch_host());
  EXPECT_EQ(read(with("SLURM_JOB_RESTART_COUNT", "-3"))->restarts, 0);
  EXPECT_EQ(read(with("SLURM_JOB_RESTART_COUNT", "9999999999"))->restarts, 0);
  for (const char* gpus : {"", "x", "0,", ",0", "-1", "2-1", "0-", "0;1", "1024", "0-2147483647", "MIG-1/2"}) {
    EXPECT_EQ(read(with("SLURM_JOB_GPUS", gpus))->gpus, std::nullopt) << gpus;
  }
  for (const char* word : {"ON", "on ", "yes", "off;", "require\n", "1"}) {
    EXPECT_EQ(read(with("MS_PREFLIGHT", word))->preflight, Preflight::by_default) << word;
  }
}

TEST(JobEnv, AlternativeNames) {
  Table table = with("SLURM_JOB_NODELIST", "node[02-03]");
  table["SLURM_NODELIST"] = "node09";
  EXPECT_EQ(read(table)->nodes, "node[02-03]");
  EXPECT_TRUE(read(table)->is_batch_host());
  table["SLURM_JOB_NODELIST"] = "not one";
  EXPECT_EQ(read(table)->nodes, "node09");
  EXPECT_FALSE(read(table)->is_batch_host());
  EXPECT_EQ(read(with("SLURM_RESTART_COUNT", "4"))->restarts, 4);
  EXPECT_EQ(read(with("SLURM_JOB_GPUS", "0-2,7"))->gpus, (std::vector<int>{0, 1, 2, 7}));
}

TEST(JobEnv, TheExitStatusIsTheLargest) {
  struct Row {
    const char* code;
    const char* code2;
    const char* derived;
    std::optional<int> status;
  };
  const std::vector<Row> rows = {
      {"0", "0:0", "0", 0},
      {"256", "1:0", "0", 256},
      {"0", "0:0", "17664", 17664},
      {"", "3:9", "", 777},
      {"9", "0:9", "", 9},
      {"", "", "", std::nullopt},
      {"x", "1", "-1", std::nullopt},
      {"", "256:0", "", std::nullopt},
      {"4294967294", "", "0", 0},
  };
  for (const Row& row : rows) {
    Table table = with("SLURM_JOB_EXIT_CODE", row.code);
    table["SLURM_JOB_EXIT_CODE2"] = row.code2;
    table["SLURM_JOB_DERIVED_EC"] = row.derived;
    EXPECT_EQ(read(table)->exit_status, row.status) << row.code << ' ' << row.code2 << ' ' << row.derived;
  }
}

TEST(JobEnv, TheNamesAreWhatIsReadAndNothingElse) {
  std::vector<std::string> asked;
  read_job_env([&](const char* name) -> const char* {
    asked.emplace_back(name);
    if (asked.back() == "SLURM_JOB_ID") return "1";
    return asked.back() == "SLURMD_NODENAME" ? "n" : nullptr;
  });
  std::sort(asked.begin(), asked.end());
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  std::vector<std::string> names = job_env_names();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, asked);
}

TEST(JobEnv, PreflightWords) {
  EXPECT_EQ(parse_preflight(""), Preflight::by_default);
  EXPECT_EQ(parse_preflight("on"), Preflight::on);
  EXPECT_EQ(parse_preflight("off"), Preflight::off);
  EXPECT_EQ(parse_preflight("require"), Preflight::require);
  EXPECT_EQ(parse_preflight("full"), std::nullopt);
  EXPECT_EQ(parse_preflight("On"), std::nullopt);
}

}  // namespace
}  // namespace ms::slurm
