#include "tracepp/steps/step_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>

#include "base/error.h"

namespace ms::tracepp {
namespace {

using Ops = std::vector<int>;

// Clocks of the streams of one rank agree to this.
constexpr double kSameTimeS = 50e-6;

struct Transfer {
  OpType type, peer;
  OpType compute;
  int to;  // the peer's stage is so many further
  bool sends;
};
constexpr std::array<Transfer, 4> kTransfers{{
    {OpType::forward_send, OpType::forward_recv, OpType::forward_compute, 1, true},
    {OpType::forward_recv, OpType::forward_send, OpType::forward_compute, -1, false},
    {OpType::backward_send, OpType::backward_recv, OpType::backward_compute, -1, true},
    {OpType::backward_recv, OpType::backward_send, OpType::backward_compute, 1, false},
}};

class GraphBuilder {
 public:
  explicit GraphBuilder(const StepTrace& trace) : trace_(trace), by_type_(static_cast<std::size_t>(trace.pp)) {
    const std::size_t count = trace.ops.size();
    graph_.waits_for.resize(count);
    graph_.group_of.assign(count, -1);
    for (std::size_t i = 0; i < count; ++i) {
      const StepOp& op = trace.ops[i];
      // The half of a backward that receives and sends stands for it.
      of(op.stage, op.type == OpType::backward_input ? OpType::backward_compute : op.type)
          .push_back(static_cast<int>(i));
      chunks_ = std::max(chunks_, op.chunk + 1);
    }
    for (auto& types : by_type_) {
      for (Ops& ops : types) std::ranges::sort(ops, {}, [&](int op) { return launch_key(op); });
    }
  }

  StepGraph build() {
    for (int stage = 0; stage < trace_.pp; ++stage) {
      computations(stage);
      for (const Transfer& transfer : kTransfers) {
        if (trace_.exact) {
          exact_transfers(stage, transfer);
        } else {
          transfers(stage, transfer);
        }
      }
      if (!trace_.exact) first_backward(stage);
    }
    pair_transfers();
    const bool reduces_early = trace_.exact || !of_all(OpType::separate_grads_all_reduce).empty();
    for (int stage = 0; stage < trace_.pp; ++stage) {
      if (trace_.dp > 1) parameters(stage, reduces_early);
      end_of_step(stage, reduces_early);
    }
    barriers();
    return std::move(graph_);
  }

 private:
  Ops& of(int stage, OpType type) { return by_type_[static_cast<std::size_t>(stage)][static_cast<std::size_t>(type)]; }
  Ops of_all(OpType type) {
    Ops all;
    for (int stage = 0; stage < trace_.pp; ++stage)
      all.insert(all.end(), of(stage, type).begin(), of(stage, type).end());
    return all;
  }
  const StepOp& op(int index) const { return trace_.ops[static_cast<std::size_t>(index)]; }
  double start(int index) const { return trace_.start_s[trace_.at(static_cast<std::size_t>(index), 0, 0)]; }
  double end(int index) const {
    return start(index) + trace_.duration_s[trace_.at(static_cast<std::size_t>(index), 0, 0)];
  }
  std::pair<double, int> launch_key(int index) const { return {start(index), op(index).sequence}; }

  void wait(int op, int before) { graph_.waits_for[static_cast<std::size_t>(op)].push_back(before); }
  void chain(std::span<const int> ops) {
    for (std::size_t i = 1; i < ops.size(); ++i) wait(ops[i], ops[i - 1]);
  }
  void group(Ops ops, bool over_dp = false) {
    for (const int member : ops)
      graph_.group_of[static_cast<std::size_t>(member)] = static_cast<int>(graph_.groups.size());
    graph_.groups.push_back({std::move(ops), over_dp});
  }

  void computations(int stage) {
    Ops all = of(stage, OpType::forward_compute);
    const Ops& backwards = of(stage, OpType::backward_compute);
    if (all.empty() || backwards.empty()) {
      throw user_error("trace.shape",
                       fmt::format("stage {} of the trace has no {}", stage,
                                   to_string(all.empty() ? OpType::forward_compute : OpType::backward_compute)));
    }
    const Ops& weights = of(stage, OpType::backward_weight);
    all.insert(all.end(), backwards.begin(), backwards.end());
    all.insert(all.end(), weights.begin(), weights.end());
    std::ranges::sort(all, {}, [&](int index) { return launch_key(index); });
    chain(all);
    order_.push_back(std::move(all));
  }

