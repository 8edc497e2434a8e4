#include "tracepp/read/group_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tracepp/read/process_groups.h"
#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kShownName = 60;

std::string_view to_string(GroupRole role) {
  static constexpr std::array<std::string_view, 8> kNames{"no axis", "world", "tp", "pp", "dp", "cp", "ep", "no axis"};
  return kNames[static_cast<std::size_t>(role)];
}

// A group of several ranks, at equal distances.
struct Line {
  const ProcessGroup* group;
  GroupRole role;
  int first, size, stride;
};

// How often a group of unknown role does what.
struct Uses {
  std::uint64_t sums = 0, shards = 0, exchanges = 0;  // all_reduce; all_gather, reduce_scatter; all_to_all
  bool transfers = false;
};

class Inference {
 public:
  explicit Inference(RunTrace& trace) : trace_(trace) {}

  // Returns why there is no mesh; empty: it is set.
  std::string run() {
    if (std::ranges::any_of(trace_.ranks, [](const RankTrace& rank) { return rank.numbered == Numbered::made_up; }))
      return "nothing tells the numbers of its ranks";
    find_lines();
    if (lines_.empty()) return "it lists no process groups with their ranks";
    world_ = world();
    if (world_ < 1) return "it does not say how many ranks the job has";
    if (world_ <= trace_.ranks.back().rank) return "it has ranks beyond the size of the world";
    find_uses();
    return is_one_group() ? plain() : by_axes();
  }

 private:
  static bool is_channel(const ProcessGroup& group) { return group.name.find('>') != std::string::npos; }

  static bool is_axis(const Line& line) {
    return line.role == GroupRole::tp || line.role == GroupRole::pp || line.role == GroupRole::dp ||
           line.role == GroupRole::cp;
  }

  void find_lines() {
    for (const ProcessGroup& group : trace_.groups) {
      if (group.ranks.size() < 2 || is_channel(group) || group.is_guessed) continue;
      std::vector<int> ranks = group.ranks;
      std::ranges::sort(ranks);
      const int stride = ranks[1] - ranks[0];
      bool is_even = stride > 0;
      for (std::size_t i = 2; i < ranks.size(); ++i) is_even = is_even && ranks[i] - ranks[i - 1] == stride;
      const GroupRole role = role_of_group(ProcessGroups::description(group));
      if (is_even) lines_.push_back({&group, role, ranks[0], static_cast<int>(ranks.size()), stride});
    }
  }

  std::int64_t world() const {
    if (trace_.world > 0) return trace_.world;
    std::int64_t most = 0;
    for (const Line& line : lines_)
      if (line.first == 0 && line.stride == 1) most = std::max<std::int64_t>(most, line.size);
    // Without a group of all ranks: those of the traces, if they are whole.
    return std::max<std::int64_t>(
        most, std::ssize(trace_.ranks) == trace_.ranks.back().rank + 1 ? std::ssize(trace_.ranks) : std::int64_t{0});
  }

  bool is_one_group() const {
    return std::ranges::all_of(
        lines_, [&](const Line& line) { return line.size == world_ && line.first == 0 && line.stride == 1; });
  }

  // All groups hold all ranks. Which axis they serve is what frameworks do with such a group.
  std::string plain() {
    if (std::ranges::any_of(lines_, is_axis)) return by_axes();
    set({.dp = static_cast<int>(world_)},
        "taken for data-parallel: all process groups hold all ranks, and none is described as anything else");
    return {};
  }

  void find_uses() {
    if (std::ranges::none_of(lines_, [](const Line& line) { return line.role == GroupRole::unknown; })) return;
    std::vector<std::uint64_t> events(trace_.infos.size());
    for (const RankTrace& rank : trace_.ranks)
      for (const Event& event : rank.events) ++events[event.info];
    for (Line& line : lines_) {
      if (line.role != GroupRole::unknown) continue;
      Uses uses;
      uses.transfers = std::ranges::any_of(trace_.groups, [&](const ProcessGroup& group) {
        return is_channel(group) && group.name.starts_with(line.group->name + " ");
      });
      for (std::size_t i = 0; i < events.size(); ++i) {
        const EventInfo& info = trace_.infos[i];
        if (info.group < 0 || &trace_.groups[static_cast<std::size_t>(info.group)] != line.group) continue;
        if (info.kind == Kind::all_reduce) uses.sums += events[i];
        if (info.kind == Kind::all_gather || info.kind == Kind::reduce_scatter) uses.shards += events[i];
        if (info.kind == Kind::all_to_all) uses.exchanges += events[i];
      }
      line.role = role_by(line, uses);
    }
    // Neighbours that add up many times a step: tensor-parallel, if further apart there are others that do little.
    const bool has_far =
        std::ranges::any_of(lines_, [](const Line& line) { return line.role == GroupRole::dp && line.stride > 1; });
    for (Line& line : lines_)
      if (line.role == GroupRole::tp && !has_far &&
          role_of_group(ProcessGroups::description(*line.group)) == GroupRole::unknown)
        line.role = GroupRole::unknown;
  }

