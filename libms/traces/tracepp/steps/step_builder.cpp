#include "tracepp/steps/step_builder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "tracepp/parallel.h"
#include "tracepp/robust.h"
#include "tracepp/steps/collective_times.h"
#include "tracepp/steps/step_column.h"

namespace ms::tracepp {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

bool is_over_dp(OpType type) { return type == OpType::params_all_gather || type == OpType::grads_reduce_scatter; }
// One operation of a step, however many messages it is made of.
bool is_once(OpType type) { return type == OpType::optimizer_clip_main_grad || type == OpType::optimizer; }

// The collectives of one chunk over dp.
struct DpCollectives {
  int pp = 0, chunk = 0, compute = -1;  // slot: the first forward, the last backward of the chunk
  std::vector<int> slots;
  DpOps ops;
  std::size_t before = 0;  // so many were over before that began: gradients that are reduced with every microbatch
};

class StepBuilder {
 public:
  explicit StepBuilder(const RunTrace& trace)
      : pattern_(find_pattern(trace)), mesh_(trace.mesh), step_count_(pattern_.steps.size()) {
    describe_steps();
    describe_table();
  }

  BuiltSteps build() {
    in_blocks(pattern_.dp_ranks.size(), [&](std::size_t begin, std::size_t end) {
      Column column(pattern_, mesh_);
      Sums sums(shortest_.size(), step_count_);
      for (std::size_t dp = begin; dp < end; ++dp) {
        column.read(pattern_.dp_ranks[dp]);
        for (int pp = 0; pp < mesh_.pp; ++pp) {
          for (int tp = 0; tp < mesh_.tp; ++tp) {
            if (column.rank(pp, tp) != nullptr) fill_table(column, static_cast<int>(dp), pp, tp, sums);
          }
          fill_steps(column, static_cast<int>(dp), pp);
        }
        for (int pp = 0; pp < mesh_.pp; ++pp) {
          fill_transfers(column, static_cast<int>(dp), pp, OpType::forward_send, OpType::forward_recv, 1);
          fill_transfers(column, static_cast<int>(dp), pp, OpType::backward_send, OpType::backward_recv, -1);
        }
      }
      const std::scoped_lock lock(mutex_);
      for (std::size_t i = 0; i < shortest_.size(); ++i) shortest_[i] = std::min(shortest_[i], sums.shortest[i]);
      for (std::size_t i = 0; i < step_count_; ++i) {
        ends_[i] = std::max(ends_[i], sums.ends[i]);
        ends_before_[i] = std::max(ends_before_[i], sums.ends_before[i]);
        clipping_[i] = std::min(clipping_[i], sums.clipping[i]);
      }
    });
    for (const DpCollectives& of : gathers_) over_dp(of, true);
    for (const DpCollectives& of : reductions_) over_dp(of, false);
    barriers();
    for (std::size_t step = 0; step < step_count_; ++step) {
      if (ends_before_[step] > 0) table().periods[step] = seconds(ends_[step] - ends_before_[step]);
    }
    return std::move(built_);
  }

 private:
  // The partial results of a block of dp ranks, merged at the end.
  struct Sums {
    Sums(std::size_t collectives, std::size_t steps)
        : shortest(collectives, kInfinite), ends(steps, 0), ends_before(steps, 0), clipping(steps, kInfinite) {}
    std::vector<float> shortest;
    std::vector<std::int64_t> ends, ends_before;
    std::vector<double> clipping;  // [step]: shortest of all ranks
  };

  const StagePattern& stage(int pp) const { return pattern_.stages[static_cast<std::size_t>(pp)]; }
  StepTrace& steps() { return built_.steps; }
  RankTable& table() { return built_.ranks; }
  // Returns the index in shortest_ of a collective over dp: the shortest time that a member spent in it.
  std::size_t shortest_at(int pp, int tp, std::size_t step, int slot) const {
    return first_shortest_[static_cast<std::size_t>(pp)] +
           (static_cast<std::size_t>(tp) * step_count_ + step) * stage(pp).slots.size() +
           static_cast<std::size_t>(slot);
  }
  double start_s(std::int64_t ns) const { return seconds(ns - origin_); }

