// Copies of a run's newest state in the nodes' memory, besides storage: every rank's on its own node and on that of its
// keeper (buddy.h), so that a run that has lost a node resumes without reading storage. One of a rank, used by its one
// host thread; a thread of its own writes what was copied and received.
//
// Copies only speed up a restart: a failure here is logged once and fails nothing else. Only failed communication fails
// the run, as it does everywhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/manifest.h"
#include "comm/world.h"
#include "mesh/mesh.h"

namespace ms::ckpt {

struct MemoryOptions {
  std::string root;  // of this node, memory_root()
  mesh::Mesh mesh;
  int first_group_id = 0;  // of twice as many as there are ranks, free in the run
};

class MemoryTier {
 public:
  // Collective over the world. `pieces` are this rank's; the world and the device, of the host's memory, outlive it.
  MemoryTier(const MemoryOptions& options, const std::vector<Piece>& pieces, comm::World& world, tensor::Device& host);
  // Stops writing; what is committed is still marked.
  ~MemoryTier();

  // Returns the host memory that a rank needs to receive the copy of a rank with these pieces.
  static std::int64_t buffer_bytes(const std::vector<Piece>& pieces);

  // ---- when a run begins
  // Collective over the world and `everyone`, at most once, before the first save. Brings the rank's file of the
  // checkpoint to this node, from whichever node has it. Unverified: load() does that. The directory that has it, of
  // this node; or why there is none, the same on all ranks.
  struct Fetched {
    std::string path, problem;
  };
  Fetched fetch(const Manifest& manifest, comm::Communicator& everyone);
  // Collective, no message: the copies of the checkpoint that the run goes on from, loaded and right, stay; nullptr:
  // none. All others on this node go. Has to be done on all ranks of the node before anything is saved.
  void settle(const Manifest* loaded);

  // ---- saving: Saver calls these, at the same step on every rank
  // Copies the first size_bytes of `image`, 0: there is nothing, once `copied`, of the host, is reached; not while
  // busy. The image is as long as an image of these pieces can be, and stays as it is until sent() is reached and
  // nothing is busy.
  void begin(std::int64_t step, std::span<std::byte> image, std::int64_t size_bytes, const tensor::Event& copied);
  const tensor::Event& sent() const;
  bool busy() const;
  void wait_for(std::chrono::milliseconds at_most) const;
  // How the save that was begun has ended. The entries of all ranks' files, by rank, are asked for by a thread.
  void committed(std::int64_t step, std::function<std::vector<std::string>()> entries);
  void abandoned(std::int64_t step);
  // The run is done: its copies go from this node, all of them. Local.
  void drop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::ckpt
