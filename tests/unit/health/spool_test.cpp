// What others may read of a node: the spool of events, and the notes for jobs.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "base/safe_file.h"
#include "health/act/notes.h"
#include "health/act/spool.h"
#include "support/files.h"
#include "test_files.h"

namespace ms::health {
namespace {

namespace fs = std::filesystem;

class SpoolTest : public testing::Test {
 protected:
  std::string path() const { return directory_ / "spool"; }
  void spool(double wall_s, const std::string& message) const {
    spool_event(path(), {.wall_s = wall_s, .kind = "drain", .node = "node02", .code = "gpu.ecc", .message = message});
  }
  std::vector<std::string> messages() const {
    std::vector<std::string> result;
    for (const auto& [name, event] : spooled_events(path())) result.push_back(event.message);
    return result;
  }
  test::TempDir directory_;
};

TEST_F(SpoolTest, OthersMayReadAndNotWrite) {
  ::umask(077);
  spool_event(path(), {.wall_s = 1.8e9 + 0.5,
                       .kind = "strike",
                       .node = "node02",
                       .code = "gpu.ecc",
                       .message = "odd \xff bytes",
                       .job_id = 7,
                       .strikes = 2});
  ::umask(022);
  EXPECT_EQ(mode_of(path()), 0755);
  const auto events = spooled_events(path());
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(mode_of(path() + "/" + events[0].first), 0644);
  EXPECT_EQ(mode_of(path() + "/.lock"), 0600);  // nobody else can hold it
  const Event& event = events[0].second;
  EXPECT_EQ(event.kind, "strike");
  EXPECT_EQ(event.wall_s, 1.8e9 + 0.5);
  EXPECT_EQ(event.node, "node02");
  EXPECT_EQ(event.job_id, 7);
  EXPECT_EQ(event.strikes, 2);
}

TEST_F(SpoolTest, NamesSortAsWrittenWhateverTheClockDoes) {
  const double times[] = {1.8e9, 1.8e9 + 1, 1.8e9 + 1, 1.7e9, 4e9, 1.8e9 + 2, -5, 0, std::nan(""), 1e300};
  std::vector<std::string> expected;
  for (const double time : times) {
    expected.push_back(std::to_string(expected.size()));
    spool(time, expected.back());
  }
  EXPECT_EQ(messages(), expected);
}

TEST_F(SpoolTest, WritersAtOnceLoseNothing) {
  std::vector<std::jthread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&, i] {
      for (int k = 0; k < 10; ++k) spool(1.8e9, fmt::format("{} {}", i, k));
    });
  }
  writers.clear();
  EXPECT_EQ(messages().size(), 40);
}

TEST_F(SpoolTest, HoldsAThousandTheOldestGo) {
  spool(1, "first");
  for (int i = 0; i < 1100; ++i) std::ofstream(path() + fmt::format("/{:020}.json", 2000000000 + i)) << "{}";
  std::ofstream(path() + "/readme.txt") << "not an event";
  spool(1.8e9, "last");
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(path())) count += entry.path().extension() == ".json" ? 1 : 0;
  EXPECT_EQ(count, 1000);
  EXPECT_EQ(messages(), std::vector<std::string>{"last"});  // what is damaged is left out
  EXPECT_TRUE(fs::exists(path() + "/readme.txt"));
}

TEST_F(SpoolTest, WhatIsNoPlainFileKeepsNoEventFromBeingRead) {
  spool(1.8e9, "first");
  const auto entry = [&](int number) { return path() + fmt::format("/{:020}.json", number); };
  fs::create_symlink("/etc/hostname", entry(1));
  fs::create_directory(entry(2));
  ASSERT_EQ(::mkfifo(entry(3).c_str(), 0644), 0);
  std::ofstream(entry(4)) << "{}";
  fs::resize_file(entry(4), std::uintmax_t{20} << 30);
  std::ofstream(entry(5)) << "{}";
  ::chmod(entry(5).c_str(), 0);
  EXPECT_EQ(messages(), std::vector<std::string>{"first"});
}

TEST_F(SpoolTest, TheNewestThousandAreRead) {
  spool(1.8e9, "last");
  const fs::path last = path() + "/" + spooled_events(path())[0].first;
  for (int i = 0; i < 1005; ++i) fs::copy_file(last, path() + fmt::format("/{:020}.json", 1 + i));
  EXPECT_EQ(messages().size(), 1000);
  EXPECT_EQ(spooled_events(path()).back().first, last.filename());
}

TEST_F(SpoolTest, RefusesWhatOthersMayWriteInto) {
  expect_error("spool.read", [&] { spooled_events(path()); });
  fs::create_directory(path());
  for (const mode_t mode : {0777, 0775, 0757}) {
    ::chmod(path().c_str(), mode);
    expect_error("spool.write", [&] { spool(1, "x"); });
    expect_error("spool.read", [&] { spooled_events(path()); });
  }
  fs::remove(path());
  fs::create_directory(directory_ / "target");
  fs::create_directory_symlink(directory_ / "target", path());
  expect_error("spool.write", [&] { spool(1, "x"); });
  expect_error("spool.read", [&] { spooled_events(path()); });
  expect_error("spool.write", [&] {
    spool_event(directory_ / "target", {.kind = "drain", .node = {}, .code = {}, .message = std::string(20000, 'x')});
  });
}

class NotesTest : public testing::Test {
 protected:
  test::TempDir directory_;
};

TEST_F(NotesTest, AreForOthersToReadBoundedAndPrintable) {
  const Notes notes(directory_ / "notes");
  EXPECT_EQ(mode_of(directory_ / "notes"), 0755);
  notes.write(7, {"one\nline", "two \x1b[31m"});
  EXPECT_EQ(read(directory_ / "notes/job-7"), "one line\ntwo ?[31m\n");
  EXPECT_EQ(mode_of(directory_ / "notes/job-7"), 0644);
  std::vector<std::string> many;
  for (int i = 0; i < 50; ++i) many.push_back(fmt::format("{} {}", i, std::string(600, 'x')));
  notes.write(7, many);
  const std::string text = read(directory_ / "notes/job-7");
  EXPECT_LE(text.size(), kMaxNoteBytes);
  EXPECT_NE(text.find("\n49 "), std::string::npos);  // the newest stay
  notes.remove(7);
  EXPECT_FALSE(fs::exists(directory_ / "notes/job-7"));
  EXPECT_NO_THROW(notes.remove(7));
}

TEST_F(NotesTest, LinksLeadNowhere) {
  std::ofstream(directory_ / "victim") << "precious";
  const Notes notes(directory_ / "notes");
  for (const char* name : {"notes/job-7", "notes/.job-7.tmp"}) {
    fs::create_symlink(directory_ / "victim", directory_ / name);
    notes.write(7, {"x"});
    EXPECT_EQ(read(directory_ / "victim"), "precious");
    EXPECT_FALSE(fs::is_symlink(directory_ / "notes/job-7"));
  }
  fs::create_directory_symlink(directory_ / "notes", directory_ / "link");
  expect_error("notes", [&] { Notes{directory_ / "link"}; });
  ::chmod((directory_ / "notes").c_str(), 0777);
  expect_error("notes", [&] { Notes{directory_ / "notes"}; });
}

TEST_F(NotesTest, OneDecidesAtATime) {
  const Notes notes(directory_ / "notes");
  UniqueFd held = notes.try_lock_decision();
  EXPECT_TRUE(held);
  EXPECT_FALSE(Notes(directory_ / "notes").try_lock_decision());
  held.reset();
  EXPECT_TRUE(notes.try_lock_decision());
}

}  // namespace
}  // namespace ms::health
