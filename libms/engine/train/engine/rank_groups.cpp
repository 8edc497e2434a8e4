#include "train/engine/rank_groups.h"

#include <algorithm>

namespace ms::train {
namespace {

// Limits on the NCCL channels of a group; a channel is one thread block and some MiB of buffers. Blocks that wait for a
// peer stay resident, and the peer may wait for a group whose blocks did not fit. So all groups of a rank together use
// at most 64 of the 108 multiprocessors of an A100 or the 132 of an H100; smaller GPUs scale each limit down
// (comm::Group). Over NVLink a channel is reported to move some 20 GB/s, and the network is slower.
constexpr int kWide = 16;     // tp, dp: gradients and parameters, most of what is moved
constexpr int kRing = 8;      // blocks around a tp or cp group, as fast as compute takes them
constexpr int kPipeline = 2;  // a microbatch's activations to the next stage: as much as a port of the network carries
constexpr int kNarrow = 4;    // the world's few numbers, a shared embedding or shards across groups once a step
constexpr int kShard = kWide - 2 * kNarrow;  // with those of all of dp and across groups as many as dp without groups

}  // namespace

// Other operations come and go; a ring's last as long as the matmuls that they feed.
std::vector<int> receives_ahead(const Plan& plan, int rank) {
  std::vector<int> widths;
  if (!plan.settings.overlap.pp) return widths;
  const mesh::Groups groups(plan.mesh, plan.chunks, plan.settings.model.tied_embeddings);
  for (const mesh::Channel in : {mesh::Channel::forward_in, mesh::Channel::backward_in})
    if (groups.channel(in, rank)) widths.push_back(kPipeline);
  return widths;
}

RankGroups::RankGroups(const Plan& plan, comm::World& of, tensor::Device& device) {
  const int rank = of.rank();
  const mesh::Groups groups(plan.mesh, plan.chunks, plan.settings.model.tied_embeddings);
  struct Opening {
    mesh::GroupSpec spec;
    int width;
    bool sends;
    std::unique_ptr<comm::Communicator>* communicator;
  };
  // With shard groups only small sums are left for the whole of dp.
  const auto width_of = [&](bool experts) { return groups.shard(experts, rank) ? kNarrow : kWide; };
  std::vector<Opening> all{{groups.world(), kNarrow, false, &world},
                           {groups.along(mesh::Axis::tp, rank), kWide, false, &tp},
                           {groups.along(mesh::Axis::dp, rank), width_of(false), false, &dp}};
  if (plan.mesh.has_expert_groups()) {
    all.push_back({groups.along(mesh::Axis::ep, rank), kWide, false, &ep});
    all.push_back({groups.along(mesh::Axis::edp, rank), width_of(true), false, &edp});
  }
  for (const bool experts : {false, true}) {
    if (const auto spec = groups.shard(experts, rank))
      all.push_back({*spec, kShard, false, experts ? &edp_shard : &dp_shard});
    if (const auto spec = groups.replicate(experts, rank))
      all.push_back({*spec, kNarrow, false, experts ? &edp_replicate : &dp_replicate});
  }
  const nn::Shape shape = plan.shape(plan.mesh.coord(rank).tp);
  if (plan.mesh.cp > 1 && !shape.passes_keys()) all.push_back({groups.along(mesh::Axis::cp, rank), kWide, false, &cp});
  for (int c = 0; c < mesh::kChannels; ++c) {
    if (const auto spec = groups.channel(static_cast<mesh::Channel>(c), rank))
      all.push_back({*spec, kPipeline, true, &channels[static_cast<std::size_t>(c)]});
  }
  if (const auto spec = groups.embedding(rank)) all.push_back({*spec, kNarrow, false, &embedding});
  const auto add_ring = [&](mesh::Axis axis, auto& out, auto& in) {
    const mesh::Groups::Ring ring = groups.ring(axis, rank).value();
    all.push_back({ring.out, kRing, true, &out});
    all.push_back({ring.in, kRing, true, &in});
  };
  if (nn::TensorParallel::ring_used(shape, plan.settings.overlap.tp)) add_ring(mesh::Axis::tp, ring_out, ring_in);
  if (shape.passes_keys()) add_ring(mesh::Axis::cp, cp_ring_out, cp_ring_in);
  // The one order of all ranks: where opening waits for the other members, any other one may wait for ever.
  std::ranges::sort(all, {}, [](const Opening& opening) { return opening.spec.id; });

  // All streams before the first group: GPUs give out the queues of their hardware in the order in which streams are
  // made, NCCL makes some for each group, and streams that share a queue wait for each other.
  compute = device.make_stream("compute", tensor::StreamKind::compute);
  for (const Opening& opening : all) streams.push_back(device.make_stream(opening.spec.name, tensor::StreamKind::comm));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [spec, width, sends, communicator] = all[i];
    *communicator = of.open({spec.name, spec.id, spec.ranks, width}, *streams[i]);
    if (sends) (*communicator)->connect();
  }
}

void RankGroups::register_memory(const tensor::Memory& memory) {
  for (const auto* one : {&tp, &dp, &ep, &edp, &cp, &dp_shard, &dp_replicate, &edp_shard, &edp_replicate, &ring_out,
                          &ring_in, &cp_ring_out, &cp_ring_in})
    if (*one) (*one)->register_memory(memory);
  for (const auto& channel : channels)
    if (channel) channel->register_memory(memory);
}

optim::Replicas RankGroups::replicas(const mesh::Mesh& mesh, bool experts) const {
  const auto& shard = experts ? edp_shard : dp_shard;
  if (shard) return {shard.get(), (experts ? edp_replicate : dp_replicate).get()};
  comm::Communicator* all = (experts ? edp : dp).get();
  const mesh::ShardPlace place = mesh.shard_place(experts, {});
  return place.groups() > 1 ? optim::Replicas{.replicate = all} : optim::Replicas{.shard = all};
}

}  // namespace ms::train
