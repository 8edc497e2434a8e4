// What the standard library throws, as an error: who is to blame, and what to do.
#include "base/unexpected.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <system_error>

namespace ms {
namespace {

TEST(Unexpected, IsABugUnlessTheSystemRefused) {
  const std::system_error threads(std::make_error_code(std::errc::resource_unavailable_try_again));
  const std::system_error other(std::make_error_code(std::errc::operation_not_permitted));
  const std::bad_alloc memory;
  const std::out_of_range range("vector::at");
  struct Case {
    const std::exception& thrown;
    const char* kind;
    Blame blame;
    const char* message;
  };
  for (const Case& c :
       {Case{threads, "system.threads", Blame::user, "cannot start another thread: Resource"},
        Case{memory, "system.memory", Blame::user, "out of memory"},
        Case{other, "x.bug", Blame::bug, "Operation not permitted"}, Case{range, "x.bug", Blame::bug, "vector::at"}}) {
    const Error error = error_of(c.thrown, "x.bug");
    EXPECT_EQ(error.kind(), c.kind);
    EXPECT_EQ(error.blame(), c.blame) << c.kind;
    EXPECT_THAT(error.message(), testing::HasSubstr(c.message));
    EXPECT_EQ(error.hint().empty(), c.blame == Blame::bug) << c.kind;
  }
}

}  // namespace
}  // namespace ms
