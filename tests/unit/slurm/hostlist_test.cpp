// Hostlists: what Slurm 22.05's own "scontrol show hostnames" and "show hostlist" make of the same texts.
#include "slurm/hostlist.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ms::slurm {
namespace {

using Hosts = std::vector<std::string>;

TEST(Hostlist, ExpandsWhatSlurmWrites) {
  struct Row {
    std::string text;
    Hosts hosts;
  };
  const std::vector<Row> rows = {
      {"", {}},
      {"node01", {"node01"}},
      {"login,node[01-03,07]", {"login", "node01", "node02", "node03", "node07"}},
      {"node[01-02]-ib", {"node01-ib", "node02-ib"}},
      {"r[1-2]n[1-2]", {"r1n1", "r1n2", "r2n1", "r2n2"}},
      {"a[1-2]b[3]", {"a1b3", "a2b3"}},
      {"[1-2]", {"1", "2"}},
      {"a[001-3]", {"a001", "a002", "a003"}},
      {"a[9-011]", {"a9", "a10", "a11"}},
      {"a[08-10]", {"a08", "a09", "a10"}},
      {"a[1,01]", {"a1", "a01"}},
      {"b,a,b", {"b", "a", "b"}},
      {"gpu-1.rack_2.example", {"gpu-1.rack_2.example"}},
  };
  for (const Row& row : rows) EXPECT_EQ(expand_hostlist(row.text), row.hosts) << row.text;
}

TEST(Hostlist, RefusesWhatIsNoHostlist) {
  const std::vector<std::string> texts = {",",
                                          "a,",
                                          ",a",
                                          "a,,b",
                                          "a b",
                                          "a[",
                                          "a]",
                                          "a[]",
                                          "a[1",
                                          "a[1-",
                                          "a[1-]",
                                          "a[-1]",
                                          "a[1,]",
                                          "a[1-2-3]",
                                          "a[3-1]",
                                          "a[[1]]",
                                          "a[1]]",
                                          "a[x]",
                                          "a[1 2]",
                                          "a;b",
                                          "$(reboot)",
                                          "a\nb",
                                          "a[1]\n",
                                          "(null)",
                                          "a[0x1]",
                                          "a[+1]",
                                          "a[1-65537]",
                                          "a[1-300]b[1-300]",
                                          "a[1-40000],b[1-40000]",
                                          "a[0-99999999999999999999]",
                                          "a[1-1000000000000000000]",
                                          "a[18446744073709551615]",
                                          std::string(254, 'a'),
                                          std::string(250, 'a') + "[1000-1001]",
                                          "a[1-60000]" + std::string(100'000, 'a')};  // 6 GB, if it were built
  for (const std::string& text : texts) {
    EXPECT_EQ(expand_hostlist(text), std::nullopt) << text;
    EXPECT_THROW(expand_hostlist_or_throw(text), Error) << text;
  }
}

TEST(Hostlist, TheLargestListIsReadAndOneMoreIsNot) {
  const auto most = expand_hostlist("a[1-65535],b");
  ASSERT_TRUE(most.has_value());
  EXPECT_EQ(most->size(), kMaxHosts);
  EXPECT_EQ(most->front(), "a1");
  EXPECT_EQ(most->at(kMaxHosts - 2), "a65535");
  EXPECT_FALSE(expand_hostlist("a[1-65536],b"));
}

TEST(Hostlist, TheErrorShowsTheText) {
  try {
    expand_hostlist_or_throw("node[1");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "slurm.hostlist");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_EQ(error.message(), "'node[1' is not a list of hosts");
  }
}

TEST(Hostlist, FoldsSortedWithoutDuplicates) {
  struct Row {
    Hosts hosts;
    std::string text;
  };
  const std::vector<Row> rows = {
      {{}, ""},
      {{"n2", "n1", "n3", "x"}, "n[1-3],x"},
      {{"n1", "n1"}, "n1"},
      {{"n1", "n3"}, "n[1,3]"},
      {{"n8", "n9", "n10", "n11"}, "n[8-11]"},
      {{"n08", "n09", "n10", "n100"}, "n[08-10,100]"},
      {{"n9", "n09", "n10"}, "n[09,9-10]"},
      {{"n1-ib", "n2-ib"}, "n1-ib,n2-ib"},
      {{"r2n1", "r1n1", "r1n2"}, "r1n[1-2],r2n1"},
      {{"7", "8"}, "[7-8]"},
      {{"login"}, "login"},
      {{"a0", "a1"}, "a[0-1]"},
  };
  for (const Row& row : rows) EXPECT_EQ(fold_hostlist(row.hosts), row.text) << row.text;
}

TEST(Hostlist, FoldingAndExpandingGivesTheSameHosts) {
  const std::vector<std::string> lists = {"n[1-3],x",           "n[08-10,100]",     "a[1,01,001]",
                                          "r[1-3]n[01-12]",     "m[99-101],m[0-9]", "k99999999999999999999999,k1",
                                          "p999999999999999999"};
  for (const std::string& list : lists) {
    auto hosts = expand_hostlist_or_throw(list);
    auto again = expand_hostlist_or_throw(fold_hostlist(hosts));
    std::sort(hosts.begin(), hosts.end());
    std::sort(again.begin(), again.end());
    EXPECT_EQ(again, hosts) << list;
  }
}

TEST(Hostlist, HostNames) {
  for (const char* name : {"a", "node01", "n-1.x_y", "7"}) EXPECT_TRUE(is_host_name(name)) << name;
  EXPECT_TRUE(is_host_name(std::string(253, 'a')));
  for (const char* name : {"", "a b", "a,b", "a[1]", "a/b", "a=b", "a\n", "a;", "\x80"}) {
    EXPECT_FALSE(is_host_name(name)) << name;
  }
  EXPECT_FALSE(is_host_name(std::string(254, 'a')));
}

}  // namespace
}  // namespace ms::slurm
