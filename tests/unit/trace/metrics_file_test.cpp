#include "trace/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "support/files.h"

namespace ms::trace {
namespace {

namespace fs = std::filesystem;

class Metrics : public ::testing::Test {
 protected:
  static std::string content(const std::string& path) { return test::slurp(path); }

  const test::TempDir temporary_;
  const std::string& dir_ = temporary_.path();
  const std::string path_ = dir_ + "/metrics.jsonl";
};

TEST_F(Metrics, WritesWholeLinesImmediately) {
  MetricsFile file(path_);
  EXPECT_EQ(file.path(), path_);
  EXPECT_EQ(content(path_), "");
  std::string expected;
  for (int step = 0; step < 100; ++step) {
    const std::string line = fmt::format("{{\"step\":{},\"text\":\"{}\"}}", step, std::string(step * 100, 'x'));
    file.write(line);
    expected += line + "\n";
    ASSERT_EQ(content(path_), expected);  // another reader sees it, nothing is held back
  }
  file.close();
  EXPECT_EQ(content(path_), expected);
}

TEST_F(Metrics, KeepsTheFileOfThePreviousRun) {
  for (const char* line : {"first", "second", "third"}) {
    MetricsFile file(path_);
    file.write(line);
    file.close();
  }
  EXPECT_EQ(content(path_), "third\n");
  EXPECT_EQ(content(path_ + ".previous"), "second\n");
}

TEST_F(Metrics, KilledRunLeavesItsLines) {
  { MetricsFile(path_).write("not closed"); }
  EXPECT_EQ(content(path_), "not closed\n");
}

TEST_F(Metrics, FailureToCreateBlamesStorage) {
  fs::create_directories(dir_ + "/taken.jsonl.previous/full");
  std::ofstream(dir_ + "/taken.jsonl") << "old\n";
  for (const std::string& path : {dir_ + "/absent/metrics.jsonl", dir_ + "/taken.jsonl"}) {
    try {
      MetricsFile file(path);
      ADD_FAILURE() << path << " was created";
    } catch (const Error& error) {
      EXPECT_EQ(error.blame(), Blame::storage);
      EXPECT_THAT(error.message(), ::testing::HasSubstr(path));
    }
  }
  EXPECT_EQ(content(dir_ + "/taken.jsonl"), "old\n") << "what was there is untouched";
}

// A file system with ten bytes free.
[[noreturn]] void write_too_much(const std::string& path) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{10, 10};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) std::exit(1);
  try {
    MetricsFile file(path);
    file.write("0123456");
    file.write("0123456");
  } catch (const Error& error) {
    // No words: standard error may be a file of ten bytes too.
    std::exit(error.blame() == Blame::storage && error.message().starts_with("cannot write to " + path) ? 3 : 4);
  }
  std::exit(0);
}

TEST_F(Metrics, FailureToWriteBlamesStorage) { EXPECT_EXIT(write_too_much(path_), ::testing::ExitedWithCode(3), ""); }

TEST_F(Metrics, ResumedRunHasEveryStepOnce) {
  const std::string before =
      "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n{\"step\":3,\"loss\":3}\n"
      "{\"step\":2,\"loss\":9}\nnonsense\n{\"step\":x}\n{\"step\":4,\"lo";
  std::ofstream(path_) << before;
  {
    MetricsFile file(path_, 2);
    file.write("{\"step\":3,\"loss\":2}");
    file.close();
  }
  EXPECT_EQ(content(path_), "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n{\"step\":3,\"loss\":2}\n");
  EXPECT_EQ(content(path_ + ".previous"), before);  // nothing is lost
  MetricsFile(path_, 3).close();                    // again: the copy of before is replaced
  EXPECT_EQ(content(path_), content(path_ + ".previous"));
  fs::remove(path_);
  MetricsFile(path_, 3).close();  // somebody moved the file away
  EXPECT_EQ(content(path_), "");
}

}  // namespace
}  // namespace ms::trace