  GroupRole role_by(const Line& line, const Uses& uses) const {
    if (line.size == world_) return GroupRole::other;
    if (uses.transfers) return GroupRole::pp;
    if (uses.exchanges > 0) return GroupRole::other;  // of experts, or of sequences: within dp
    if (uses.sums + uses.shards == 0) return GroupRole::other;
    if (line.stride > 1) return GroupRole::dp;
    // Gathers and scatters among neighbours are tensor parallelism over sequences, or sharded data parallelism.
    return uses.sums > 2 * uses.shards ? GroupRole::tp : GroupRole::unknown;
  }

  std::string by_axes() {
    int tp = 1, pp = 1;
    for (const Line& line : lines_) {
      if (line.role == GroupRole::unknown) {
        return fmt::format("group {} has no description, and what it does fits several axes", shown(*line.group));
      }
      if (line.role != GroupRole::tp && line.role != GroupRole::pp) continue;
      int& size = line.role == GroupRole::tp ? tp : pp;
      if (size > 1 && size != line.size) return fmt::format("its {} groups differ in size", to_string(line.role));
      size = line.size;
    }
    if (world_ % (std::int64_t{tp} * pp) != 0)
      return fmt::format("{} ranks are no multiple of tp {} x pp {}", world_, tp, pp);
    const mesh::Mesh mesh{.dp = static_cast<int>(world_ / tp / pp), .pp = pp, .tp = tp};
    for (const Line& line : lines_) {
      if (fits(line, mesh)) continue;
      return fmt::format("group {} lies on no axis of dp {} x pp {} x tp {} in the order tp, dp, pp",
                         shown(*line.group), mesh.dp, mesh.pp, mesh.tp);
    }
    std::vector<std::string> parts;
    if (const std::int64_t span = explained(parts); span != world_) {
      return fmt::format("its groups on the axes tp, dp and pp explain {} of {} ranks: further groups are not listed",
                         span, world_);
    }
    std::string why = fmt::format("inferred from process groups: {}", fmt::join(parts, ", "));
    for (const GroupRole role : {GroupRole::cp, GroupRole::ep}) {
      const auto of = std::ranges::find(lines_, role, &Line::role);
      if (of != lines_.end()) why += fmt::format("; {} {}", to_string(role), of->size);
    }
    set(mesh, why);
    return {};
  }

  static bool fits(const Line& line, const mesh::Mesh& mesh) {
    if (!is_axis(line)) return true;
    const int last = line.first + (line.size - 1) * line.stride;
    if (last >= mesh.size()) return false;
    const mesh::Coord a = mesh.coord(line.first);
    for (int i = 1; i < line.size; ++i) {
      const mesh::Coord b = mesh.coord(line.first + i * line.stride);
      const bool same_tp = a.tp == b.tp, same_dp = a.dp == b.dp, same_pp = a.pp == b.pp;
      if (line.role == GroupRole::tp   ? !(same_dp && same_pp)
          : line.role == GroupRole::pp ? !(same_dp && same_tp)
                                       : !(same_tp && same_pp)) {
        return false;
      }
    }
    return true;
  }

