#include "mesh/mesh.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ms::mesh {

std::string_view to_string(Axis axis) {
  switch (axis) {
    case Axis::tp: return "tp";
    case Axis::dp: return "dp";
    case Axis::pp: return "pp";
    case Axis::ep: return "ep";
    case Axis::edp: return "edp";
    case Axis::cp: return "cp";
  }
  return "?";
}

int Mesh::size(Axis axis) const {
  switch (axis) {
    case Axis::tp: return tp;
    case Axis::dp: return dp;
    case Axis::pp: return pp;
    case Axis::ep: return ep;
    case Axis::edp: return edp();
    case Axis::cp: return cp;
  }
  return 0;
}

std::vector<int> Mesh::along(Axis axis, int rank_in_world) const {
  MS_ASSERT(rank_in_world >= 0 && rank_in_world < size(), "rank {} of a mesh of {}", rank_in_world, size());
  const Coord at = coord(rank_in_world);
  const auto of_experts = [&](int place) {
    return folds_tp ? Coord{.dp = place / tp, .pp = at.pp, .tp = place % tp} : Coord{place, at.pp, at.tp};
  };
  std::vector<int> ranks;
  for (int i = 0; i < size(axis); ++i) {
    Coord member = at;
    switch (axis) {
      case Axis::tp: member.tp = i; break;
      case Axis::dp: member.dp = i; break;
      case Axis::pp: member.pp = i; break;
      case Axis::ep: member = of_experts(edp_rank(at) * ep + i); break;
      case Axis::edp: member = of_experts(ep_rank(at) + i * ep); break;
      case Axis::cp: member.dp = at.dp / cp * cp + i; break;
    }
    ranks.push_back(rank(member));
  }
  return ranks;
}

ShardPlace Mesh::shard_place(bool experts, const Coord& at) const {
  if (!experts) return {.replicas = dp, .replica = at.dp, .shards = std::max(1, dp / shard_groups)};
  return {.replicas = edp(), .replica = edp_rank(at), .shards = std::max(1, edp() / shard_groups)};
}

Mesh make_mesh(std::int64_t dp, std::int64_t pp, std::int64_t tp, std::int64_t world, std::int64_t ep, std::int64_t cp,
               std::int64_t expert_tp) {
  constexpr std::int64_t kMaxRanks = 1 << 24;  // keeps their number and every group id inside an int
  for (const auto& [name, value] : {std::pair{"dp", dp}, {"pp", pp}, {"tp", tp}, {"cp", cp}}) {
    if (value < 1 || value > kMaxRanks) {
      throw user_error("mesh.size", fmt::format("mesh.{} is {}, it must be from 1 to {}", name, value, kMaxRanks));
    }
  }
  // Division: dp * pp * tp * cp could overflow.
  if (world < 1 || world > kMaxRanks || world % (dp * pp) != 0 || world / (dp * pp) % tp != 0 ||
      world / (dp * pp) / tp != cp) {
    throw user_error("mesh.size",
                     fmt::format("dp {} x pp {} x tp {}{} does not equal the number of ranks, {}", dp, pp, tp,
                                 cp > 1 ? fmt::format(" x cp {}", cp) : "", world),
                     "change [mesh] or the number of ranks");
  }
  const bool folds_tp = expert_tp != 0 && expert_tp != tp;
  if (folds_tp && expert_tp != 1)
    throw user_error("mesh.size", fmt::format("mesh.expert_tp = {} is neither 1 nor mesh.tp = {}", expert_tp, tp));
  const std::int64_t ranks = folds_tp ? dp * tp : dp;
  if (ep < 1 || ranks % ep != 0 || (folds_tp && ep % tp != 0 && tp % ep != 0)) {
    throw user_error(
        "mesh.size",
        fmt::format(
            "mesh.ep = {} does not divide mesh.dp = {}{}", ep, dp,
            folds_tp ? fmt::format(" x mesh.tp = {}, or neither divides mesh.tp nor is a multiple of it", tp) : ""));
  }
  return {.dp = static_cast<int>(dp * cp),
          .pp = static_cast<int>(pp),
          .tp = static_cast<int>(tp),
          .ep = static_cast<int>(ep),
          .cp = static_cast<int>(cp),
          .folds_tp = folds_tp};
}

