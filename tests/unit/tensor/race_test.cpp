// The race check is pure: clocks and addresses. Each test is a short history that must pass or must be refused.
#include "tensor/race.h"

#include <gtest/gtest.h>

namespace ms::tensor {
namespace {

Tensor at(std::uintptr_t address, std::int64_t count) {
  return {reinterpret_cast<std::byte*>(address), 1, count, count, DType::f32};
}

class Race : public testing::Test {
 protected:
  void SetUp() override { races.enable(true); }
  RaceChecker races;
  Tensor x = at(0x1000, 64);
};

TEST_F(Race, OneStreamNeedsNoEvents) {
  races.access(0, Access::write, x, "a");
  races.access(0, Access::read, x, "b");
  races.access(0, Access::write, x, "c");
}

TEST_F(Race, AcceptsConcurrentReads) {
  races.access(0, Access::read, x, "a");
  races.access(1, Access::read, x, "b");
}

TEST_F(Race, RefusesUnorderedReadAfterWrite) {
  races.access(0, Access::write, x, "writer");
  EXPECT_DEATH(races.access(1, Access::read, x, "reader"), "race: reader reads bytes that writer");
}

TEST_F(Race, RefusesUnorderedWriteAfterRead) {
  races.access(0, Access::read, x, "reader");
  EXPECT_DEATH(races.access(1, Access::write, x, "writer"), "race: writer writes bytes that reader");
}

TEST_F(Race, AcceptsAccessesOrderedByAnEvent) {
  races.access(0, Access::write, x, "a");
  races.wait(1, races.record(0));
  races.access(1, Access::write, x, "b");
}

TEST_F(Race, RefusesAnEventRecordedTooEarly) {
  const StreamClock early = races.record(0);
  races.access(0, Access::write, x, "a");
  races.wait(1, early);
  EXPECT_DEATH(races.access(1, Access::read, x, "b"), "race");
}

TEST_F(Race, OrderIsTransitive) {
  races.access(0, Access::write, x, "a");
  races.wait(1, races.record(0));
  races.wait(2, races.record(1));
  races.access(2, Access::write, x, "b");
}

TEST_F(Race, OrderAgainstTheNewestReaderIsNotEnough) {
  races.access(0, Access::read, x, "old");
  races.access(1, Access::read, x, "new");
  races.wait(2, races.record(1));
  EXPECT_DEATH(races.access(2, Access::write, x, "w"), "old");
}

TEST_F(Race, PartsOfABufferAreIndependent) {
  races.access(0, Access::write, at(0x1000, 32), "left");
  races.access(1, Access::write, at(0x1000 + 128, 32), "right");
  races.wait(0, races.record(1));
  races.access(0, Access::read, x, "both");
  EXPECT_DEATH(races.access(1, Access::write, at(0x1000 + 64, 32), "across"), "race");
}

TEST_F(Race, ARangeSplitKeepsBothHistories) {
  races.access(0, Access::write, x, "whole");
  races.access(0, Access::write, at(0x1000 + 64, 4), "middle");
  EXPECT_DEATH(races.access(1, Access::read, at(0x1000, 1), "head"), "whole");
  EXPECT_DEATH(races.access(1, Access::read, at(0x1000 + 128, 1), "tail"), "whole");
}

TEST_F(Race, TheHostOrdersWhatItIssuesAfterSynchronizing) {
  races.access(0, Access::write, x, "a");
  races.host_sync(races.record(0));
  races.access(1, Access::write, x, "b");
}

TEST_F(Race, OffMeansOff) {
  races.enable(false);
  races.access(0, Access::write, x, "a");
  races.access(1, Access::write, x, "b");
}

}  // namespace
}  // namespace ms::tensor
