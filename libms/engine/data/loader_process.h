// The loader of a node: a process of its own that opens the token files and fills the ring of batches which the node's
// ranks read. Apart from the ranks, storage that hangs cannot keep a rank from ending, and what kills the loader does
// not kill the run: a standby, from which it was forked with all files open, forks the next one at once, also where the
// loader was stopped. As the sampler is a pure function of seed and step, that one fills the same batches, from the
// first that was not published.
//
//   rank --socket-- standby ("ms-load-standby" in ps), which opens the files and then only waits for its child
//                     `-- loader ("ms-loader"), which reads
//
// Both end with the rank's process, however it ends; only the rank that asks for it has one that does anything.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "base/handle.h"
#include "data/batch_ring.h"
#include "data/batch_source.h"

namespace ms::data {

class LoaderProcess {
 public:
  // Forks a process that does nothing yet. `open` is called there. Constructed before this process has other threads,
  // by one that outlives this object. Error("data.loader", user): no process is to be had.
  explicit LoaderProcess(const OpenBatches& open);
  ~LoaderProcess();  // ends both processes, and waits for no storage
  LoaderProcess(const LoaderProcess&) = delete;
  LoaderProcess& operator=(const LoaderProcess&) = delete;

  // Opens the files, and returns BatchSource::facts(). Throws what opening them throws there, what `check` throws,
  // which is called meanwhile, Error("data.timeout", storage), and Error("data.loader") where the process has ended.
  std::string open(double timeout_s, const std::function<void()>& check);
  // After open(): begins to fill the ring, which outlives this object.
  void run(const BatchRing& ring, const LoaderTask& task);
  // Throws what reading threw, and Error("data.loader") where the process has ended or its loader dies again and again.
  void check();
  // No one will ask for it.
  void dismiss();

 private:
  std::optional<std::string> receive(int patience_ms);

  UniqueFd socket_;
  pid_t standby_ = -1;  // -1: dismissed
};

}  // namespace ms::data
