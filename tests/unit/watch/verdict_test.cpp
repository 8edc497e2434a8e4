#include "watch/verdict.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "support/files.h"

namespace ms::watch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class VerdictFile : public ::testing::Test {
 protected:
  fs::path file() const { return fs::path(dir_) / "verdict.json"; }
  json content() const { return json::parse(std::ifstream(file())); }

  bool write(const Verdict& verdict) const { return write_verdict(dir_, kNonce, verdict); }

  static constexpr const char* kNonce = "0123456789abcdef";
  const test::TempDir temporary_;
  const std::string& dir_ = temporary_.path();

  void SetUp() override { begin_start(dir_, kNonce); }
};

Error storage_error() { return Error("file.write", Blame::storage, "cannot write x: disk full", "make room"); }

TEST_F(VerdictFile, OfAFinishedRun) {
  EXPECT_TRUE(write(verdict_done(40)));
  EXPECT_EQ(content(), (json{{"schema", 1}, {"code", 0}, {"step", 40}, {"start", 1}, {"nonce", kNonce}}));
}

TEST_F(VerdictFile, OfAStoppedRunBlamesNobody) {
  EXPECT_TRUE(write(verdict_stopped(40, "SIGTERM", "ck/step-00000040")));
  EXPECT_EQ(content(), (json{{"schema", 1},
                             {"code", 75},
                             {"kind", "run.stopped"},
                             {"message",
                              "stopped on purpose after step 40 (SIGTERM): ck/step-00000040 is committed, and the same "
                              "command resumes from it"},
                             {"step", 40},
                             {"start", 1},
                             {"nonce", kNonce}}));
}

TEST_F(VerdictFile, OfAFailure) {
  EXPECT_TRUE(write(verdict_of(storage_error(), 3, "n12", 17)));
  EXPECT_EQ(content(), (json{{"schema", 1},
                             {"code", 74},
                             {"kind", "file.write"},
                             {"blame", "storage"},
                             {"message", "cannot write x: disk full"},
                             {"rank", 3},
                             {"node", "n12"},
                             {"step", 17},
                             {"start", 1},
                             {"nonce", kNonce}}));
}

TEST_F(VerdictFile, NamesTheOperation) {
  const Error error = Error("comm.deadline", Blame::peer, "rank 5 did not come").with_operation("all_reduce 17 of dp");
  EXPECT_TRUE(write(verdict_of(error, 5, "n12", 0)));
  EXPECT_EQ(content().at("operation"), "all_reduce 17 of dp");
  EXPECT_EQ(content().at("code"), 76);
}

TEST_F(VerdictFile, TheFirstCauseWins) {
  EXPECT_TRUE(write(verdict_of(storage_error(), 3, "n12", 17)));
  EXPECT_FALSE(write(verdict_of(Error("comm.peer", Blame::peer, "rank 3 left"), 0, "n12", 18)));
  EXPECT_FALSE(write(verdict_done(20)));
  EXPECT_EQ(content().at("kind"), "file.write");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 2) << "no temporary file is left";
}

TEST_F(VerdictFile, BelongsToAStart) {
  EXPECT_FALSE(has_verdict(dir_, kNonce));
  EXPECT_TRUE(write(verdict_of(storage_error(), 3, "n12", 17)));
  EXPECT_TRUE(has_verdict(dir_, kNonce));
  EXPECT_FALSE(has_verdict(dir_, "another"));
  begin_start(dir_, "second");
  EXPECT_TRUE(is_start(dir_, "second"));
  EXPECT_FALSE(is_start(dir_, kNonce));
  EXPECT_FALSE(fs::exists(file()));
  // A node of the first start that was cut off reaches the storage again.
  EXPECT_FALSE(write(verdict_of(Error("comm.deadline", Blame::peer, "rank 0 did not come"), 0, "n11", 18)));
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_TRUE(write_verdict(dir_, "second", verdict_done(20)));
  EXPECT_EQ(content(), (json{{"schema", 1}, {"code", 0}, {"step", 20}, {"start", 2}, {"nonce", "second"}}));
}

TEST_F(VerdictFile, OfAnotherStartIsReplaced) {
  EXPECT_TRUE(write(verdict_of(storage_error(), 3, "n12", 17)));
  const std::string late = test::slurp(file());
  begin_start(dir_, "second");
  // The first start had looked before the second began, and writes now.
  for (const std::string& text : {late, std::string("{"), std::string("[]"), std::string(R"({"code": 76})")}) {
    std::ofstream(file()) << text;
    EXPECT_FALSE(has_verdict(dir_, "second"));
    EXPECT_TRUE(write_verdict(dir_, "second", verdict_done(20))) << text;
    EXPECT_EQ(content().at("start"), 2);
    fs::remove(file());
  }
}

// Ranks that come while one of them begins the start wait for it, and write at once then.
TEST_F(VerdictFile, OfAnotherRankOutlivesTheBeginningOfTheStart) {
  for (int i = 0; i < 5; ++i) {
    const std::string nonce = fmt::format("start{}", i);
    // It has something to do.
    for (int old = 0; old < 200; ++old) fs::create_directories(fmt::format("{}/evidence/{}-{}", dir_, i, old));
    auto waiting = std::async(std::launch::async, [&] {
      while (!is_start(dir_, nonce)) {}
      return write_verdict(dir_, nonce, verdict_of(storage_error(), 1, "n12", 0));
    });
    begin_start(dir_, nonce);
    EXPECT_TRUE(waiting.get());
    ASSERT_TRUE(has_verdict(dir_, nonce)) << i;
    EXPECT_FALSE(write_verdict(dir_, nonce, verdict_of(storage_error(), 2, "n13", 0)));
  }
}

TEST_F(VerdictFile, ReplacesInvalidUtf8) {
  const Error error("data.text", Blame::user, "cannot read 'caf\xe9 \xff' \"quoted\"\n");
  EXPECT_TRUE(write(verdict_of(error, 0, "n12", 0)));
  EXPECT_EQ(content().at("message"), "cannot read 'caf\xef\xbf\xbd \xef\xbf\xbd' \"quoted\"\n");
}

TEST_F(VerdictFile, FailureToWriteDoesNotThrow) {
  EXPECT_FALSE(write_verdict(dir_ + "/absent", kNonce, verdict_done(1)));
}

TEST_F(VerdictFile, ClearingFailsIfTheFileCannotBeRemoved) {
  fs::create_directory(file());
  try {
    begin_start(dir_, "second");
    FAIL() << "a directory was removed";
  } catch (const Error& error) {
    EXPECT_EQ(error.blame(), Blame::storage);
    EXPECT_THAT(error.message(), ::testing::HasSubstr(file().string()));
  }
}

}  // namespace
}  // namespace ms::watch
