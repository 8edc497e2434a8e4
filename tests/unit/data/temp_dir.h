// A directory of its own for a test, removed at the end; and the few file operations that tests of token files share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/token_writer.h"

namespace ms::data {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ms-data-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(const std::string& name) const { return (std::filesystem::path(path_) / name).string(); }
  // Names of the files in it, sorted.
  std::vector<std::string> list() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void spill(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline void write_tokens(const std::string& prefix, const std::vector<std::vector<std::int32_t>>& documents,
                         TokenType type = TokenType::u16) {
  TokenWriter writer(prefix, type);
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.commit();
}

// The error that `body` must throw.
template <class Body>
Error thrown_by(Body&& body) {
  try {
    body();
  } catch (const Error& error) { return error; }
  ADD_FAILURE() << "no error was thrown";
  return Error("none", Blame::bug, "none");
}

}  // namespace ms::data
