// What the standard library throws, as an error: who is to blame, and what to do.
#include "base/unexpected.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace ms {
namespace {

TEST(Unexpected, IsABugUnlessTheSystemRefused) {
  const std::system_error threads(std::make_error_code(std::errc::resource_unavailable_try_again));
  const std::system_error other(std::make_error_code(std::errc::operation_not_permitted));
  const std::system_error descriptors(std::make_error_code(std::errc::too_many_files_open));
  const std::filesystem::filesystem_error files("cannot copy", std::make_error_code(std::errc::no_space_on_device));
  const Error ours("x.kind", Blame::gpu, "lost", "look");
  const std::bad_alloc memory;
  const std::out_of_range range("vector::at");
  struct Case {
    const std::exception& thrown;
    const char* kind;
    Blame blame;
    const char* message;
  };
  for (const Case& c : {Case{threads, "system.threads", Blame::user, "cannot start another thread: Resource"},
                        Case{memory, "system.memory", Blame::user, "out of memory"},
                        Case{other, "system.call", Blame::node, "Operation not permitted"},
                        Case{descriptors, "system.call", Blame::user, "Too many open files"},
                        Case{files, "system.files", Blame::storage, "No space left"},
                        Case{ours, "x.kind", Blame::gpu, "lost"}, Case{range, "x.bug", Blame::bug, "vector::at"}}) {
    const Error error = error_of(c.thrown, "x.bug");
    EXPECT_EQ(error.kind(), c.kind);
    EXPECT_EQ(error.blame(), c.blame) << c.kind;
    EXPECT_THAT(error.message(), testing::HasSubstr(c.message));
    EXPECT_EQ(error.hint().empty(), c.blame != Blame::user && c.blame != Blame::gpu) << c.kind;
  }
}

TEST(Unexpected, WhatNobodyCatchesEndsWithTheCodeOfItsCause) {
  const auto thrown_in_a_thread = [](auto thrown) {
    end_on_uncaught("ms-test");
    std::thread([thrown] { throw thrown; }).join();
  };
  EXPECT_EXIT(thrown_in_a_thread(std::bad_alloc()), testing::ExitedWithCode(2), "ms-test: error: out of memory");
  EXPECT_EXIT(thrown_in_a_thread(Error("x", Blame::storage, "gone")), testing::ExitedWithCode(74), "error: gone");
  EXPECT_EXIT(thrown_in_a_thread(std::out_of_range("at")), testing::ExitedWithCode(70), "error: at");
}

}  // namespace
}  // namespace ms
