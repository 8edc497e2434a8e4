// What the tests after a remedy say of a node.
#include <gtest/gtest.h>

#include "fake_world.h"
#include "health/repair/plan.h"
#include "health/repair/repair.h"

namespace ms::health {
namespace {

Report report_of(std::vector<Result> results) { return {.node = "n", .results = std::move(results)}; }
Result found(const std::string& code, Severity severity, Blame blame) {
  Finding finding = critical(code, "x");
  finding.severity = severity;
  finding.blame = blame;
  Result result = judged({finding});
  result.code = code;
  return result;
}
Result well(const std::string& code) {
  Result result = passed();
  result.code = code;
  return result;
}

TEST(Repair, TheVerdictOfTheTests) {
  const std::string reason = "ms-diag:gpu.ecc gpu 3: 4 errors";
  const auto of = [&](std::vector<Result> results) { return verdict(report_of(std::move(results)), reason).outcome; };
  EXPECT_EQ(of({well("gpu.ecc")}), Outcome3::good);
  EXPECT_EQ(of({well("gpu.ecc"), found("host.swap", Severity::warning, Blame::node)}), Outcome3::good);
  EXPECT_EQ(of({found("gpu.ecc", Severity::critical, Blame::gpu)}), Outcome3::bad);
  EXPECT_EQ(of({well("gpu.ecc"), found("perf.gemm", Severity::critical, Blame::node)}), Outcome3::bad);
  EXPECT_EQ(of({well("gpu.ecc"), found("host.space", Severity::critical, Blame::node)}), Outcome3::good);  // a user's
  EXPECT_EQ(of({well("gpu.ecc"), found("disk.nfs", Severity::critical, Blame::storage)}), Outcome3::good);
  EXPECT_EQ(of({well("gpu.ecc"), found("perf.nic", Severity::critical, Blame::fabric)}), Outcome3::unknown);
  EXPECT_EQ(of({well("gpu.xid")}), Outcome3::unknown);  // what it was drained for was not looked at
  Result skip = skipped("no NVML");
  skip.code = "gpu.ecc";
  EXPECT_EQ(of({skip}), Outcome3::unknown);
  Result ssh = broken("no route");
  ssh.code = "ssh";
  EXPECT_EQ(of({ssh}), Outcome3::unknown);
}

}  // namespace
}  // namespace ms::health