  void describe_steps() {
    StepTrace& out = steps();
    out.dp = static_cast<int>(pattern_.dp_ranks.size());
    out.pp = mesh_.pp;
    out.tp = mesh_.tp;
    out.steps.assign(pattern_.steps.begin(), pattern_.steps.end());
    out.left_out = pattern_.left_out;
    out.exact = true;
    if (out.dp != mesh_.dp) out.dp_ranks = pattern_.dp_ranks;
    out.ranks.assign(static_cast<std::size_t>(out.pp * out.dp), -1);
    for (int pp = 0; pp < mesh_.pp; ++pp) {
      std::array<int, kOpTypes> used{};
      const auto add = [&](OpType type, int chunk) {
        out.ops.push_back({type, used[static_cast<std::size_t>(type)]++, pp, chunk});
        return static_cast<int>(out.ops.size()) - 1;
      };
      std::vector<int>& op_of = op_of_.emplace_back(stage(pp).slots.size(), -1);
      for (std::size_t slot = 0; slot < op_of.size(); ++slot) {
        const StagePattern::Slot& of = stage(pp).slots[slot];
        if (is_over_dp(of.type)) {
          const bool gathers = of.type == OpType::params_all_gather;
          std::vector<DpCollectives>& all = gathers ? gathers_ : reductions_;
          auto found =
              std::ranges::find_if(all, [&](const DpCollectives& x) { return x.pp == pp && x.chunk == of.chunk; });
          if (found == all.end()) {
            const int op = add(of.type, of.chunk);
            const int beside =
                add(gathers ? OpType::params_all_gather_beside : OpType::grads_reduce_scatter_beside, -1);
            all.push_back({pp,
                           of.chunk,
                           gathers ? stage(pp).first_forward(of.chunk) : stage(pp).last_backward(of.chunk),
                           {},
                           {op, beside},
                           0});
            found = all.end() - 1;
          }
          found->slots.push_back(static_cast<int>(slot));
        } else {
          op_of[slot] =
              is_once(of.type) && of.number > 0 ? op_of[slot - 1] : add(of.type, is_once(of.type) ? -1 : of.chunk);
        }
      }
      std::map<std::pair<OpType, int>, std::vector<int>> same_work;  // by type and chunk
      for (const int slot : stage(pp).sections) {
        const StagePattern::Slot& of = stage(pp).slots[static_cast<std::size_t>(slot)];
        if (of.type != OpType::optimizer) same_work[{of.type, of.chunk}].push_back(slot);
      }
      same_work_.emplace_back();
      for (auto& [key, slots] : same_work) same_work_.back().push_back(std::move(slots));
      for (const OpType type : kSumTypes) sums_.push_back(stage(pp).has_sum[sum_of(type)] ? add(type, -1) : -1);
      // Some recorders know no optimizer: it then takes no time.
      no_optimizer_.push_back(stage(pp).count_of(OpType::optimizer) == 0 ? add(OpType::optimizer, -1) : -1);
      first_shortest_.push_back(shortest_.size());
      shortest_.resize(shortest_.size() + op_of.size() * step_count_ * static_cast<std::size_t>(mesh_.tp), kInfinite);
    }
    out.start_s.assign(out.ops.size() * out.lanes(), 0.0);
    out.duration_s.assign(out.start_s.size(), 0.0);
  }

  void describe_table() {
    table() = RankTable(mesh_, step_count_);
    std::vector<std::vector<std::size_t>> works;
    for (const auto& of_stage : same_work_) {
      works.emplace_back();
      for (const std::vector<int>& same : of_stage) works.back().push_back(same.size());
    }
    table().set_works(std::move(works));
    origin_ = std::numeric_limits<std::int64_t>::max();
    for (std::size_t place = 0; place < pattern_.ranks.size(); ++place) {
      const RankTrace* const used = pattern_.ranks[place];
      if (used == nullptr) continue;
      table().ranks[place] = used->rank;
      table().hosts[place] = used->host;
      if (!used->device.empty() && used->device != "cpu") table().may_share_cores = false;
      if (!used->events.empty()) origin_ = std::min(origin_, used->events.front().begin_ns);
    }
    ends_.assign(step_count_, 0);
    ends_before_.assign(step_count_, 0);
    clipping_.assign(step_count_, kInfinite);
    embedding_.assign(steps().lanes(), kInfinite);
  }

