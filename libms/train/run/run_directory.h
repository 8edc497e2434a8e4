// The directory of a run, with a lock that keeps a second run out of it for the lifetime of this object. One rank of a
// run has it.
#pragma once

#include <string>

#include "base/handle.h"
#include "train/config.h"
#include "watch/verdict.h"

namespace ms::train {

class RunDirectory {
 public:
  // Takes the lock of a directory that exists. Throws Error("run.busy", user) where another run has it.
  explicit RunDirectory(const Loaded& loaded);

  // Returns the result of the checks that come before a run. If they throw, no new directory remains; in one that
  // existed, the verdict tells of this run.
  template <class F>
  auto check(F&& checks) {
    try {
      return checks();
    } catch (const Error& error) {
      if (lock_) watch::write_verdict(dir_, watch::verdict_of(error, 0, "", 0));
      throw;
    }
  }
  // Makes and locks the directory where it is new, and saves the resolved configuration in it.
  void prepare();

 private:
  void take();

  std::string dir_, resolved_;
  UniqueFd lock_;
};

}  // namespace ms::train