Groups::Groups(Mesh mesh, int chunks, bool tied_embeddings)
    : mesh_(mesh), chunks_(chunks), tied_embeddings_(tied_embeddings) {
  MS_ASSERT(mesh.dp >= 1 && mesh.pp >= 1 && mesh.tp >= 1 && chunks >= 1, "a mesh of {} x {} x {} with {} chunks",
            mesh.dp, mesh.pp, mesh.tp, chunks);
}

int Groups::first_id(Axis axis) const {
  const int tp_groups = mesh_.dp * mesh_.pp;
  const int dp_groups = mesh_.pp * mesh_.tp;
  switch (axis) {
    case Axis::tp: return 1;  // the world is 0
    case Axis::dp: return 1 + tp_groups;
    case Axis::pp: return 1 + tp_groups + dp_groups;
    case Axis::ep: return first_ep_id();
    case Axis::edp: return first_ep_id() + mesh_.size() / mesh_.ep;
    case Axis::cp: return first_cp_id();
  }
  return 0;
}

int Groups::first_channel_id(bool forward) const {
  const int after_axes = first_id(Axis::pp) + columns();
  return forward ? after_axes : after_axes + edges() * columns();
}

int Groups::first_ring_id(Axis axis) const {
  if (axis == Axis::cp) return first_cp_id() + mesh_.size() / mesh_.cp;
  const bool pairs = tied_embeddings_ && mesh_.pp > 1;
  return first_embedding_id() + (pairs ? columns() : 0);
}

int Groups::first_cp_id() const {
  return first_ep_id() + (mesh_.has_expert_groups() ? mesh_.size() / mesh_.ep + mesh_.size() / mesh_.edp() : 0);
}

bool Groups::divides(bool experts) const {
  const ShardPlace place = mesh_.shard_place(experts, {});
  return (!experts || mesh_.has_expert_groups()) && place.shards > 1 && place.groups() > 1;
}

int Groups::shard_group_count(bool experts) const {
  const ShardPlace place = mesh_.shard_place(experts, {});
  return divides(experts) ? mesh_.size() / place.shards + mesh_.size() / place.groups() : 0;
}

int Groups::first_shard_id(bool experts) const {
  const int after_cp = first_cp_id() + (mesh_.cp > 1 ? mesh_.size() / mesh_.cp + mesh_.size() : 0);
  return after_cp + (experts ? shard_group_count(false) : 0);
}

int Groups::count() const { return first_shard_id(true) + shard_group_count(true); }

GroupSpec Groups::world() const {
  GroupSpec group{.name = "world", .id = 0, .ranks = {}};
  for (int rank = 0; rank < mesh_.size(); ++rank) group.ranks.push_back(rank);
  return group;
}

GroupSpec Groups::along(Axis axis, int rank) const {
  const Coord at = mesh_.coord(rank);
  GroupSpec group{.name = {}, .id = first_id(axis), .ranks = mesh_.along(axis, rank)};
  const auto neighbours = [&] {
    const Coord first = mesh_.coord(group.ranks.front()), last = mesh_.coord(group.ranks.back());
    const auto range = [](int a, int b) { return a == b ? std::to_string(a) : fmt::format("{}-{}", a, b); };
    return fmt::format("{}[dp {} pp {} tp {}]", to_string(axis), range(first.dp, last.dp), at.pp,
                       range(first.tp, last.tp));
  };
  const int shards = mesh_.expert_tp(), shard = at.tp % shards;
  switch (axis) {
    case Axis::tp:
      group.name = fmt::format("tp[dp {} pp {}]", at.dp, at.pp);
      group.id += at.pp * mesh_.dp + at.dp;
      break;
    case Axis::dp:
      group.name = fmt::format("dp[pp {} tp {}]", at.pp, at.tp);
      group.id += at.pp * mesh_.tp + at.tp;
      break;
    case Axis::pp:
      group.name = fmt::format("pp[dp {} tp {}]", at.dp, at.tp);
      group.id += at.dp * mesh_.tp + at.tp;
      break;
    case Axis::ep:
      group.name = neighbours();
      group.id += (at.pp * mesh_.edp() + mesh_.edp_rank(at)) * shards + shard;
      break;
    case Axis::edp:
      group.name = fmt::format("edp[ep {} pp {}{}]", mesh_.ep_rank(at), at.pp,
                               mesh_.folds_tp ? "" : fmt::format(" tp {}", at.tp));
      group.id += (at.pp * mesh_.ep + mesh_.ep_rank(at)) * shards + shard;
      break;
    case Axis::cp:
      group.name = neighbours();
      group.id += (at.pp * mesh_.batch_parts() + mesh_.batch_part(at.dp)) * mesh_.tp + at.tp;
      break;
  }
  return group;
}

