// The simulated duration of operations.
#include "comm/link.h"

#include <gtest/gtest.h>

namespace ms::comm {
namespace {

struct LinkRow {
  const char* name;
  OpKind kind;
  std::int64_t size_bytes;
  int members;
  double sent_bytes;
};
class Links : public ::testing::TestWithParam<LinkRow> {};

TEST_P(Links, BytesOfOneMember) {
  const LinkRow& row = GetParam();
  EXPECT_DOUBLE_EQ(bytes_sent(row.kind, row.size_bytes, row.members), row.sent_bytes);
  const Link link{.latency_s = 0.25, .bytes_per_s = 1000};
  const double seconds =
      std::chrono::duration<double>(travel_time(link, row.kind, row.size_bytes, row.members)).count();
  EXPECT_NEAR(seconds, 0.25 + row.sent_bytes / 1000, 1e-8);
}

INSTANTIATE_TEST_SUITE_P(All, Links,
                         ::testing::Values(LinkRow{"all_reduce", OpKind::all_reduce, 4000, 4, 6000},
                                           LinkRow{"reduce_scatter", OpKind::reduce_scatter, 4000, 4, 3000},
                                           LinkRow{"all_gather", OpKind::all_gather, 4000, 8, 3500},
                                           LinkRow{"all_to_all", OpKind::all_to_all, 4000, 8, 3500},
                                           LinkRow{"broadcast", OpKind::broadcast, 4000, 8, 4000},
                                           LinkRow{"send", OpKind::send, 123, 2, 123},
                                           LinkRow{"recv", OpKind::recv, 123, 2, 123},
                                           LinkRow{"barrier", OpKind::barrier, 0, 8, 0}),
                         [](const auto& row) { return row.param.name; });

TEST(LinkSettings, NoRateIsNoLimit) {
  EXPECT_FALSE(Link{}.delays());
  EXPECT_EQ(travel_time({}, OpKind::send, 1 << 30, 2).count(), 0);
  const Link latency{.latency_s = 1e-3, .bytes_per_s = 0};
  EXPECT_TRUE(latency.delays());
  EXPECT_EQ(travel_time(latency, OpKind::send, 1 << 30, 2), std::chrono::milliseconds(1));
  EXPECT_TRUE((Link{.latency_s = 0, .bytes_per_s = 1}.delays()));
}

}  // namespace
}  // namespace ms::comm
