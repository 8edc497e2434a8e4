// The policy's file: what it may say, and what is refused.
#include "loan/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "loan/schedulers.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::loan {
namespace {

using test::TempDir;
using test::thrown_by;

using testing::HasSubstr;

TEST(LoanPolicy, KeysHaveUnitsAndPathsAreThoseOfTheFile) {
  const TempDir dir;
  write_file_atomic(dir / "p.toml", "loan.grace = '2m'\nloan.poll = '15s'\njobs.curves = ['a.csv', '/b.csv']\n");
  const Policy policy = load_policy(dir / "p.toml");
  EXPECT_DOUBLE_EQ(policy.loan.return_s(), 105);
  EXPECT_EQ(policy.jobs.curves[0], dir / "a.csv");
  EXPECT_EQ(policy.jobs.curves[1], "/b.csv");
  EXPECT_FALSE(policy.demand.scaled());
}

TEST(LoanPolicy, RefusesEveryProblemAtOnce) {
  const TempDir dir;
  write_file_atomic(dir / "p.toml",
                    "loan.grace = '5s'\nloan.reserve_quantile = 2\nloan.pol = 3\ncluster.train_nodes = 'x'\n"
                    "demand.low_percent = 50\n");
  const Error error = thrown_by([&] { load_policy(dir / "p.toml"); });
  EXPECT_EQ(error.blame(), Blame::user);
  for (const char* words : {"loan.reserve_quantile", "did you mean 'loan.poll'", "cluster.train_nodes",
                            "low_percent and high_percent come together"}) {
    EXPECT_THAT(error.message(), HasSubstr(words));
  }
  write_file_atomic(dir / "q.toml", "loan.grace = '5s'\n");
  EXPECT_THAT(thrown_by([&] { load_policy(dir / "q.toml"); }).message(), HasSubstr("at least loan.poll"));
}

TEST(LoanPolicy, SchedulersHaveNamesOfTheirOwn) {
  for (const Scheduler& row : schedulers()) EXPECT_EQ(find_scheduler(row.name), &row);
  EXPECT_EQ(find_scheduler("lifo"), nullptr);
}

}  // namespace
}  // namespace ms::loan
