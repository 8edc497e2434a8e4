// Files of tests: their content, modes, and errors about them.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "support/files.h"

namespace ms::health {

inline std::string read(const std::string& path) { return test::slurp(path); }

inline unsigned mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

inline void expect_error(const std::string& kind, const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown, expected " << kind;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.message();
    EXPECT_EQ(error.blame(), Blame::node);
  }
}

}  // namespace ms::health
