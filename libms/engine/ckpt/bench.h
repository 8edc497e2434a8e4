// How fast a file system takes checkpoints and gives them back, against what the machine does without ms: ratios of
// one run, so that a slow disk or a busy node does not blur them. ms-ckpt bench calls it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::ckpt {

struct BenchOptions {
  std::int64_t size_bytes = std::int64_t{2} << 30;  // of the file; twice that is taken of memory
  int threads = 2;                                  // blocks in flight while loading
  std::function<void(std::int64_t)> progress = {};  // bytes moved so far, of bench_bytes()
};

struct BenchRow {
  std::string_view name;
  std::string_view doc;
  double bytes_per_s = 0;    // median of the rounds
  double cpu_per_s = 0;      // processor seconds a second
  std::string_view against;  // row that it is measured against; empty: none
  double ratio = 0;          // median over the rounds of this rate to that of the same round
};

struct BenchReport {
  std::string dir;
  std::int64_t size_bytes = 0;
  int rounds = 0;
  int threads = 0;
  bool direct = false;  // the image went past the page cache
  std::vector<BenchRow> rows = {};
};

std::int64_t bench_bytes(const BenchOptions& options);
// Works in a directory of its own below `dir`, which is gone afterwards. Errors of the file system: "ckpt.bench".
BenchReport bench(const std::string& dir, const BenchOptions& options);

}  // namespace ms::ckpt