  // Goes from the fastest axis to the slowest. Returns how many ranks the groups on the way span.
  std::int64_t explained(std::vector<std::string>& parts) const {
    std::int64_t span = 1;
    while (true) {
      const Line* next = nullptr;
      for (const Line& line : lines_) {
        if (is_axis(line) && line.stride == span && (next == nullptr || line.size > next->size)) next = &line;
      }
      if (next == nullptr || next->size < 2) return span;
      span *= next->size;
      const std::string_view about = ProcessGroups::description(*next->group);
      parts.push_back(fmt::format("{} of {} ranks ({}{})",
                                  about.empty() ? std::string("groups") : plain_text(about, kShownName), next->size,
                                  to_string(next->role), about.empty() ? " by what they do" : ""));
    }
  }

  static std::string shown(const ProcessGroup& group) { return plain_text(group.name, kShownName); }

  void set(const mesh::Mesh& mesh, std::string why) {
    trace_.mesh = mesh;
    trace_.has_mesh = true;
    trace_.mesh_why = std::move(why);
    for (RankTrace& rank : trace_.ranks) rank.at = mesh.coord(rank.rank);
    // A group without a description has the axis that it was found to serve.
    for (const Line& line : lines_) {
      ProcessGroup& group = trace_.groups[static_cast<std::size_t>(line.group - trace_.groups.data())];
      if (group.axis != GroupAxis::other) continue;
      if (line.role == GroupRole::tp) group.axis = GroupAxis::tp;
      if (line.role == GroupRole::dp) group.axis = GroupAxis::dp;
    }
  }

  RunTrace& trace_;
  std::vector<Line> lines_;
  std::int64_t world_ = 0;
};

}  // namespace

GroupRole role_of_group(std::string_view description) {
  static constexpr std::array<std::pair<std::string_view, GroupRole>, 40> kRoles{{
      {"", GroupRole::unknown},
      {"undefined", GroupRole::unknown},
      {"dim0", GroupRole::unknown},
      {"dim1", GroupRole::unknown},
      {"dim2", GroupRole::unknown},
      {"defaultpg", GroupRole::world},
      {"default", GroupRole::world},
      {"world", GroupRole::world},
      {"tensormodelparallelgroup", GroupRole::tp},
      {"tensorparallel", GroupRole::tp},
      {"tensor", GroupRole::tp},
      {"tp", GroupRole::tp},
      {"pipelinemodelparallelgroup", GroupRole::pp},
      {"pipelineparallel", GroupRole::pp},
      {"pipeline", GroupRole::pp},
      {"pipe", GroupRole::pp},
      {"pp", GroupRole::pp},
      {"dataparallelgroup", GroupRole::dp},
      {"dataparallelgroupwithcp", GroupRole::dp},
      {"intrapartialdataparallelgroupwithcp", GroupRole::dp},
      {"interpartialdataparallelgroupwithcp", GroupRole::dp},
      {"dataparallel", GroupRole::dp},
      {"data", GroupRole::dp},
      {"dp", GroupRole::dp},
      {"ddp", GroupRole::dp},
      {"fsdp", GroupRole::dp},
      {"hsdp", GroupRole::dp},
      {"replicate", GroupRole::dp},
      {"shard", GroupRole::dp},
      {"dpreplicate", GroupRole::dp},
      {"dpshard", GroupRole::dp},
      {"dpshardcp", GroupRole::dp},
      {"dpcp", GroupRole::dp},
      {"batch", GroupRole::dp},
      {"lossmesh", GroupRole::dp},
      {"contextparallelgroup", GroupRole::cp},
      {"contextparallel", GroupRole::cp},
      {"cp", GroupRole::cp},
      {"expertmodelparallelgroup", GroupRole::ep},
      {"ep", GroupRole::ep},
  }};
  std::string name = plain_name(description);
  if (name.find("split") != std::string::npos) return GroupRole::unknown;  // "default_pg:split:1"
  if (name.starts_with("mesh")) name.erase(0, 4);
  for (const std::string_view twin : {"gloo", "ag"})  // a second group of the same ranks
    if (name.ends_with(twin) && name.find("group") != std::string::npos) name.erase(name.size() - twin.size());
  const auto* const found = std::ranges::find(kRoles, name, &std::pair<std::string_view, GroupRole>::first);
  return found == kRoles.end() ? GroupRole::other : found->second;
}

void infer_mesh(RunTrace& trace) {
  if (trace.has_mesh || trace.ranks.empty()) return;
  if (std::string why = Inference(trace).run(); !why.empty()) trace.mesh_why = std::move(why);
}

}  // namespace ms::tracepp
