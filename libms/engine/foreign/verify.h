// Reads a checkpoint of another program whole, once, and looks for everything that can be wrong with it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "foreign/checkpoint.h"

namespace ms::foreign {

struct Verified {
  std::string path;
  std::string_view format;
  std::vector<Problem> problems;  // proven
  std::vector<Problem> doubts;    // what may be as it should
  bool unreadable = false;        // the system refuses to show all of it: whether it is sound is not known
  bool has_crcs = false;          // at least one archive has them
  std::size_t num_unjudged = 0;   // values and objects that are no tensors: their bytes are checked, not what they are
  std::int64_t size_bytes = 0;    // of its files
  bool sound() const { return problems.empty() && !unreadable; }
};

// At most so many problems of a kind are kept.
inline constexpr std::size_t kMostProblems = 1000;

// `progress`: bytes read so far; any thread.
Verified verify(const Checkpoint& checkpoint, int threads, const std::function<void(std::int64_t)>& progress);

// Bytes of the files that are there.
std::int64_t size_bytes(const Checkpoint& checkpoint);

}  // namespace ms::foreign