  // Fills the table's columns of one rank.
  void fill_table(const Column& column, int dp, int pp, int tp, Sums& sums) {
    const StagePattern& shape = stage(pp);
    std::vector<float> own;
    for (std::size_t step = 0; step < step_count_; ++step) {
      const Times* const times = column.times(pp, tp, step);
      const std::int64_t updated = column.updated_before(pp, tp, step);
      const Standing stood = stood_still(shape, times, updated);
      own.clear();
      for (const std::vector<int>& same : same_work_[static_cast<std::size_t>(pp)])
        for (const int slot : same) own.push_back(times[slot].own);
      const int rank = column.rank(pp, tp)->rank;
      const std::size_t at = table().at(rank, step);
      table().set_computed(rank, step, own);
      table().data_wait[at] = column.data_wait(pp, tp, step);
      table().late[at] = static_cast<float>(stood.late_s);
      table().lost[at] = static_cast<float>(stood.worst_s);
      sums.ends[step] = std::max(sums.ends[step], stood.end);
      sums.ends_before[step] = std::max(sums.ends_before[step], updated);
      std::int64_t clipping = 0;
      const int clips = shape.count_of(OpType::optimizer_clip_main_grad);
      for (int k = 0; k < clips; ++k) clipping += times[shape.slot(OpType::optimizer_clip_main_grad, k)].length();
      if (clips > 0) sums.clipping[step] = std::min(sums.clipping[step], seconds(clipping));
      if (const Column::Sum& ends = column.sum(pp, tp, step, 1); ends.length > 0) {
        double& embedding = embedding_[steps().at(0, step, dp)];
        embedding = std::min(embedding, seconds(ends.length));
      }
      for (const OpType type : {OpType::params_all_gather, OpType::grads_reduce_scatter}) {
        for (int k = 0; k < shape.count_of(type); ++k) {
          const int slot = shape.slot(type, k);
          float& shortest = sums.shortest[shortest_at(pp, tp, step, slot)];
          shortest = std::min(shortest, static_cast<float>(seconds(times[slot].length())));
        }
      }
    }
  }

  // Fills the cell of all tp ranks. A computation takes as long as the slowest rank's computing and communication: the
  // others wait for that rank at the next collective, and the mean would hide it. Stalls that wait for a core or for a
  // launch do not count: no rank could do that work faster.
  void fill_steps(const Column& column, int dp, int pp) {
    const StagePattern& shape = stage(pp);
    StepTrace& out = steps();
    for (int tp = 0; tp < mesh_.tp; ++tp) {
      const RankTrace* const rank = column.rank(pp, tp);
      if (rank == nullptr) continue;
      out.ranks[static_cast<std::size_t>(pp * out.dp + dp)] = rank->rank;
      break;
    }
    for (std::size_t step = 0; step < step_count_; ++step) {
      for (std::size_t slot = 0; slot < shape.slots.size(); ++slot) {
        const int op = op_of_[static_cast<std::size_t>(pp)][slot];
        if (op < 0) continue;
        const OpType type = shape.slots[slot].type;
        std::int64_t begin = 0, end = 0;
        double longest = 0;
        for (int tp = 0; tp < mesh_.tp; ++tp) {
          if (column.rank(pp, tp) == nullptr) continue;
          const Times& times = column.times(pp, tp, step)[slot];
          begin = std::max(begin, times.begin);
          end = std::max(end, times.end);
          // Where messages run beside computations both together may be more than all of it.
          const double own =
              std::min(times.own + seconds(times.moving), std::max<double>(times.own, seconds(times.length())));
          longest = std::max(longest, own + times.before);
        }
        const std::size_t at = out.at(static_cast<std::size_t>(op), step, dp);
        const bool goes_on = is_once(type) && shape.slots[slot].number > 0;
        if (is_section(type)) {
          out.duration_s[at] = goes_on ? out.duration_s[at] + longest : longest;
          out.start_s[at] = start_s(end) - out.duration_s[at];
        } else {
          if (!goes_on) out.start_s[at] = start_s(begin);
          out.duration_s[at] = start_s(end) - out.start_s[at];
        }
      }
      fill_ends(column, dp, pp, step);
      for (std::vector<DpCollectives>* all : {&gathers_, &reductions_}) {
        for (DpCollectives& of : *all) {
          if (of.pp != pp) continue;
          std::int64_t begin = 0, computed = 0;
          for (int tp = 0; tp < mesh_.tp; ++tp) {
            if (column.rank(pp, tp) == nullptr) continue;
            const Times* const times = column.times(pp, tp, step);
            begin = std::max(begin, times[of.slots.front()].begin);
            if (of.compute >= 0) computed = std::max(computed, times[of.compute].end);
            if (dp > 0 || step > 0 || all == &gathers_ || of.compute < 0) continue;  // the same everywhere
            of.before = static_cast<std::size_t>(
                std::ranges::count_if(of.slots, [&](int slot) { return times[slot].begin < times[of.compute].begin; }));
            of.before = std::min(of.before, of.slots.size() - 1);
          }
          const bool gathers = all == &gathers_;
          out.start_s[out.at(static_cast<std::size_t>(gathers ? of.ops.op : of.ops.beside), step, dp)] = start_s(begin);
          if (!gathers)
            out.start_s[out.at(static_cast<std::size_t>(of.ops.op), step, dp)] = start_s(std::max(begin, computed));
        }
      }
    }
  }

