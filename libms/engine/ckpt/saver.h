// Saving while training goes on, in two stages. At a step's boundary every rank's state is copied into host memory on a
// stream of its own; only the next update of the optimizer waits for that. Then a thread of the rank writes the copy,
// makes it durable and hashes it; when every rank has done so, rank 0's thread writes the manifest and commits.
//
// The only extra collective is one gather of the files' entries: votes in the step's own all-reduce over the world
// agree that all have written. Every rank calls the same methods at the same steps, from its one host thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/manifest.h"
#include "ckpt/memory_tier.h"
#include "comm/world.h"
#include "tensor/stream.h"

namespace ms::ckpt {

// A piece and the tensor that holds it, [1, slice.size()], contiguous, of the piece's type.
struct Held {
  Piece piece;
  tensor::Tensor tensor;
};

struct SaverOptions {
  std::string dir;
  std::int64_t keep_last = 0;   // committed checkpoints that stay, 0: all
  std::int64_t keep_every = 0;  // besides, those of steps that are multiples of this; see PrunePolicy
  // The step that the run resumed from; -1: none. Later ones that were there then were passed over as unusable: they do
  // not count as kept.
  std::int64_t resumed_from = -1;
  bool wait_when_busy = false;
  int group_id = 0;  // free in the run: of the group over which entries are gathered
};

// A rank's votes on its save in a step's all-reduce, and the sums over all ranks afterwards.
struct SaveVotes {
  double writing = 0;     // ranks whose write is not done
  double committing = 0;  // 1 while rank 0 has not committed or given up
  double failed = 0;      // ranks whose write failed
};

// The outcome of a save.
struct SaveOutcome {
  std::int64_t step = 0;
  bool committed = false;
  std::string problem;     // where it was not: what went wrong on this rank, and on rank 0 always something
  std::int64_t bytes = 0;  // of this rank
  double write_s = 0, cpu_s = 0, total_s = 0;  // this rank's write and its processor time; boundary to commit
  std::vector<std::string> set_aside, pruned;  // on rank 0
};

class Saver {
 public:
  // Collective over the world. Allocates the host copy, on which a first save would otherwise wait, and makes the
  // file's skeleton in the background. The pieces' memory, the world and the devices outlive it: `device` has the
  // state, `host` sends messages of host memory, and may be the same. `memory`, where given on all ranks: keeps copies
  // of what is saved.
  Saver(const SaverOptions& options, std::vector<Held> held, comm::World& world, tensor::Device& device,
        tensor::Device& host, std::unique_ptr<MemoryTier> memory = nullptr);
  // Stops writing at the next block and leaves what is uncommitted to be cleaned up.
  ~Saver();

  // Host memory that saving takes on a rank with these pieces.
  static std::int64_t host_bytes(const std::vector<Piece>& pieces);

  // Starts a save of what the held tensors contain once `updated` is reached. Returns the event after which they may
  // change. nothing: the save before is not over and the policy is to skip. Where it is to wait, waits as finish()
  // does; the outcome of the save before is then what agreed() or finish() returns first. A rank that cannot save says
  // so in its votes. `manifest` lacks files; `boundary`: the last step whose votes were cast before this.
  std::optional<tensor::Event> begin(const Manifest& manifest, const tensor::Event& updated, std::int64_t boundary);
  bool busy() const;

  // This rank's votes for the step that is about to be issued, and what all ranks voted in a step. An outcome, once, on
  // every rank, when a save has ended.
  SaveVotes votes() const;
  std::optional<SaveOutcome> agreed(std::int64_t step, const SaveVotes& sum);

  // Collective: waits until the save that is under way has ended, and returns an outcome, the oldest that was not
  // returned yet; nothing where there is none. To be called until it returns nothing.
  std::optional<SaveOutcome> finish();

  // Nothing is under way, and nobody will resume from here: the copies in memory are removed. Local.
  void drop_copies();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::ckpt
