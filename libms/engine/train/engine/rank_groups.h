// The streams of a rank and the groups that it is in. Opened before anything else of a run: between GPUs a group takes
// buffers of its own, and what is free for a run's tensors is what is left then.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "comm/world.h"
#include "train/plan.h"

namespace ms::train {

// Returns the width of each group of the rank whose receives are in flight while ops run: those of the pipeline, which
// are issued before their microbatch is due.
std::vector<int> receives_ahead(const Plan& plan, int rank);

struct RankGroups {
  // Collective over the world; connected when it returns. The world and the device outlive it.
  RankGroups(const Plan& plan, comm::World& world, tensor::Device& device);

  // Registers the memory that holds the buffers of all later transfers; it outlives the groups. Local. Excludes the
  // world and the embedding group: they reduce across stages, whose tensors lie at different offsets of this memory.
  void register_memory(const tensor::Memory& memory);

  // Returns the groups over which parameters are reduced and gathered; of experts only if edp is there.
  optim::Replicas replicas(const mesh::Mesh& mesh, bool experts) const;

  // Streams before the communicators that issue on them.
  std::unique_ptr<tensor::Stream> compute;
  std::vector<std::unique_ptr<tensor::Stream>> streams;  // of the communicators, in the order of their groups' ids
  std::unique_ptr<comm::Communicator> world, tp, dp;
  std::unique_ptr<comm::Communicator> ep, edp;  // if experts have groups of their own (mesh::Mesh)
  // As mesh::Groups::shard() and replicate().
  std::unique_ptr<comm::Communicator> dp_shard, dp_replicate, edp_shard, edp_replicate;
  std::unique_ptr<comm::Communicator> cp;         // if mesh.cp is above 1 and its ranks pass no keys
  std::unique_ptr<comm::Communicator> embedding;  // where first and last stage share it
  // By mesh::Channel, absent at the pipeline's ends.
  std::array<std::unique_ptr<comm::Communicator>, mesh::kChannels> channels;
  // The rings of the tp group and of the cp group, where they are used.
  std::unique_ptr<comm::Communicator> ring_out, ring_in, cp_ring_out, cp_ring_in;
};

}  // namespace ms::train