  // The transfers of one kind and stage: one stream, each beside its computation. Some recorders write down transfers
  // that never took place, before the first computation or behind the last one and at the ends of the model; they
  // belong to no pair.
  void transfers(int stage, const Transfer& transfer) {
    const Ops& all = of(stage, transfer.type);
    chain(all);
    Ops computes = of(stage, transfer.compute);
    std::ranges::sort(computes, {}, [&](int index) { return op(index).sequence; });
    double last_start = -std::numeric_limits<double>::infinity(), first_start = -last_start;
    for (const int compute : computes) {
      last_start = std::max(last_start, start(compute));
      first_start = std::min(first_start, start(compute));
    }
    const auto took_place = [&](int index) {
      return transfer.sends ? end(index) > first_start + kSameTimeS : start(index) <= last_start + kSameTimeS;
    };
    const auto count = static_cast<std::size_t>(std::ranges::count_if(all, took_place));
    if (count > computes.size()) {
      throw user_error("trace.shape",
                       fmt::format("stage {} has {} {} for {} {}", stage, count, to_string(transfer.type),
                                   computes.size(), to_string(transfer.compute)));
    }
    // The first receive may be missing where it has no other side.
    std::size_t next = !transfer.sends && count + 1 == computes.size() ? 1 : 0;
    Ops& real = real_[{transfer.type, stage}];
    for (const int index : all) {
      if (!took_place(index)) {
        group({index});
        continue;
      }
      const std::size_t k = next++;
      if (k >= computes.size())
        throw user_error("trace.shape", fmt::format("{} belongs to nothing", to_string(op(index))));
      if (transfer.sends) {
        wait(index, computes[k]);
      } else {
        wait(computes[k], index);
        if (k > 0) wait(index, computes[k - 1]);
      }
      const int place = std::max(op(computes[k]).chunk, 0) * trace_.pp + stage + transfer.to;
      if (place >= 0 && place < std::max(chunks_, 1) * trace_.pp) {
        real.push_back(index);
      } else {
        group({index});  // at an end of the model
      }
    }
  }

  // Each belongs to the computation of its chunk with the same number, and has another side.
  void exact_transfers(int stage, const Transfer& transfer) {
    const Ops& all = of(stage, transfer.type);
    chain(all);
    std::map<int, Ops> computes;  // by chunk
    for (const int compute : of(stage, transfer.compute)) computes[op(compute).chunk].push_back(compute);
    std::map<int, std::size_t> next;
    for (const int index : all) {
      const Ops& candidates = computes[op(index).chunk];
      const std::size_t k = next[op(index).chunk]++;
      if (k >= candidates.size())
        throw user_error("trace.shape", fmt::format("{} belongs to nothing", to_string(op(index))));
      if (transfer.sends) {
        wait(index, candidates[k]);
      } else {
        wait(candidates[k], index);
      }
    }
    real_[{transfer.type, stage}] = all;
  }

  // The streams of the backward begin when the second forward before it is done.
  void first_backward(int stage) {
    const Ops& computes = order_[static_cast<std::size_t>(stage)];
    const auto first = std::ranges::find(computes, OpType::backward_compute, [&](int index) { return op(index).type; });
    if (first - computes.begin() < 2) return;
    for (const OpType type : {OpType::backward_recv, OpType::backward_send}) {
      for (const int index : of(stage, type)) {
        if (op(index).sequence == 0) wait(index, *(first - 2));
      }
    }
  }

  void pair_transfers() {
    for (const Transfer& transfer : kTransfers) {
      if (!transfer.sends) continue;
      for (int stage = 0; stage < trace_.pp; ++stage) {
        const int peer = (stage + transfer.to + trace_.pp) % trace_.pp;
        const Ops &sends = real_[{transfer.type, stage}], &receives = real_[{transfer.peer, peer}];
        if (sends.size() != receives.size()) {
          throw user_error("trace.shape",
                           fmt::format("stage {} has {} {}, but stage {} has {} {}", stage, sends.size(),
                                       to_string(transfer.type), peer, receives.size(), to_string(transfer.peer)));
        }
        for (std::size_t k = 0; k < sends.size(); ++k) group({sends[k], receives[k]});
      }
    }
  }

  // Gathers and reductions of dp: one stream.
  void parameters(int stage, bool reduces_early) {
    const Ops &gathers = of(stage, OpType::params_all_gather), &reductions = of(stage, OpType::grads_reduce_scatter);
    Ops stream = gathers;
    for (const OpType type : {OpType::params_all_gather_beside, OpType::grads_reduce_scatter_beside})
      stream.insert(stream.end(), of(stage, type).begin(), of(stage, type).end());
    stream.insert(stream.end(), reductions.begin(), reductions.end());
    std::ranges::sort(stream, {}, [&](int index) { return launch_key(index); });
    chain(stream);
    std::vector<bool> gathered(static_cast<std::size_t>(chunks_ + 1), false), reduced = gathered;
    const auto of_chunk = [&](OpType type, int chunk) {
      Ops found;
      std::ranges::copy_if(of(stage, type), std::back_inserter(found),
                           [&](int index) { return op(index).chunk == chunk; });
      return found;
    };
    const Ops& optimizers = of(stage, OpType::optimizer);
    const double computed = end(order_[static_cast<std::size_t>(stage)].back());
    for (auto it = gathers.rbegin(); it != gathers.rend(); ++it) {  // the last one, should there be several
      // Behind the step's computations, it is for the next step, and follows the optimizer.
      if (!trace_.exact && start(*it) + kSameTimeS >= computed) {
        if (!optimizers.empty() && start(*it) + kSameTimeS >= end(optimizers.back())) wait(*it, optimizers.back());
        continue;
      }
      const int chunk = op(*it).chunk;
      if (gathered[static_cast<std::size_t>(chunk + 1)]) continue;
      gathered[static_cast<std::size_t>(chunk + 1)] = true;
      const Ops forwards = of_chunk(OpType::forward_compute, chunk);
      if (!forwards.empty())
        wait(*std::ranges::min_element(forwards, {}, [&](int index) { return start(index); }), *it);
    }
    if (!reduces_early) return;
    for (const int index : reductions) {
      const int chunk = op(index).chunk;
      if (reduced[static_cast<std::size_t>(chunk + 1)]) continue;
      reduced[static_cast<std::size_t>(chunk + 1)] = true;
      Ops backwards = of_chunk(OpType::backward_compute, chunk);
      std::ranges::copy(of_chunk(OpType::backward_weight, chunk), std::back_inserter(backwards));
      if (!backwards.empty())
        wait(index, *std::ranges::max_element(backwards, {}, [&](int other) { return end(other); }));
    }
  }

