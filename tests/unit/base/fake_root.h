// A directory that stands for "/" in tests of what reads the node's files. Removed at the end.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/sysroot.h"
#include "support/files.h"

namespace ms {

class FakeRoot {
 public:
  const std::string& directory() const { return temporary_.path(); }
  Sysroot root() const { return Sysroot(directory()); }

  // `name` is absolute, as on a node; directories above it are made.
  void write(const std::string& name, std::string_view text) {
    std::filesystem::create_directories(std::filesystem::path(directory() + name).parent_path());
    test::spill(directory() + name, text);
  }
  void link(const std::string& name, const std::string& target) {
    std::filesystem::create_directories(std::filesystem::path(directory() + name).parent_path());
    std::filesystem::create_symlink(target, directory() + name);
  }

 private:
  test::TempDir temporary_;
};

}  // namespace ms