  // Fills the all-reduces of gradients, and an optimizer if none was recorded.
  void fill_ends(const Column& column, int dp, int pp, std::size_t step) {
    StepTrace& out = steps();
    std::int64_t computed = 0, end = 0;  // the last computation, all
    for (int tp = 0; tp < mesh_.tp; ++tp) {
      if (column.rank(pp, tp) == nullptr) continue;
      const Times* const times = column.times(pp, tp, step);
      for (std::size_t slot = 0; slot < stage(pp).slots.size(); ++slot) {
        end = std::max(end, times[slot].end);
        if (is_backward(stage(pp).slots[slot].type)) computed = std::max(computed, times[slot].end);
      }
    }
    for (std::size_t of = 0; of < 2; ++of) {
      const int op = sums_[static_cast<std::size_t>(pp) * 2 + of];
      if (op < 0) continue;
      std::int64_t begin = 0, shortest = std::numeric_limits<std::int64_t>::max();
      for (int tp = 0; tp < mesh_.tp; ++tp) {
        if (column.rank(pp, tp) == nullptr) continue;
        begin = std::max(begin, column.sum(pp, tp, step, of).begin);
        shortest = std::min(shortest, column.sum(pp, tp, step, of).length);
      }
      const std::size_t at = out.at(static_cast<std::size_t>(op), step, dp);
      out.start_s[at] = start_s(begin == 0 ? computed : begin);
      out.duration_s[at] = seconds(shortest);  // of layer norms: the ranks of the cell meet
    }
    if (const int op = no_optimizer_[static_cast<std::size_t>(pp)]; op >= 0)
      out.start_s[out.at(static_cast<std::size_t>(op), step, dp)] = start_s(end);
  }

  // Fills both sides of the transfers from `pp` to its neighbour.
  void fill_transfers(const Column& column, int dp, int pp, OpType send, OpType receive, int to) {
    const int peer = (pp + to + mesh_.pp) % mesh_.pp;
    const int count = std::min(stage(pp).count_of(send), stage(peer).count_of(receive));
    StepTrace& out = steps();
    std::vector<std::vector<float>> moved(static_cast<std::size_t>(mesh_.tp));
    for (std::size_t step = 0; step < step_count_; ++step) {
      for (std::vector<float>& of_tp : moved) of_tp.clear();
      for (int k = 0; k < count; ++k) {
        const int from_slot = stage(pp).slot(send, k), to_slot = stage(peer).slot(receive, k);
        std::int64_t longest = 0;
        for (int tp = 0; tp < mesh_.tp; ++tp) {
          std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
          const bool sent = column.rank(pp, tp) != nullptr, received = column.rank(peer, tp) != nullptr;
          if (sent) shortest = column.times(pp, tp, step)[from_slot].length();
          if (received) shortest = std::min(shortest, column.times(peer, tp, step)[to_slot].length());
          if (sent || received) longest = std::max(longest, shortest);
          if (sent && received) moved[static_cast<std::size_t>(tp)].push_back(static_cast<float>(seconds(shortest)));
        }
        const int from_op = op_of_[static_cast<std::size_t>(pp)][static_cast<std::size_t>(from_slot)];
        const int to_op = op_of_[static_cast<std::size_t>(peer)][static_cast<std::size_t>(to_slot)];
        const std::size_t a = out.at(static_cast<std::size_t>(from_op), step, dp);
        const std::size_t b = out.at(static_cast<std::size_t>(to_op), step, dp);
        const double end = std::max(out.start_s[a], out.start_s[b]) + seconds(longest);
        out.duration_s[a] = end - out.start_s[a];
        out.duration_s[b] = end - out.start_s[b];
      }
      for (int tp = 0; tp < mesh_.tp; ++tp) {
        if (moved[static_cast<std::size_t>(tp)].empty()) continue;
        table().receive[to > 0 ? 0 : 1][table().at(column.rank(peer, tp)->rank, step)] =
            quantile(moved[static_cast<std::size_t>(tp)], 0.5);
      }
    }
  }

