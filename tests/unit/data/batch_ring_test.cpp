// The order of a run's batches, and the ring that they go through: slots, readers, who may open it.
#include "data/batch_ring.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "support/errors.h"

namespace ms::data {
namespace {

using namespace std::chrono_literals;
using test::thrown_by;

std::string names_of(const BatchOrder& order) {
  std::string names;
  for (std::optional<BatchId> id = order.first(); id; id = order.after(*id)) {
    names += id->round ? fmt::format("{}v{} ", id->step, *id->round) : fmt::format("{} ", id->step);
  }
  return names;
}

TEST(BatchOrder, ValidatesAfterSomeStepsAndTheLast) {
  EXPECT_EQ(names_of({.begin = 0, .end = 5, .validate_every = 2, .rounds = 2}), "0 1 1v0 1v1 2 3 3v0 3v1 4 4v0 4v1 ");
  EXPECT_EQ(names_of({.begin = 3, .end = 5, .validate_every = 4, .rounds = 1}), "3 3v0 4 4v0 ");
  EXPECT_EQ(names_of({.begin = 1, .end = 4}), "1 2 3 ");
  EXPECT_EQ(names_of({.begin = 4, .end = 4, .validate_every = 1, .rounds = 1}), "");
}

constexpr RingShape kShape{.readers = 3, .parts = 2, .rows = 3, .seq = 5, .has_starts = true};

TEST(BatchRing, CarriesBatchesToWhoeverHasItsAddress) {
  BatchRing ring(kShape);
  const BatchRing other(kShape, ring.address());
  for (std::uint64_t batch = 0; batch < 5; ++batch) {
    ASSERT_TRUE(ring.wait_free(batch, 0ms));
    ASSERT_FALSE(other.wait_published(batch, 0ms));
    for (int part = 0; part < kShape.parts; ++part) {
      const BatchRing::Part to = ring.part(batch, part);
      std::ranges::fill(to.rows, 100 * part + static_cast<int>(batch));
      std::ranges::fill(to.starts, -3);
    }
    ring.label(batch) = {.id = {.step = 40, .round = 2}, .rows = 3, .digest = batch};
    ring.publish(batch);
    ASSERT_TRUE(other.wait_published(batch, 0ms));
    EXPECT_EQ(other.published(), batch + 1);
    EXPECT_THAT(other.part(batch, 0).rows, testing::Each(static_cast<int>(batch)));
    EXPECT_THAT(other.part(batch, 1).rows,
                testing::AllOf(testing::SizeIs(18), testing::Each(100 + static_cast<int>(batch))));
    EXPECT_THAT(other.part(batch, 0).starts, testing::AllOf(testing::SizeIs(15), testing::Each(-3)));
    EXPECT_EQ(other.label(batch).id, (BatchId{.step = 40, .round = 2}));
    EXPECT_EQ(other.label(batch).digest, batch);
    for (int reader = 0; reader < kShape.readers; ++reader) ring.release(reader, batch);
  }
}

TEST(BatchRing, KeepsASlotUntilTheLastReaderHasReleasedIt) {
  BatchRing ring(kShape);
  for (const std::uint64_t batch : {0, 1}) ring.publish(batch);
  for (const std::uint64_t batch : {0, 1}) ring.release(0, batch);
  ring.release(2, 0);
  EXPECT_FALSE(ring.wait_free(2, 1ms)) << "reader 1 reads batch 0";
  std::jthread last([&] { ring.release(1, 0); });
  EXPECT_TRUE(ring.wait_free(2, 60s));
  EXPECT_FALSE(ring.wait_free(3, 1ms)) << "readers 1 and 2 read batch 1";
}

TEST(BatchRing, HasAPrivateMemoryOfOneSize) {
  const BatchRing ring(kShape);
  const std::vector<std::string> words = split(ring.address(), ' ');
  const std::string path = "/proc/" + words[0] + "/fd/" + words[1];
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_NE(truncate(path.c_str(), 0), 0) << "a reader would get a SIGBUS";
}

TEST(BatchRing, RefusesWhatIsNotTheRing) {
  const BatchRing ring(kShape);
  const std::vector<std::string> words = split(ring.address(), ' ');
  const std::string pid = words[0], fd = words[1];
  RingShape wide = kShape;
  wide.seq = 6;
  struct Row {
    RingShape shape;
    std::string address, message;
  };
  for (const Row& row :
       {Row{kShape, pid + " " + fd + " 0123456789abcdef", "is not the memory"},
        Row{wide, ring.address(), "is not the memory"}, Row{kShape, pid + " 0 " + words[2], ""},  // another file
        Row{kShape, "999999999 3 " + words[2], "No such file"},
        Row{kShape, pid + " 99999 " + words[2], "cannot open /proc/"}}) {
    const Error error = thrown_by([&] { BatchRing(row.shape, row.address); });
    EXPECT_EQ(error.kind(), "data.ring") << row.address;
    EXPECT_THAT(error.message(), testing::HasSubstr(row.message));
  }
  RingShape huge = kShape;
  huge.rows = std::int64_t{1} << 50;
  const Error error = thrown_by([&] { BatchRing{huge}; });
  EXPECT_EQ(error.kind(), "data.ring");
  EXPECT_THAT(error.message(), testing::HasSubstr("are free"));
  EXPECT_EQ(exit_code(error.blame()), ExitCode::node_fault);
}

}  // namespace
}  // namespace ms::data
