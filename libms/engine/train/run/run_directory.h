// The directories that a run writes into, run.dir and that of its traces, with locks that keep a second run out of them
// for the lifetime of this object. One rank of a start has it, and makes run.dir this start's (watch/verdict.h).
// checkpoint.dir has its own lock, ckpt::DirectoryLock.
#pragma once

#include <string>

#include "base/handle.h"
#include "base/unexpected.h"
#include "train/config.h"
#include "watch/verdict.h"

namespace ms::train {

class RunDirectory {
 public:
  // Takes the locks of directories that exist. Throws Error("run.busy", user) where another run has one.
  RunDirectory(const Loaded& loaded, std::string nonce);

  // Returns the result of the checks that come before a run, of which prepare() is the last. If they throw before it,
  // no new directory remains; in one that existed or was made, the verdict tells of this run.
  template <class F>
  auto check(F&& checks) {
    try {
      return checks();
    } catch (const std::exception& thrown) {
      const Error error = error_of(thrown, "train.bug");
      trace_lock_.reset();  // a verdict takes a descriptor, of which there may be none left
      if (has_dir_) watch::write_verdict(dir_, nonce_, watch::verdict_of(error, 0, "", 0));
      throw error;
    }
  }
  // Makes and locks the directories that are new, and saves the resolved configuration.
  void prepare();

 private:
  void take();
  void take_trace();

  std::string dir_, trace_dir_, resolved_, nonce_;  // trace_dir_: empty where the run writes no traces
  bool has_dir_ = false, has_trace_dir_ = false;
  UniqueFd lock_, trace_lock_;
};

}  // namespace ms::train
