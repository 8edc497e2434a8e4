// The mesh: which ranks there are, where they stand on the axes dp, pp and tp, and which groups they form. Pure
// integers; room comm opens what is listed here. The axis tp runs fastest, then dp, then pp, so a TP group stays inside
// a node and DP groups lie closer together than pipelines. Every rank computes the same list of groups with the same
// ids.
//
// Context parallelism folds into dp, as ranks of both hold the same parameters: the mesh's dp is mesh.dp x mesh.cp of
// the configuration. Gradients, the optimizer's shards and checkpoints know that dp alone.
//
// Experts have an order of the ranks of their own, within a stage: by dp, each tp rank for itself; or by dp and then
// tp, if tp is folded (Mesh::folds_tp). Groups of ep are neighbours in that order and share the experts. A group of edp
// has one rank of each of them, which hold the same experts, or the same shards of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/layers.h"

namespace ms::mesh {

struct Coord {
  int dp = 0, pp = 0, tp = 0;
  bool operator==(const Coord&) const = default;
};

// ep and edp are of the experts of a mixture. cp groups are neighbours on dp, which share sequences.
enum class Axis : std::uint8_t { tp, dp, pp, ep, edp, cp };
std::string_view to_string(Axis axis);

// Where a rank stands among the ranks that hold the same parameters: dp, or edp for experts. These divide into shard
// groups of neighbours, each of which shares one copy of the optimizer's state.
struct ShardPlace {
  int replicas = 1, replica = 0;
  int shards = 1;  // ranks of a shard group

  int groups() const { return replicas / shards; }
  int group() const { return replica / shards; }
  int shard() const { return replica % shards; }
};

struct Mesh {
  int dp = 1, pp = 1, tp = 1;
  int ep = 1, cp = 1;  // divisors of dp; ep of dp x tp if tp is folded
  // Ranks of tp hold different experts, each as a whole (mesh.expert_tp = 1); else a shard each of the same ones.
  bool folds_tp = false;
  // Number of shard groups of dp. 1: one of all ranks. dp or more: nothing is sharded. If tp is folded, it is 1, or at
  // least dp x tp.
  int shard_groups = 1;
  EndLayers ends = {};  // of the layers over pp and chunks

  int expert_tp() const { return folds_tp ? 1 : tp; }
  int edp() const { return dp * tp / expert_tp() / ep; }
  int ep_rank(const Coord& at) const { return expert_place(at) % ep; }
  int edp_rank(const Coord& at) const { return expert_place(at) / ep; }
  // Whether experts are replicated over edp in place of dp.
  bool has_expert_groups() const { return ep > 1 || folds_tp; }
  int batch_parts() const { return dp / cp; }  // in which a batch is cut: mesh.dp of the configuration
  int batch_part(int dp_rank) const { return dp_rank / cp; }
  int size() const { return dp * pp * tp; }
  int size(Axis axis) const;
  // Ranks that share no experts within their part of a dp group have shard groups of one for these.
  ShardPlace shard_place(bool experts, const Coord& at) const;
  int rank(const Coord& coord) const { return (coord.pp * dp + coord.dp) * tp + coord.tp; }
  Coord coord(int rank) const { return {.dp = rank / tp % dp, .pp = rank / (tp * dp), .tp = rank % tp}; }
  // The ranks that differ from `rank` along one axis only, in the order of that axis, `rank` itself among them.
  std::vector<int> along(Axis axis, int rank) const;
  bool operator==(const Mesh&) const = default;

 private:
  int expert_place(const Coord& at) const { return folds_tp ? at.dp * tp + at.tp : at.dp; }
};

// `dp` is that of the configuration. Throws Error("mesh.size", user) unless all axes are at least 1 and fill `world`
// ranks exactly, and ep and expert_tp are as mesh/config.h documents them.
Mesh make_mesh(std::int64_t dp, std::int64_t pp, std::int64_t tp, std::int64_t world, std::int64_t ep = 1,
               std::int64_t cp = 1, std::int64_t expert_tp = 0);

// The pipeline channels as one rank sees them: the values of sched::Row::channel. Activations come in from the previous
// pp rank and go out to the next, gradients the other way round. With chunks the pipeline closes to a ring.
enum class Channel : std::uint8_t { forward_in, forward_out, backward_in, backward_out };
inline constexpr int kChannels = 4;

struct GroupSpec {
  std::string name;        // for humans: "tp[dp 0 pp 1]", "pp.fwd[dp 0 tp 1] 0>1"
  int id = 0;              // the same on every rank; dense, in the one global order of the run
  std::vector<int> ranks;  // in the order of the axis; of a channel: sender, receiver
  bool operator==(const GroupSpec&) const = default;
};

// All groups of a run, by arithmetic: nothing is stored. Global order: the world; all tp, dp, pp groups; forward
// channels; backward channels; embedding pairs; tp rings; ep and edp groups, if experts have them; cp groups and their
// rings, if cp is above 1; shard and replicate groups of dp, then of edp; within a kind by edge or pp, then dp, then
// tp; parts of a group by their number.
class Groups {
 public:
  // `chunks` > 1 adds the wrap-around from the last pp rank to the first; `tied_embeddings` adds the pairs of first and
  // last pp rank that sum the gradient of the shared embedding (none where pp is 1: they are the same rank).
  Groups(Mesh mesh, int chunks, bool tied_embeddings);

  GroupSpec world() const;
  GroupSpec along(Axis axis, int rank) const;
  // The rank's shard group, and the ranks of its dp group (edp for experts) that hold the same shard. Absent where that
  // is the rank alone or all of the group.
  std::optional<GroupSpec> shard(bool experts, int rank) const { return division(experts, rank, false); }
  std::optional<GroupSpec> replicate(bool experts, int rank) const { return division(experts, rank, true); }
  // The two-rank channel at one end of `rank`, absent at the ends of an open pipeline.
  std::optional<GroupSpec> channel(Channel channel, int rank) const;
  // The two channels of a rank in the ring of its tp or cp group: it sends to the next rank of the group and receives
  // from the previous one. Absent where the axis is 1.
  struct Ring {
    GroupSpec out, in;
  };
  std::optional<Ring> ring(Axis axis, int rank) const;
  // Absent on ranks that are neither first nor last, and where there are no such pairs.
  std::optional<GroupSpec> embedding(int rank) const;

  int count() const;
  std::vector<GroupSpec> all() const;         // in global order: the position is the id
  std::vector<GroupSpec> of(int rank) const;  // those with this rank as a member, in global order

 private:
  int edges() const { return mesh_.pp == 1 ? 0 : chunks_ > 1 ? mesh_.pp : mesh_.pp - 1; }
  int columns() const { return mesh_.dp * mesh_.tp; }  // pipelines side by side
  int first_id(Axis axis) const;
  int first_channel_id(bool forward) const;
  int first_ring_id(Axis axis) const;
  int first_ep_id() const { return first_ring_id(Axis::tp) + (mesh_.tp > 1 ? mesh_.size() : 0); }
  int first_cp_id() const;
  // Whether there are shard and replicate groups, and how many of both.
  bool divides(bool experts) const;
  int shard_group_count(bool experts) const;
  int first_shard_id(bool experts) const;
  std::optional<GroupSpec> division(bool experts, int rank, bool replicates) const;
  GroupSpec ring_channel(Axis axis, int rank) const;  // from this rank to the next of its group
  int first_embedding_id() const { return first_channel_id(false) + edges() * columns(); }
  GroupSpec edge_channel(bool forward, int edge, const Coord& at) const;

  Mesh mesh_;
  int chunks_;
  bool tied_embeddings_;
};

}  // namespace ms::mesh
