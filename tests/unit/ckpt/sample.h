// Small checkpoints in a temporary directory, for tests of what looks at them: two parameters with all states, cut over
// any number of files, each element a number that follows from where it belongs.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "ckpt/offline.h"
#include "support/files.h"

namespace ms::ckpt::sample {

struct Options {
  int files = 1;
  float weight_of_b_3 = 0;  // added to element 3 of b's weight
  bool optimizer = true;
  std::string config = "[mesh]\ndp = 1  # set by file\n";
  std::int64_t b_size = 10;
};

inline float value_of(State state, const std::string& name, std::int64_t element) {
  return static_cast<float>(element + 1) / 8 + static_cast<float>(static_cast<int>(state) * 100) +
         (name == "b" ? 1000.0F : 0.0F);
}

inline OfflineFile file_of(const Options& options, int file) {
  OfflineFile result;
  for (const State state : {State::weight, State::exp_avg, State::exp_avg_sq}) {
    if (state != State::weight && !options.optimizer) continue;
    for (Slice slice : {whole("a", 6, 4), whole("b", 1, options.b_size)}) {
      const std::int64_t n = slice.size();
      slice.elements = {n * file / options.files, n * (file + 1) / options.files};
      result.pieces.push_back({.state = state, .dtype = tensor::DType::f32, .slice = slice});
    }
  }
  result.fill = [pieces = result.pieces, options](std::size_t i, std::span<std::byte> to) {
    const Piece& piece = pieces[i];
    std::vector<float> values;
    for (std::int64_t e = piece.slice.elements.begin; e < piece.slice.elements.end; ++e) {
      values.push_back(value_of(piece.state, piece.slice.name, e));
      if (piece.state == State::weight && piece.slice.name == "b" && e == 3) values.back() += options.weight_of_b_3;
    }
    std::memcpy(to.data(), values.data(), to.size());
  };
  return result;
}

inline Manifest manifest_of(std::int64_t step, const Options& options) {
  Manifest manifest;
  manifest.step = step;
  manifest.run = "0123456789abcdef";
  manifest.created = "2026-01-31T12:00:00Z";
  manifest.version = "0.1.0";
  manifest.config = options.config;
  manifest.dp = options.files;
  manifest.dtype = "fp32";
  manifest.data = {.samples = step * 8, .seed = 1234, .source = "feedc0de"};
  manifest.has_optimizer = options.optimizer;
  return manifest;
}

// Commits a checkpoint of that step into `dir`; its path.
inline std::string write(const std::string& dir, std::int64_t step, const Options& options = {}) {
  std::vector<OfflineFile> files;
  for (int i = 0; i < options.files; ++i) files.push_back(file_of(options, i));
  return write_checkpoint(dir, manifest_of(step, options), files);
}

}  // namespace ms::ckpt::sample
