// Fabric files: every key arrives, and all problems are reported at once.
#include "clos/fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace ms::clos {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kWhole = R"([host]
ranks = 16
nics = 4
ports = 2
port_rate = 200
[leaf]
hosts = 64
rails = false
uplinks = 24
uplink_rate = 800
[spine]
switches = 12
[roce]
queue_pairs = 4
pxn = false
[ecmp]
hash = "crc16"
fields = ["src_ip", "dst_ip"]
seed = 7
same_seed = true
)";

std::string refusal(std::string_view text) {
  try {
    load_fabric_text(text, "f.toml", {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "config.invalid");
    EXPECT_EQ(error.blame(), Blame::user);
    return error.message();
  }
  return "accepted";
}

TEST(FabricFiles, EveryKeyArrives) {
  const Fabric fabric = load_fabric_text(kWhole, "f.toml", {});
  EXPECT_EQ(fabric.host, (HostConfig{.ranks = 16, .nics = 4, .ports = 2, .port_gbps = 200}));
  EXPECT_EQ(fabric.leaf, (LeafConfig{.hosts = 64, .rails = false, .uplinks = 24, .uplink_gbps = 800}));
  EXPECT_EQ(fabric.spine.switches, 12);
  EXPECT_EQ(fabric.roce, (RoceConfig{.queue_pairs = 4, .pxn = false}));
  EXPECT_EQ(fabric.ecmp.hash, "crc16");
  EXPECT_THAT(fabric.ecmp.fields, ElementsAre("src_ip", "dst_ip"));
  EXPECT_EQ(fabric.ecmp.seed, 7);
  EXPECT_TRUE(fabric.ecmp.same_seed);
}

TEST(FabricFiles, AnEmptyFileHasTheDefaultsAndAssignmentsWin) {
  EXPECT_EQ(load_fabric_text("", "f.toml", {}), Fabric{});
  EXPECT_EQ(load_fabric_text(kWhole, "f.toml", {"leaf.uplinks=48"}).leaf.uplinks, 48);
}

TEST(FabricFiles, Oversubscription) {
  EXPECT_DOUBLE_EQ(Fabric{}.oversubscription(), 1);
  EXPECT_DOUBLE_EQ(load_fabric_text("", "f", {"leaf.hosts=64"}).oversubscription(), 2);
  EXPECT_DOUBLE_EQ(load_fabric_text("", "f", {"host.ports=2", "host.port_rate=200"}).oversubscription(), 1);
  EXPECT_DOUBLE_EQ(load_fabric_text("", "f", {"leaf.rails=false", "leaf.hosts=4"}).oversubscription(), 1);
}

TEST(FabricFiles, Refusals) {
  EXPECT_THAT(refusal("[host]\nnics = 3\n"), HasSubstr("does not divide the 8 ranks"));
  EXPECT_THAT(refusal("[host]\nranks = 4\nnics = 8\n"), HasSubstr("host.nics"));
  EXPECT_THAT(refusal("[spine]\nswitches = 5\n"), HasSubstr("does not divide the 32 uplinks"));
  EXPECT_THAT(refusal("[ecmp]\nhash = \"md5\"\n"), HasSubstr("ecmp.hash"));
  EXPECT_THAT(refusal("[ecmp]\nfields = [\"ttl\"]\n"), HasSubstr("ecmp.fields"));
  EXPECT_THAT(refusal("[ecmp]\nfields = []\n"), HasSubstr("at least one field"));
  EXPECT_THAT(refusal("[leaf]\nuplink = 3\n"), HasSubstr("did you mean 'leaf.uplinks'"));
  EXPECT_THAT(refusal("[leaf]\nuplinks = 0\n"), HasSubstr("leaf.uplinks"));
  const std::string both = refusal("[host]\nnics = 3\n[spine]\nswitches = 5\n");
  EXPECT_THAT(both, HasSubstr("host.nics"));
  EXPECT_THAT(both, HasSubstr("spine.switches"));
}

}  // namespace
}  // namespace ms::clos
