// What the tests of this room share: a directory that goes away, the error a call throws, tiny models and their values.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "nn/config.h"

namespace ms::hf {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ms-hf-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Names of the files in a directory, sorted.
inline std::vector<std::string> list(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}
inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void spill(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
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

inline nn::ModelConfig tiny(const std::string& family, bool tied) {
  nn::ModelConfig model;
  model.family = family;
  model.layers = 2;
  model.hidden = 12;
  model.heads = 3;
  model.vocab = 11;
  model.seq = 7;
  model.tied_embeddings = tied;
  model.norm_eps = 1e-3;
  if (family == "llama") {
    model.hidden = 16, model.heads = 4, model.kv_heads = 2, model.ffn_hidden = 20, model.rotary_base = 500;
  }
  return model;
}

}  // namespace ms::hf
