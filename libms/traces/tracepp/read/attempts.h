// Finds the files of earlier attempts of a job beside those of its newest: what they show is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ms::tracepp {

struct File {
  std::string path;
  bool named = false;  // by the user, not found in a directory
  std::int64_t size_bytes = 0;
};

// Removes the files of earlier attempts and returns their number. Their name or that of a directory tells the attempt
// ("attempt-1.node1.stacks" of ms-driver, "attempt_0/3/stdout.log" of torchrun), and stands beside a higher number. All
// other files count as earlier if they were last written before these. Times of copies are all about the same, and tell
// nothing.
std::size_t leave_out_earlier_attempts(std::vector<File>& files);

}  // namespace ms::tracepp
