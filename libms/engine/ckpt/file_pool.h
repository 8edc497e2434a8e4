// Work on many files with a few threads: what load and verify share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace ms::ckpt {

// Calls body(i, threads it may use) for every file, `threads` in all: files of so many blocks one after another, with
// all of the threads; then the others side by side, with one each. The first exception ends it: no more files are
// begun, and it is rethrown. `blocks`: of every file; those of none are left out.
void for_each_file(std::span<const std::int64_t> blocks, int threads,
                   const std::function<void(std::size_t file, int threads)>& body);

// The function for one more file to report its bytes so far to, from any thread; `sum` receives those of all files, by
// one thread at a time, never less than before.
class ProgressSum {
 public:
  explicit ProgressSum(std::function<void(std::int64_t)> sum);
  std::function<void(std::int64_t)> of_file() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // nullptr: nobody wants to know
};

}  // namespace ms::ckpt
