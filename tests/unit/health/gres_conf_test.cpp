// gres.conf as far as it is read: the lines for this node, brackets, and lines that are left out.
#include "health/evidence/gres_conf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../base/fake_root.h"

namespace ms::health {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(GresConf, LinesForANode) {
  const std::string text =
      "# NodeName=node02 Name=gpu File=/dev/nvidia99\n"
      "AutoDetect=off\n"
      "NodeName=node[01-04] Name=GPU Type=h100 \\\n  File=/dev/nvidia[0-1,3],/dev/nvidia7 Cores=0-15  # comment\n"
      "nodename=node05 name=gpu file=/dev/nvidia9\n"
      "Name=nic\tFile=/dev/mlx0 Count=2\n"
      "NodeName=node[ Name=gpu File=/dev/nvidia9\n"
      "Name=gpu File=/dev/nvidia[0-\n"
      "Name=gpu File=nvidia0\n"
      "Name=gpu Count=-1\n"
      "Name=gpu Count=8x\n"
      "Name=shard Count=8";
  const std::vector<GresLine> lines = parse_gres_conf(text, "node02").lines;
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].name, "gpu");
  EXPECT_EQ(lines[0].type, "h100");
  EXPECT_THAT(lines[0].files, ElementsAre("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia3", "/dev/nvidia7"));
  EXPECT_EQ(lines[0].count, std::nullopt);
  EXPECT_THAT(lines[1].files, ElementsAre("/dev/mlx0"));
  EXPECT_EQ(lines[1].count, 2);
  EXPECT_EQ(lines[2].name, "shard");
  EXPECT_EQ(lines[2].count, std::nullopt) << "of shares";
  EXPECT_THAT(parse_gres_conf("", "node02").lines, IsEmpty());
}

TEST(GresConf, QuotesBlanksAndSuffixes) {
  const std::vector<GresLine> lines = parse_gres_conf(
                                          "Name=\"gpu\" File=\"/dev/nvidia[0-1]\" Count=\"2\"\n"
                                          "Name = gpu File= /dev/nvidia2 Count =1\n"
                                          "Name=bandwidth Count=4G\nName=x Count=2k\nName=gpu Count=9999999P\n",
                                          "node02")
                                          .lines;
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0].files, ElementsAre("/dev/nvidia0", "/dev/nvidia1"));
  EXPECT_EQ(lines[0].count, 2);
  EXPECT_THAT(lines[1].files, ElementsAre("/dev/nvidia2"));
  EXPECT_EQ(lines[1].count, 1);
  EXPECT_EQ(lines[2].count, std::int64_t{4} << 30);
  EXPECT_EQ(lines[3].count, 2048);
}

TEST(GresConf, IncludesAndMultipleFiles) {
  FakeRoot fake;
  fake.write("/etc/slurm/gres.conf",
             "include gpus.conf\nInclude /etc/slurm/absent.conf\nInclude /etc/slurm/gres.conf\n"
             "NodeName=other AutoDetect=nvml\nName=shard File=/dev/nvidia[0-1] Count=8\n");
  fake.write("/etc/slurm/gpus.conf",
             "Name=gpu Type=4g.71gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap30 Count=1\n");
  const auto conf = read_gres_conf(fake.root(), "/etc/slurm/gres.conf", "node02");
  ASSERT_TRUE(conf && conf->lines.size() > 2);
  EXPECT_THAT(conf->lines[0].files, ElementsAre("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap30"));
  EXPECT_EQ(conf->lines[0].count, std::nullopt);
  EXPECT_EQ(conf->lines.back().count, std::nullopt);
  EXPECT_FALSE(conf->autodetect);
  EXPECT_TRUE(read_gres_conf(fake.root(), "/etc/slurm/gres.conf", "other")->autodetect);
  EXPECT_EQ(read_gres_conf(fake.root(), "/etc/slurm/none", "node02"), std::nullopt);
}

TEST(GresConf, TheNodesNameIsShort) {
  FakeRoot fake;
  fake.write("/proc/sys/kernel/hostname", "node02.cluster\n");
  EXPECT_EQ(node_name(fake.root()), "node02");
}

}  // namespace
}  // namespace ms::health
