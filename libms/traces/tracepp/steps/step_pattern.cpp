#include "tracepp/steps/step_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "tracepp/gaps.h"
#include "tracepp/matching.h"
#include "tracepp/parallel.h"

namespace ms::tracepp {
namespace {

using As = Role::As;

// A checkpoint that takes more than this share of a step makes the step unfit for the pattern.
constexpr double kSaveShare = 0.02;
constexpr std::int64_t kMostRanks = 1 << 24;  // no run has more

Role role_of(const RunTrace& trace, const EventInfo& info) {
  const GroupAxis axis = info.group >= 0 ? trace.groups[static_cast<std::size_t>(info.group)].axis : GroupAxis::other;
  const auto op = [&](OpType type) { return Role{As::op, type, info.chunk}; };
  if (info.purpose == Purpose::evaluation || info.purpose == Purpose::checkpoint) return {As::breaks};
  switch (info.kind) {
    case Kind::step: return {As::step};
    case Kind::data_wait: return {As::data_wait};
    case Kind::save: return {As::save};
    case Kind::forward: return op(OpType::forward_compute);
    case Kind::backward: return op(OpType::backward_compute);
    case Kind::backward_input: return op(OpType::backward_input);
    case Kind::backward_weight: return op(OpType::backward_weight);
    case Kind::optimizer: return op(OpType::optimizer);
    case Kind::other_compute: return {As::other_work};
    default: break;
  }
  if (!trace::is_comm(info.kind)) return {};
  const bool serves = info.purpose == Purpose::forward || info.purpose == Purpose::backward;
  // A ring has each transfer twice: on the sender and on the receiver. The sends are skipped.
  if (axis == GroupAxis::tp && serves) return info.kind == Kind::send ? Role{} : Role{As::tp_collective};
  if (trace::is_point_to_point(info.kind) && serves) {
    const bool sends = info.kind == Kind::send, forward = info.purpose == Purpose::forward;
    return op(forward ? (sends ? OpType::forward_send : OpType::forward_recv)
                      : (sends ? OpType::backward_send : OpType::backward_recv));
  }
  switch (info.purpose) {
    case Purpose::params: return op(OpType::params_all_gather);
    case Purpose::grads: return op(OpType::grads_reduce_scatter);
    case Purpose::layernorm: return {As::sum, kSumTypes[0]};
    case Purpose::embedding: return {As::sum, kSumTypes[1]};
    case Purpose::clip: return op(OpType::optimizer_clip_main_grad);
    default: return {};
  }
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

// The outline of a rank's step, to be compared with others.
struct Outline {
  std::array<std::uint64_t, kOpTypes> hashes{};
  std::uint64_t tp_collectives = 0;
  std::int64_t saved_ns = 0, length_ns = 0;
  bool has_sum[2] = {false, false};
  bool is_bad = false;
  bool is_lost = false;  // events of it may be on pages that are lost; then it is bad, too

  std::uint64_t hash() const {
    std::uint64_t all = mixed(0, tp_collectives);
    for (const std::uint64_t of_type : hashes) all = mixed(all, of_type);
    return all;
  }
};

std::map<std::int32_t, Outline> outline(const RankTrace& rank, const std::vector<Role>& roles) {
  std::map<std::int32_t, Outline> steps;
  StepOf step_of(roles);
  std::int32_t current = kNoStep;
  Outline* of = nullptr;
  for (const Event& event : rank.events) {
    const Role& role = roles[event.info];
    if (role.as == As::nothing) continue;
    const std::int32_t step = step_of(event);
    if (step == kNoStep) continue;
    if (of == nullptr || step != current) of = &steps[current = step];
    if (event.state != State::ended || event.duration_ns < 0 || role.as == As::breaks) of->is_bad = true;
    if (role.as == As::tp_collective) ++of->tp_collectives;
    if (role.as == As::sum) of->has_sum[sum_of(role.type)] = true;
    if (role.as == As::save) of->saved_ns += event.duration_ns;
    if (role.as == As::step) of->length_ns = event.duration_ns;
    if (role.as != As::op) continue;
    std::uint64_t& hash = of->hashes[static_cast<std::size_t>(role.type)];
    hash = mixed(hash, std::uint64_t{event.microbatch} << 16 | static_cast<std::uint16_t>(role.chunk));
  }
  for (auto& [number, step] : steps) {
    if (static_cast<double>(step.saved_ns) > kSaveShare * static_cast<double>(step.length_ns)) step.is_bad = true;
    step.is_lost = std::ranges::any_of(
        rank.lost, [&](const LostSteps& lost) { return number >= lost.first && number <= lost.last; });
    step.is_bad |= step.is_lost;
  }
  return steps;
}

StagePattern pattern_of(const RunTrace& trace, const RankTrace& rank, std::int32_t step,
                        const std::vector<Role>& roles) {
  StagePattern pattern;
  std::array<std::vector<std::pair<int, std::int64_t>>, kOpTypes> found;  // chunk, size
  std::vector<std::pair<OpType, int>> sections;
  StepOf step_of(roles);
  for (const Event& event : rank.events) {
    const Role& role = roles[event.info];
    if (role.as == As::nothing || step_of(event) != step) continue;
    if (role.as == As::tp_collective) ++pattern.tp_collectives;
    if (role.as != As::op) continue;
    auto& of_type = found[static_cast<std::size_t>(role.type)];
    if (is_section(role.type)) sections.emplace_back(role.type, static_cast<int>(of_type.size()));
    of_type.emplace_back(role.chunk, trace.info(event).size_bytes);
  }
  for (std::size_t type = 0; type < found.size(); ++type) {
    pattern.first[type] = static_cast<int>(pattern.slots.size());
    pattern.count[type] = static_cast<int>(found[type].size());
    int number = 0;
    for (const auto& [chunk, size_bytes] : found[type])
      pattern.slots.push_back({static_cast<OpType>(type), chunk, number++, size_bytes});
  }
  for (const auto& [type, number] : sections) pattern.sections.push_back(pattern.slot(type, number));
  const auto receives = [&](OpType receive, OpType compute) {
    std::map<int, std::vector<int>> received;  // by chunk
    for (int k = 0; k < pattern.count_of(receive); ++k) {
      const int slot = pattern.slot(receive, k);
      received[pattern.slots[static_cast<std::size_t>(slot)].chunk].push_back(slot);
    }
    std::map<int, std::size_t> next;
    for (int k = 0; k < pattern.count_of(compute); ++k) {
      StagePattern::Slot& slot = pattern.slots[static_cast<std::size_t>(pattern.slot(compute, k))];
      const std::vector<int>& of_chunk = received[slot.chunk];
      const std::size_t number = next[slot.chunk]++;
      if (number < of_chunk.size()) slot.received_by = of_chunk[number];
    }
  };
  receives(OpType::forward_recv, OpType::forward_compute);
  receives(OpType::backward_recv, OpType::backward_compute);
  receives(OpType::backward_recv, OpType::backward_input);
  return pattern;
}

// Tells what the first rank that is used, but has no usual step `number`, has instead.
std::string why_left_out(const RunTrace& trace, const RunPattern& run,
                         const std::vector<std::map<std::int32_t, Outline>>& outlines, const auto& is_usual,
                         std::int32_t number) {
  for (std::size_t i = 0; i < outlines.size(); ++i) {
    const int rank = trace.ranks[i].rank;
    if (rank < 0 || static_cast<std::size_t>(rank) >= run.ranks.size()) continue;
    if (run.ranks[static_cast<std::size_t>(rank)] != &trace.ranks[i]) continue;
    const auto step = outlines[i].find(number);
    if (step == outlines[i].end()) return fmt::format("rank {} has nothing of it", rank);
    if (step->second.is_lost) return fmt::format("pages of rank {} with events of it are lost", rank);
    if (step->second.is_bad) return fmt::format("rank {} did not finish it, or did other work in it", rank);
    if (!is_usual(i, step->second)) return fmt::format("rank {} lacks operations of most steps, or has others", rank);
  }
  return "not on all ranks";
}

// Says what is missing of the traces, as the reason that no step can be used, or else `usual_hint`.
Error no_step(const RunTrace& trace, std::string what, const std::string& usual_hint) {
  const std::string gaps = gaps_text(find_gaps(trace));
  if (gaps.empty()) return user_error("trace.shape", what, usual_hint);
  return user_error("trace.shape", fmt::format("{}: {}", what, gaps), "copy the files of all ranks anew, and whole");
}

}  // namespace

double StagePattern::size(OpType type) const {
  std::int64_t bytes = 0;
  for (int k = 0; k < count_of(type); ++k) {
    const std::int64_t size_bytes = slots[static_cast<std::size_t>(slot(type, k))].size_bytes;
    if (size_bytes <= 0) return count_of(type);
    bytes += size_bytes;
  }
  return static_cast<double>(bytes);
}

int StagePattern::first_forward(int chunk) const {
  const auto found = std::ranges::find_if(sections, [&](int slot) {
    const Slot& section = slots[static_cast<std::size_t>(slot)];
    return section.chunk == chunk && section.type == OpType::forward_compute;
  });
  return found == sections.end() ? -1 : *found;
}

int StagePattern::last_backward(int chunk) const {
  int last = -1;
  for (const int slot : sections) {
    const Slot& section = slots[static_cast<std::size_t>(slot)];
    if (section.chunk == chunk && is_backward(section.type)) last = slot;
  }
  return last;
}

bool RunPattern::has_all_dp(const mesh::Mesh& mesh, int pp, int tp) const {
  for (int dp = 0; dp < mesh.dp; ++dp)
    if (ranks[static_cast<std::size_t>(mesh.rank({.dp = dp, .pp = pp, .tp = tp}))] == nullptr) return false;
  return true;
}

std::vector<Role> roles_of(const RunTrace& trace) {
  std::vector<Role> roles;
  for (const EventInfo& info : trace.infos) roles.push_back(role_of(trace, info));
  return roles;
}

RunPattern find_pattern(const RunTrace& trace) {
  const mesh::Mesh& mesh = trace.mesh;
  const bool is_mesh = trace.has_mesh && mesh.dp >= 1 && mesh.pp >= 1 && mesh.tp >= 1 &&
                       std::int64_t{mesh.dp} * mesh.pp <= kMostRanks / mesh.tp;
  // Those of torch.profiler are not marked.
  const bool has_sections = trace.mesh_why.empty() || std::ranges::any_of(trace.infos, [](const EventInfo& info) {
                              return info.kind == Kind::forward;
                            });
  if (!is_mesh || !has_sections) {
    throw user_error("trace.shape",
                     is_mesh ? "the trace does not mark forwards and backwards"
                             : "the trace does not say how ranks lie on the axes dp, pp and tp",
                     match_operations(trace).tie_ranks()
                         ? "ms-tracepp report tells which rank comes last to collectives"
                         : "no communication of two ranks could be matched either: ms-tracepp info tells why");
  }
  RunPattern run;
  run.roles = roles_of(trace);
  std::vector<std::map<std::int32_t, Outline>> outlines(trace.ranks.size());
  in_blocks(trace.ranks.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) outlines[i] = outline(trace.ranks[i], run.roles);
  });