std::optional<GroupSpec> Groups::division(bool experts, int rank, bool replicates) const {
  if (!divides(experts)) return std::nullopt;
  const Axis axis = experts ? Axis::edp : Axis::dp;
  const ShardPlace place = mesh_.shard_place(experts, mesh_.coord(rank));
  const int parts = replicates ? place.shards : place.groups(), part = replicates ? place.shard() : place.group();
  GroupSpec group = along(axis, rank);
  group.id = first_shard_id(experts) + (replicates ? mesh_.size() / place.shards : 0) +
             (group.id - first_id(axis)) * parts + part;
  group.name.insert(group.name.find('['), replicates ? ".replicate" : ".shard");
  group.name += fmt::format(" {}", part);
  std::vector<int> members;
  for (int i = 0; i < place.replicas; ++i) {
    if ((replicates ? i % place.shards : i / place.shards) == part)
      members.push_back(group.ranks[static_cast<std::size_t>(i)]);
  }
  group.ranks = std::move(members);
  return group;
}

// Edge e joins pp rank e and its successor; gradients run from the successor back.
GroupSpec Groups::edge_channel(bool forward, int edge, const Coord& at) const {
  const int next = (edge + 1) % mesh_.pp;
  const int from = forward ? edge : next;
  const int to = forward ? next : edge;
  return {
      .name = fmt::format("pp.{}[dp {} tp {}] {}>{}", forward ? "fwd" : "bwd", at.dp, at.tp, from, to),
      .id = first_channel_id(forward) + edge * columns() + at.dp * mesh_.tp + at.tp,
      .ranks = {mesh_.rank({.dp = at.dp, .pp = from, .tp = at.tp}), mesh_.rank({.dp = at.dp, .pp = to, .tp = at.tp})}};
}

std::optional<GroupSpec> Groups::channel(Channel channel, int rank) const {
  const Coord at = mesh_.coord(rank);
  const bool forward = channel == Channel::forward_in || channel == Channel::forward_out;
  const bool towards_next = channel == Channel::forward_out || channel == Channel::backward_in;
  const int edge = towards_next ? at.pp : (at.pp + mesh_.pp - 1) % mesh_.pp;
  if (edge >= edges()) return std::nullopt;
  return edge_channel(forward, edge, at);
}

std::optional<GroupSpec> Groups::embedding(int rank) const {
  const Coord at = mesh_.coord(rank);
  const int last = mesh_.pp - 1;
  if (!tied_embeddings_ || last == 0 || (at.pp != 0 && at.pp != last)) return std::nullopt;
  return GroupSpec{
      .name = fmt::format("embed[dp {} tp {}]", at.dp, at.tp),
      .id = first_embedding_id() + at.dp * mesh_.tp + at.tp,
      .ranks = {mesh_.rank({.dp = at.dp, .pp = 0, .tp = at.tp}), mesh_.rank({.dp = at.dp, .pp = last, .tp = at.tp})}};
}

GroupSpec Groups::ring_channel(Axis axis, int rank) const {
  GroupSpec group = along(axis, rank);
  const auto place = static_cast<std::size_t>(std::ranges::find(group.ranks, rank) - group.ranks.begin());
  const std::size_t next = (place + 1) % group.ranks.size();
  group.name.insert(group.name.find('['), ".ring");
  return {.name = fmt::format("{} {}>{}", group.name, place, next),
          .id = first_ring_id(axis) + rank,
          .ranks = {rank, group.ranks[next]}};
}