  // All-reduces over all ranks, and over both ends of a pipeline: they begin when the last rank arrives.
  void barriers() {
    StepTrace& out = steps();
    for (std::size_t step = 0; step < step_count_; ++step) {
      meet(out, OpType::optimizer_clip_main_grad, step, 0, out.dp, clipping_[step]);
      for (int dp = 0; dp < out.dp; ++dp) {
        const double moved = embedding_[out.at(0, step, dp)];
        meet(out, OpType::embedding_grads_all_reduce, step, dp, dp + 1, moved == kInfinite ? 0 : moved);
      }
    }
  }

  void over_dp(const DpCollectives& of, bool gathers) {
    const OpType type = gathers ? OpType::params_all_gather : OpType::grads_reduce_scatter;
    std::vector<double> moved(of.slots.size());
    const int op = of.compute < 0 ? -1 : op_of_[static_cast<std::size_t>(of.pp)][static_cast<std::size_t>(of.compute)];
    for (std::size_t step = 0; step < step_count_; ++step) {
      for (std::size_t i = 0; i < moved.size(); ++i) {
        moved[i] = 0;
        for (int tp = 0; tp < mesh_.tp; ++tp) {
          const float shortest = shortest_[shortest_at(of.pp, tp, step, of.slots[i])];
          if (shortest != kInfinite) moved[i] = std::max<double>(moved[i], shortest);
        }
      }
      for (int tp = 0; tp < mesh_.tp; ++tp) {
        if (!pattern_.has_all_dp(mesh_, of.pp, tp)) continue;  // one that is missing may be waited for
        double sum = 0;
        for (const int slot : of.slots) sum += shortest_[shortest_at(of.pp, tp, step, slot)];
        float& all_chunks = (gathers ? table().gather : table().reduce)[table().at_group(of.pp, tp, step)];
        if (std::isfinite(sum)) {
          all_chunks = static_cast<float>((std::isnan(all_chunks) ? 0 : all_chunks) + sum / stage(of.pp).size(type));
        }
      }
      const auto first = moved.begin() + static_cast<std::ptrdiff_t>(of.before);
      set_over_dp(steps(), of.ops, op, gathers, step, {first, moved.end()}, std::accumulate(moved.begin(), first, 0.0));
    }
  }

  const RunPattern pattern_;
  mesh::Mesh mesh_;
  std::size_t step_count_;
  BuiltSteps built_;
  std::int64_t origin_ = 0;                               // of StepTrace::start_s
  std::vector<std::vector<int>> op_of_;                   // [pp][slot]; -1: part of a DpOp
  std::vector<std::vector<std::vector<int>>> same_work_;  // [pp]: slots of computations that are equally much work
  std::vector<int> sums_;                                 // [pp][sum_of()]; -1: none
  std::vector<int> no_optimizer_;                         // [pp]: an operation that stands for it; -1: there is one
  std::vector<DpCollectives> gathers_, reductions_;
  std::mutex mutex_;                         // of what blocks of dp ranks put together: the rest of this
  std::vector<std::size_t> first_shortest_;  // [pp]
  std::vector<float> shortest_;
  std::vector<std::int64_t> ends_, ends_before_;  // [step]
  std::vector<double> clipping_, embedding_;      // [step]; [lane]: how long these sums moved data
};

}  // namespace

BuiltSteps build_steps(const RunTrace& trace) { return StepBuilder(trace).build(); }

}  // namespace ms::tracepp