  // Each stage's usual step is the outline that most steps of its ranks have.
  std::vector<std::unordered_map<std::uint64_t, std::size_t>> votes(static_cast<std::size_t>(mesh.pp));
  const auto stage_of = [&](std::size_t i) { return static_cast<std::size_t>(trace.ranks[i].at.pp); };
  const auto is_placed = [&](std::size_t i) {
    const RankTrace& rank = trace.ranks[i];
    return rank.rank >= 0 && rank.rank < mesh.size() && rank.at == mesh.coord(rank.rank);
  };
  for (std::size_t i = 0; i < outlines.size(); ++i) {
    if (!is_placed(i)) continue;
    for (const auto& [number, step] : outlines[i])
      if (!step.is_bad) ++votes[stage_of(i)][step.hash()];
  }
  std::vector<std::uint64_t> usual(votes.size(), 0);
  for (std::size_t stage = 0; stage < votes.size(); ++stage) {
    std::size_t most = 0;
    for (const auto& [hash, count] : votes[stage]) {
      // The smaller hash wins a tie: the answer must not depend on the order of a hash map.
      if (count > most || (count == most && hash < usual[stage]))
        std::tie(most, usual[stage]) = std::tuple(count, hash);
    }
  }
  const auto is_usual = [&](std::size_t i, const Outline& step) {
    return !step.is_bad && step.hash() == usual[stage_of(i)];
  };

