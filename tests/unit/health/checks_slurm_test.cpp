// slurm.gres.
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "fake_node.h"

namespace ms::health {
namespace {

using ::testing::HasSubstr;

class SlurmGres : public FakeNode {
 protected:
  SlurmGres() {
    put("/proc/sys/kernel/hostname", "node03.cluster");
    policy.paths.gres_conf = "/etc/slurm/gres.conf";
    for (int i = 0; i < 4; ++i) put("/dev/nvidia" + std::to_string(i), "");
  }
  Result with(const std::string& text) {
    put(policy.paths.gres_conf, text);
    return run("slurm.gres");
  }
};

TEST_F(SlurmGres, JudgesDevices) {
  const std::pair<std::string, Outcome> rows[] = {
      {"Name=gpu Type=h100 File=/dev/nvidia[0-3]", Outcome::pass},
      {"Name=gpu Type=h100 File=/dev/nvidia[0-3] Count=4", Outcome::pass},
      {"Name=gpu Type=h100 File=/dev/nvidia[0-4]", Outcome::critical},
      {"Name=gpu Type=h100 File=/dev/nvidia[0-3] Count=8", Outcome::critical},
      {"NodeName=node[01-04] Name=gpu File=/dev/nvidia[0-4]", Outcome::critical},
      {"NodeName=node[05-08] Name=gpu File=/dev/nvidia[0-4]\nName=gpu File=/dev/nvidia0", Outcome::pass},
      {"NodeName=node[05-08] Name=gpu File=/dev/nvidia[0-4]", Outcome::skip},
      {"Name=nic File=/dev/infiniband/uverbs0", Outcome::critical},
      {"AutoDetect=nvml", Outcome::skip},
      {"Name=mps Count=100", Outcome::skip},
      {"# Name=gpu File=/dev/nvidia9", Outcome::skip},
  };
  for (const auto& [text, outcome] : rows) EXPECT_OUTCOME(with(text), outcome) << text;
}

TEST_F(SlurmGres, NamesWhatIsMissing) {
  const Result result = with("Name=gpu Type=h100 File=/dev/nvidia[2-5]");
  ASSERT_EQ(result.findings.size(), 2U);
  EXPECT_EQ(result.findings[0].entity, "/dev/nvidia4");
  EXPECT_THAT(result.findings[0].message, HasSubstr("gpu:h100"));
  const Finding count = with("Name=gpu Type=h100 File=/dev/nvidia[0-3] Count=8").findings.at(0);
  EXPECT_EQ(count.measured, 4.0);
  EXPECT_EQ(count.limit, 8.0);
}

TEST_F(SlurmGres, OnTheRealRootOnlyDevicesCount) {
  const std::string conf = path("/gres.conf");
  policy.paths.sysroot = "/";
  policy.paths.gres_conf = conf;
  std::ofstream(conf) << "Name=gpu File=/dev/null\n";
  EXPECT_OUTCOME(run("slurm.gres"), Outcome::pass);
  std::ofstream(conf) << "Name=gpu File=" << conf << "\n";  // a regular file is no device
  EXPECT_OUTCOME(run("slurm.gres"), Outcome::critical);
}

TEST_F(SlurmGres, SkipsWithoutGresConf) { EXPECT_OUTCOME(run("slurm.gres"), Outcome::skip); }

}  // namespace
}  // namespace ms::health