std::optional<Groups::Ring> Groups::ring(Axis axis, int rank) const {
  if (mesh_.size(axis) == 1) return std::nullopt;
  const std::vector<int> ranks = mesh_.along(axis, rank);
  const auto place = static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
  const int previous = ranks[(place + ranks.size() - 1) % ranks.size()];
  return Ring{.out = ring_channel(axis, rank), .in = ring_channel(axis, previous)};
}

std::vector<GroupSpec> Groups::of(int rank) const {
  std::vector<GroupSpec> groups{world(), along(Axis::tp, rank), along(Axis::dp, rank), along(Axis::pp, rank)};
  const auto add = [&groups](std::optional<GroupSpec> group) {
    if (group) groups.push_back(std::move(*group));
  };
  // Ids rise with the edge: the edge to the next pp rank comes after the edge from the previous, except on rank 0 of a
  // ring, where the previous edge is the last one.
  const bool ring_start = mesh_.coord(rank).pp == 0;
  add(channel(ring_start ? Channel::forward_out : Channel::forward_in, rank));
  add(channel(ring_start ? Channel::forward_in : Channel::forward_out, rank));
  add(channel(ring_start ? Channel::backward_in : Channel::backward_out, rank));
  add(channel(ring_start ? Channel::backward_out : Channel::backward_in, rank));
  add(embedding(rank));
  const auto add_ring = [&](Axis axis) {
    auto channels = ring(axis, rank);
    if (!channels) return;
    if (channels->in.id < channels->out.id) std::swap(channels->in, channels->out);
    groups.push_back(std::move(channels->out));
    groups.push_back(std::move(channels->in));
  };
  add_ring(Axis::tp);
  if (mesh_.has_expert_groups()) {
    groups.push_back(along(Axis::ep, rank));
    groups.push_back(along(Axis::edp, rank));
  }
  if (mesh_.cp > 1) groups.push_back(along(Axis::cp, rank));
  add_ring(Axis::cp);
  for (const bool experts : {false, true}) {
    add(shard(experts, rank));
    add(replicate(experts, rank));
  }
  return groups;
}

std::vector<GroupSpec> Groups::all() const {
  std::vector<GroupSpec> groups{world()};
  const auto add_axis = [&](Axis axis) {
    for (int rank = 0; rank < mesh_.size(); ++rank) {
      GroupSpec group = along(axis, rank);
      if (group.ranks.front() == rank) groups.push_back(std::move(group));  // once, from its first member
    }
  };
  add_axis(Axis::tp);
  add_axis(Axis::dp);
  add_axis(Axis::pp);
  for (const bool forward : {true, false}) {
    for (int edge = 0; edge < edges(); ++edge) {
      for (int rank = 0; rank < columns(); ++rank) groups.push_back(edge_channel(forward, edge, mesh_.coord(rank)));
    }
  }
  for (int rank = 0; rank < columns(); ++rank) {
    if (auto group = embedding(rank)) groups.push_back(std::move(*group));
  }
  const auto add_rings = [&](Axis axis) {
    for (int rank = 0; mesh_.size(axis) > 1 && rank < mesh_.size(); ++rank) groups.push_back(ring_channel(axis, rank));
  };
  add_rings(Axis::tp);
  if (mesh_.has_expert_groups()) {
    add_axis(Axis::ep);
    add_axis(Axis::edp);
  }
  if (mesh_.cp > 1) add_axis(Axis::cp);
  add_rings(Axis::cp);
  const std::size_t first_shard = groups.size();
  for (const bool experts : {false, true}) {
    for (int rank = 0; rank < mesh_.size(); ++rank) {
      for (auto group : {shard(experts, rank), replicate(experts, rank)})
        if (group && group->ranks.front() == rank) groups.push_back(std::move(*group));
    }
  }
  std::ranges::sort(groups.begin() + static_cast<std::ptrdiff_t>(first_shard), groups.end(), {}, &GroupSpec::id);
  return groups;
}

}  // namespace ms::mesh
