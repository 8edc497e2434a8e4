// The node's files under a fake root: bounds, numbers, links, and that no name leads out of it.
#include "base/sysroot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "fake_root.h"

namespace ms {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Sysroot, PathsLieUnderTheRoot) {
  EXPECT_EQ(Sysroot("/").path("/sys/x"), "/sys/x");
  EXPECT_EQ(Sysroot("").path("/sys/x"), "/sys/x");
  EXPECT_EQ(Sysroot("/fake//").path("/sys/x"), "/fake/sys/x");
  EXPECT_TRUE(Sysroot("/").is_real());
  EXPECT_TRUE(Sysroot("//").is_real());
  EXPECT_FALSE(Sysroot("/fake").is_real());
  EXPECT_DEATH(Sysroot("/fake").path("sys/x"), "absolute");
}

TEST(Sysroot, ReadsTextWithoutItsLastLineEnd) {
  FakeRoot fake;
  fake.write("/a", "one\ntwo\n\n");
  fake.write("/empty", "");
  EXPECT_EQ(fake.root().read("/a"), "one\ntwo\n");
  EXPECT_EQ(fake.root().read("/empty"), "");
  EXPECT_EQ(fake.root().read("/none"), std::nullopt);
  EXPECT_EQ(fake.root().read("/"), std::nullopt) << "a directory has no text";
}

TEST(Sysroot, ReadsAtMostWhatIsAskedFor) {
  FakeRoot fake;
  fake.write("/big", std::string(100000, 'x'));
  EXPECT_EQ(fake.root().read("/big")->size(), 100000u);
  EXPECT_EQ(fake.root().read("/big", 5000), std::string(5000, 'x'));
  EXPECT_EQ(fake.root().read("/big", 0), "");
}

TEST(Sysroot, NeverWaitsForAFifo) {
  FakeRoot fake;
  ASSERT_EQ(::mkfifo((fake.directory() + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(fake.root().read("/fifo"), std::nullopt);
  EXPECT_TRUE(fake.root().exists("/fifo"));
}

TEST(Sysroot, ReadsNumbers) {
  struct Row {
    const char* text;
    std::optional<std::int64_t> number;
  };
  const Row rows[] = {
      {"16\n", 16},
      {" 16 \n", 16},
      {"-3", -3},
      {"0x10de\n", 0x10de},
      {"0x030200", 0x030200},
      {"9223372036854775807", 9223372036854775807},
      {"9223372036854775808", std::nullopt},
      {"", std::nullopt},
      {"0x", std::nullopt},
      {"0x-5", std::nullopt},
      {"8.0 GT/s PCIe", std::nullopt},
      {"Unknown", std::nullopt},
      {"1 2", std::nullopt},
      {"+1", std::nullopt},
  };
  for (const Row& row : rows) {
    FakeRoot fake;
    fake.write("/n", row.text);
    EXPECT_EQ(fake.root().read_int("/n"), row.number) << row.text;
  }
  EXPECT_EQ(FakeRoot().root().read_int("/n"), std::nullopt);
}

TEST(Sysroot, ListsSorted) {
  FakeRoot fake;
  fake.write("/d/b", "");
  fake.write("/d/a/x", "");
  fake.write("/d/.hidden", "");
  EXPECT_THAT(fake.root().list("/d"), ElementsAre(".hidden", "a", "b"));
  EXPECT_THAT(fake.root().list("/none"), IsEmpty());
  EXPECT_THAT(fake.root().list("/d/b"), IsEmpty()) << "a file";
}

TEST(Sysroot, NamesWhatALinkLeadsTo) {
  FakeRoot fake;
  fake.write("/sys/devices/0000:17:00.0/vendor", "0x10de");
  fake.link("/sys/class/net/eth0/device", "../../../devices/0000:17:00.0");
  fake.link("/sys/gone", "../nowhere/at-all");
  EXPECT_EQ(fake.root().link_name("/sys/class/net/eth0/device"), "0000:17:00.0");
  EXPECT_EQ(fake.root().read("/sys/class/net/eth0/device/vendor"), "0x10de");
  EXPECT_EQ(fake.root().link_name("/sys/gone"), "at-all") << "sysfs may race with us";
  EXPECT_EQ(fake.root().link_name("/sys/devices"), "");
  EXPECT_EQ(fake.root().link_name("/none"), "");
}

TEST(Sysroot, NoNameLeadsOutOfTheRoot) {
  FakeRoot fake;
  FakeRoot other;
  other.write("/secret", "42");
  fake.write("/in", "1");
  const std::string beside = other.directory().substr(other.directory().rfind('/') + 1);
  fake.link("/absolute", other.directory() + "/secret");
  fake.link("/relative", "../" + beside + "/secret");
  fake.link("/directory", other.directory());
  for (const std::string name : {"/absolute", "/relative", "/directory/secret"}) {
    EXPECT_EQ(fake.root().read(name), std::nullopt) << name;
    EXPECT_EQ(fake.root().read_int(name), std::nullopt) << name;
    EXPECT_FALSE(fake.root().exists(name)) << name;
  }
  EXPECT_EQ(fake.root().read("/../" + beside + "/secret"), std::nullopt);
  EXPECT_THAT(fake.root().list("/directory"), IsEmpty());
  EXPECT_EQ(fake.root().link_name("/directory/secret"), "");
  EXPECT_TRUE(fake.root().exists("/in"));
}

TEST(Sysroot, ARootThatIsALinkIsFine) {
  FakeRoot fake;
  fake.write("/real/a", "1");
  fake.link("/root", "real");
  EXPECT_EQ(Sysroot(fake.directory() + "/root").read("/a"), "1");
  EXPECT_FALSE(Sysroot(fake.directory() + "/none").exists("/a"));
}

}  // namespace
}  // namespace ms
