// A folder of its own for every test, with scripts that stand for ms-diag, and a log that keeps what it is told.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

class SpankTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = testing::TempDir() + "ms_spank_XXXXXX";
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    folder = std::filesystem::canonical(path).string();
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  // Writes a file and gives its path.
  std::string file(const std::string& name, const std::string& text, mode_t mode = 0644) const {
    const std::string path = folder + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string script(const std::string& commands) const {
    return file("script", "#!/bin/sh\n" + commands + "\n", 0755);
  }

  std::string text_of(const std::string& name) const {
    std::ifstream in(folder + "/" + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string folder;
};