  run.ranks.assign(static_cast<std::size_t>(mesh.size()), nullptr);
  run.stages.resize(votes.size());
  std::vector<bool> is_known(votes.size(), false);
  std::map<std::int32_t, std::size_t> whole;  // on how many ranks
  std::size_t used = 0;
  std::vector<std::array<bool, 2>> sums(votes.size(), {false, false});
  std::vector<int> traced(static_cast<std::size_t>(mesh.dp * mesh.pp), 0);
  for (std::size_t i = 0; i < outlines.size(); ++i) {
    if (!is_placed(i)) continue;
    if (std::ranges::any_of(outlines[i], [&](const auto& step) { return is_usual(i, step.second); }))
      ++traced[static_cast<std::size_t>(trace.ranks[i].at.dp * mesh.pp + trace.ranks[i].at.pp)];
  }
  for (int dp = 0; dp < mesh.dp; ++dp) {
    const auto first = traced.begin() + dp * mesh.pp;
    if (std::all_of(first, first + mesh.pp, [](int ranks) { return ranks > 0; })) run.dp_ranks.push_back(dp);
  }
  if (run.dp_ranks.empty()) {
    throw no_step(trace, fmt::format("of none of the {} dp ranks a step was traced on all {} stages", mesh.dp, mesh.pp),
                  "");
  }
  for (std::size_t i = 0; i < outlines.size(); ++i) {
    if (!is_placed(i) || !std::ranges::binary_search(run.dp_ranks, trace.ranks[i].at.dp)) continue;
    bool is_used = false;
    for (const auto& [number, step] : outlines[i]) {
      std::size_t& count = whole[number];
      if (!is_usual(i, step)) continue;
      ++count;
      is_used = true;
      if (!is_known[stage_of(i)]) {
        run.stages[stage_of(i)] = pattern_of(trace, trace.ranks[i], number, run.roles);
        is_known[stage_of(i)] = true;
      }
    }
    if (!is_used) continue;
    for (const auto& [number, step] : outlines[i])
      for (std::size_t k = 0; k < 2; ++k) sums[stage_of(i)][k] |= step.has_sum[k];
    run.ranks[static_cast<std::size_t>(trace.ranks[i].rank)] = &trace.ranks[i];
    ++used;
  }
  for (std::size_t stage = 0; stage < sums.size(); ++stage) std::ranges::copy(sums[stage], run.stages[stage].has_sum);
  for (const auto& [number, count] : whole) {
    if (count == used) {
      run.step_at[number] = static_cast<int>(run.steps.size());
      run.steps.push_back(number);
    } else {
      run.left_out.push_back({number, why_left_out(trace, run, outlines, is_usual, number)});
    }
  }
  if (run.steps.empty()) {
    throw no_step(trace, fmt::format("none of {} steps is whole on all {} ranks", whole.size(), used),
                  "steps with an evaluation or a checkpoint do not count, nor the first and the last one");
  }
  return run;
}

}  // namespace ms::tracepp
