// The pattern of a run's steps: for every pipeline stage the events that make up a step, found as what most ranks do in
// most steps. For step_builder.cpp: steps in which some rank deviates are not comparable. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "tracepp/run_trace.h"
#include "tracepp/steps/step_trace.h"

namespace ms::tracepp {

// The role of an event in a step.
struct Role {
  enum class As : std::uint8_t {
    nothing,
    op,             // part of the step, see `type`: sections and communication; each dp collective is one
    sum,            // of the gradients of shared parameters: only on dp ranks that keep a part of them
    tp_collective,  // serves a section
    other_work,     // a section that belongs to the next one
    step,
    data_wait,
    save,
    breaks,  // the step did other work besides training
  };
  As as = As::nothing;
  OpType type = OpType::forward_compute;
  std::int16_t chunk = -1;
};
std::vector<Role> roles_of(const RunTrace& trace);  // by RunTrace::infos

constexpr bool is_section(OpType type) {
  return type == OpType::forward_compute || is_backward(type) || type == OpType::optimizer;
}

// The pattern of one stage. A slot is an event that every rank of the stage has in every step: the slots of one type
// are neighbours, in the order of their issue.
struct StagePattern {
  struct Slot {
    OpType type;
    int chunk;
    int number;                    // among those of its type
    std::int64_t size_bytes = -1;  // of communication
    int received_by = -1;          // of a section: the slot of the receive that it waits for
  };
  std::vector<Slot> slots;
  std::array<int, kOpTypes> first{}, count{};  // by type
  std::vector<int> sections;                   // slots, in order of issue
  int tp_collectives = 0;
  bool has_sum[2] = {false, false};  // see sum_of(); on some rank

  int slot(OpType type, int number) const { return first[static_cast<std::size_t>(type)] + number; }
  int count_of(OpType type) const { return count[static_cast<std::size_t>(type)]; }
  // The amount of communication of a type: bytes if all sizes are known, else the number of operations.
  double size(OpType type) const;
  // The slots of a chunk's sections; -1: none.
  int first_forward(int chunk) const;
  int last_backward(int chunk) const;
};

// Returns 0 for reductions over tp (layer norms), 1 for reductions over the ends of the pipeline (embedding).
inline constexpr OpType kSumTypes[2] = {OpType::layernorm_grads_all_reduce, OpType::embedding_grads_all_reduce};
constexpr std::size_t sum_of(OpType type) { return type == kSumTypes[0] ? 0 : 1; }

struct RunPattern {
  std::vector<Role> roles;
  std::vector<StagePattern> stages;
  std::vector<std::int32_t> steps;      // rising: every rank that is used has all of them, finished
  std::map<std::int32_t, int> step_at;  // their places
  std::vector<StepLeftOut> left_out;    // rising
  std::vector<int> dp_ranks;            // dp ranks that are used: some rank of each stage was traced
  std::vector<const RankTrace*> ranks;  // [rank of the mesh]; nullptr: not traced, or of no use

  bool has_all_dp(const mesh::Mesh& mesh, int pp, int tp) const;  // the ranks of a group over dp
};

// Throws Error("trace.shape", user) if no step can be used: the mesh is not known, no dp rank has traces of all stages,
// or no step is complete on all ranks.
RunPattern find_pattern(const RunTrace& trace);

// Returns the steps of a rank's events, in order of issue: an event that gathers parameters after the optimizer belongs
// to the next step.
class StepOf {
 public:
  explicit StepOf(const std::vector<Role>& roles) : roles_(roles) {}
  std::int32_t operator()(const Event& event) {
    const Role& role = roles_[event.info];
    if (role.as != Role::As::op) return event.step;
    if (role.type == OpType::optimizer) updated_ = event.step;
    const bool ahead = role.type == OpType::params_all_gather && event.step == updated_ && updated_ != kNoStep;
    return ahead ? event.step + 1 : event.step;
  }

 private:
  const std::vector<Role>& roles_;
  std::int32_t updated_ = kNoStep;
};

}  // namespace ms::tracepp