  // last backward -> gc -> layer norms -> embedding -> gradients -> clipping -> optimizer
  void end_of_step(int stage, bool reduces_early) {
    const Ops& computes = order_[static_cast<std::size_t>(stage)];
    const int last = *std::ranges::max_element(computes, {}, [&](int index) { return end(index); });
    Ops before{last};
    const auto then = [&](const Ops& ops) {
      for (const int index : ops) {
        for (const int waited : before) wait(index, waited);
        before = {index};
      }
    };
    const bool dp = trace_.dp > 1;
    then(of(stage, OpType::gc));
    const Ops& reductions = of(stage, OpType::grads_reduce_scatter);
    if (dp && reduces_early && !reductions.empty()) before.push_back(reductions.back());
    then(of(stage, OpType::layernorm_grads_all_reduce));
    then(of(stage, OpType::embedding_grads_all_reduce));
    if (dp) then(reduces_early ? of(stage, OpType::separate_grads_all_reduce) : reductions);
    then(of(stage, OpType::optimizer_clip_main_grad));
    if (of(stage, OpType::optimizer).empty()) {
      throw user_error("trace.shape",
                       fmt::format("stage {} of the trace has no {}", stage, to_string(OpType::optimizer)));
    }
    then(of(stage, OpType::optimizer));
  }

  void barriers() {
    if (trace_.dp > 1) {
      for (const OpType type :
           {OpType::params_all_gather, OpType::params_all_gather_beside, OpType::grads_reduce_scatter,
            OpType::grads_reduce_scatter_beside, OpType::separate_grads_all_reduce}) {
        for (const int index : of_all(type)) group({index}, true);
      }
    }
    if (Ops ends = of_all(OpType::embedding_grads_all_reduce); !ends.empty()) group(std::move(ends));
    if (Ops all = of_all(OpType::optimizer_clip_main_grad); !all.empty()) group(std::move(all), true);
  }

  const StepTrace& trace_;
  StepGraph graph_;
  int chunks_ = 0;
  std::vector<std::array<Ops, kOpTypes>> by_type_;  // [stage][type], as they were launched
  std::vector<Ops> order_;                          // [stage]: the computations, as they were launched
  std::map<std::pair<OpType, int>, Ops> real_;      // by type and stage: transfers that have another side
};

}  // namespace

StepGraph make_step_graph(const StepTrace& trace) { return GraphBuilder(trace).build(); }

StepOrder order_of(const StepGraph& graph) {
  const std::size_t count = graph.waits_for.size();
  std::vector<std::vector<int>> next(count);
  std::vector<std::size_t> left(count), members(graph.groups.size());
  std::vector<int> ready;
  for (std::size_t i = 0; i < count; ++i) {
    left[i] = graph.waits_for[i].size();
    for (const int before : graph.waits_for[i]) next[static_cast<std::size_t>(before)].push_back(static_cast<int>(i));
    if (left[i] == 0) ready.push_back(static_cast<int>(i));
  }
  for (std::size_t g = 0; g < members.size(); ++g) members[g] = graph.groups[g].ops.size();
  StepOrder order;
  const auto finish = [&](int op) {
    for (const int waiting : next[static_cast<std::size_t>(op)]) {
      if (--left[static_cast<std::size_t>(waiting)] == 0) ready.push_back(waiting);
    }
  };
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const int op = ready[i], group = graph.group_of[static_cast<std::size_t>(op)];
    order.entries.push_back({op, false});
    if (group < 0) {
      finish(op);
    } else if (--members[static_cast<std::size_t>(group)] == 0) {
      order.entries.push_back({group, true});
      for (const int member : graph.groups[static_cast<std::size_t>(group)].ops) finish(member);
    }
  }
  if (ready.size() != count) {
    throw user_error("trace.shape", fmt::format("{} of {} operations of a step wait for each other in a ring",
                                                count - ready.size(), count));
  }
  return order;
}

}  // namespace ms::tracepp
