// Whom the first cause of a stop accuses, on the rank where it came up and on the others.
#include "comm/first_cause.h"

#include <gtest/gtest.h>

namespace ms::comm {
namespace {

TEST(FirstCause, WhoNoticesThatPeersAreLateIsNotAccused) {
  const Error late("comm.deadline", Blame::peer, "late"), broken("fault.node", Blame::node, "broken");
  struct CauseRow {
    Error error;
    std::optional<int> accused;
  };
  for (const CauseRow& row :
       {CauseRow{late, std::nullopt}, {late.with_rank(2), 2}, {broken, 1}, {broken.with_rank(3), 3}}) {
    FirstCause cause;
    EXPECT_TRUE(cause.set(1, row.error));
    EXPECT_FALSE(cause.set(0, broken.with_rank(0)));
    EXPECT_EQ(cause.get()->accused(), row.accused);
    EXPECT_EQ(cause.error_for(0).rank(), row.accused);
    EXPECT_EQ(cause.error_for(0).kind(), "comm.peer_lost");
    EXPECT_EQ(cause.error_for(1).kind(), row.error.kind());
    EXPECT_EQ(cause.error_for(1).rank(), row.error.rank());
  }
}

}  // namespace
}  // namespace ms::comm
