// A node in a directory: tests write the files that a check reads, run it, and look at what it found.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <string>
#include <vector>

#include "../base/fake_root.h"
#include "health/checks/registry.h"

namespace ms::health {

// The entity of every finding.
inline std::vector<std::string> entities(const Result& result) {
  std::vector<std::string> names;
  for (const Finding& finding : result.findings) names.push_back(finding.entity);
  return names;
}

class FakeNode : public ::testing::Test {
 protected:
  static constexpr double kNow_s = 1.8e9;

  FakeNode() { policy.paths.sysroot = root_.directory(); }

  std::string path(const std::string& absolute) const { return root_.directory() + absolute; }
  void put(const std::string& absolute, const std::string& text) { root_.write(absolute, text + "\n"); }
  void link(const std::string& absolute, const std::string& target) { root_.link(absolute, target); }
  void make_directory(const std::string& absolute) { std::filesystem::create_directories(path(absolute)); }
  void remove(const std::string& absolute) { std::filesystem::remove_all(path(absolute)); }

  // The kernel's log, and nothing else in it: each line a second after the one before.
  void log(const std::vector<std::string>& lines, double first_s = 10) {
    std::string records;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      records += "3," + std::to_string(i) + "," +
                 std::to_string(static_cast<long>((first_s + static_cast<double>(i)) * 1e6)) + ",-;" + lines[i] + "\n";
    }
    put("/dev/kmsg", records);
  }

  Result run(std::string_view code, const Counters& before = {}, double now_s = kNow_s) {
    Evidence evidence(policy, now_s, 0, before);
    return find_check(passive_checks(), code)->run(evidence);
  }
  // What a log of one line leads to.
  Result run_on_line(std::string_view code, const std::string& line) {
    log({line});
    return run(code);
  }

  Policy policy;

 private:
  FakeRoot root_;
};

// Mounts of a test are its process's own: nobody else sees them, and they go when it ends. False: that needs root.
inline bool enter_own_mounts() {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

inline std::string describe(const Result& result) {
  std::string text = std::string(to_string(result.outcome)) + " " + result.note;
  for (const Finding& finding : result.findings) text += "\n  " + finding.str();
  return text;
}

#define EXPECT_OUTCOME(result, expected) EXPECT_EQ((result).outcome, expected) << describe(result)

}  // namespace ms::health
