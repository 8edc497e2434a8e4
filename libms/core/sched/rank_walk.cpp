#include "sched/rank_walk.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "mesh/layers.h"

namespace ms::sched {
namespace {

constexpr std::size_t kRowKinds = 8;       // the kinds of rows that name a microbatch come first in What
using RowOf = std::array<int, kRowKinds>;  // by What: the row, kNone if not yet
constexpr RowOf kNoRows{kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone};
static_assert(static_cast<std::size_t>(Action::gather_params) == kRowKinds);

// The rows of one (chunk, microbatch) that a rank has visited so far.
struct Progress {
  RowOf row_of = kNoRows;
  RowOf row_of_previous = kNoRows;  // of the one that had the slot before
  int first_row = kNone, last_row = kNone;
  int slot = kNone;

  int& at(Action action) { return row_of[static_cast<std::size_t>(action)]; }
  int at(Action action) const { return row_of[static_cast<std::size_t>(action)]; }
  bool has(Action action) const { return at(action) != kNone; }
  Action gradient() const { return has(Action::backward_input) ? Action::backward_input : Action::backward; }
};

struct Holder {  // of a slot
  int chunk = kNone, microbatch = kNone;
};

// How far a chunk is: microbatches done.
struct Counts {
  bool gathered = false, reduced = false;
  int received = 0, inputs = 0, weights = 0, sent = 0;  // of the backward; a whole one counts as both halves
};

class Walk {
 public:
  Walk(const Schedule& schedule, int rank, Coupling coupling)
      : shape_(schedule.shape),
        rows_(schedule.rows[static_cast<std::size_t>(rank)]),
        slots_(schedule.slots[static_cast<std::size_t>(rank)]),
        rank_(rank),
        coupling_(coupling),
        progress_(static_cast<std::size_t>(shape_.chunks) * static_cast<std::size_t>(shape_.microbatches)),
        counts_(static_cast<std::size_t>(shape_.chunks)),
        holders_(static_cast<std::size_t>(std::max(slots_, 0))),
        waits_(rows_.size()) {}

  // The first problem; empty if there is none.
  std::string run() {
    for (int i = 0; i < std::ssize(rows_); ++i) {
      std::string why = check_fields(row(i));
      if (!why.empty()) return describe(i, why);
      if (row(i).microbatch != kNone) {
        Progress& progress = of(row(i));
        if (progress.first_row == kNone) progress.first_row = i;
        progress.last_row = i;
      }
    }
    for (int i = 0; i < std::ssize(rows_); ++i) {
      std::string why = row(i).microbatch == kNone ? visit_parameters(row(i)) : visit(i);
      if (!why.empty()) return describe(i, why);
      if (coupling_ == Coupling::coupled) couple(i);
    }
    std::string missing = find_missing();
    if (missing.empty() && shape_.training) count_gradient_buffers();
    return missing;
  }

  RankReport report() const { return report_; }
  std::vector<std::vector<int>> take_waits() { return std::move(waits_); }

 private:
  const Row& row(int i) const { return rows_[static_cast<std::size_t>(i)]; }
  std::vector<int>& waits(int i) { return waits_[static_cast<std::size_t>(i)]; }
  Progress& of(int chunk, int microbatch) {
    return progress_[static_cast<std::size_t>(chunk) * static_cast<std::size_t>(shape_.microbatches) +
                     static_cast<std::size_t>(microbatch)];
  }
  Progress& of(const Row& row) { return of(row.chunk, row.microbatch); }
  Counts& counts(int chunk) { return counts_[static_cast<std::size_t>(chunk)]; }
  int stage(int chunk) const { return mesh::stage_of(rank_, chunk, shape_.pp); }
  bool is_first(int chunk) const { return stage(chunk) == 0; }
  bool is_last(int chunk) const { return stage(chunk) == shape_.stages() - 1; }

  std::string describe(int i, std::string_view why) const {
    return fmt::format("rank {} row {} ({}) {}", rank_, i, cell(row(i)), why);
  }

  // May a virtual stage have rows of this kind at all?
  bool belongs(Action action, int chunk) const {
    switch (action) {
      case Action::forward:
      case Action::gather_params: return true;
      case Action::recv_forward: return !is_first(chunk);
      case Action::send_forward: return !is_last(chunk);
      case Action::backward:
      case Action::backward_input:
      case Action::backward_weight:
      case Action::reduce_grads: return shape_.training;
      case Action::recv_backward: return shape_.training && !is_last(chunk);
      case Action::send_backward: return shape_.training && !is_first(chunk);
    }
    return false;
  }

  std::string check_fields(const Row& row) const {
    const bool parameters = row.action == Action::gather_params || row.action == Action::reduce_grads;
    if (row.chunk < 0 || row.chunk >= shape_.chunks)
      return fmt::format("names chunk {} of {}", row.chunk, shape_.chunks);
    if (!belongs(row.action, row.chunk)) {
      return fmt::format("is a {}, which virtual stage {} of {} does not do{}", to_string(row.action), stage(row.chunk),
                         shape_.stages(), shape_.training ? "" : " in a forward-only schedule");
    }
    if (row.channel != channel_of(row.action)) {
      return fmt::format("names channel {} and not {}", row.channel, channel_of(row.action));
    }
    if (parameters) {
      return row.microbatch == kNone && row.slot == kNone ? "" : "names a microbatch or a slot, which it does not have";
    }
    if (row.microbatch < 0 || row.microbatch >= shape_.microbatches) {
      return fmt::format("names microbatch {} of {}", row.microbatch, shape_.microbatches);
    }
    if (row.slot < 0 || row.slot >= slots_) return fmt::format("names slot {} of {}", row.slot, slots_);
    return {};
  }

  std::string visit_parameters(const Row& row) {
    Counts& chunk = counts(row.chunk);
    const bool gather = row.action == Action::gather_params;
    if (std::exchange(gather ? chunk.gathered : chunk.reduced, true)) return "is there twice";
    if (!gather && chunk.weights != shape_.microbatches) {
      return fmt::format("comes after {} of {} backwards of its chunk", chunk.weights, shape_.microbatches);
    }
    return {};
  }

  // Returns the actions that must come before `row` on this rank, for the same (chunk, microbatch).
  std::vector<Action> prerequisites(const Row& row, const Progress& progress) const {
    switch (row.action) {
      case Action::forward:
        return is_first(row.chunk) ? std::vector<Action>{} : std::vector<Action>{Action::recv_forward};
      case Action::send_forward: return {Action::forward};
      case Action::recv_backward: return {Action::forward};  // in order of issue only: it does not wait for it
      case Action::backward:
      case Action::backward_input:
        return is_last(row.chunk) ? std::vector<Action>{Action::forward}
                                  : std::vector<Action>{Action::forward, Action::recv_backward};
      case Action::backward_weight: return {Action::backward_input};
      case Action::send_backward: return {progress.gradient()};
      default: return {};
    }
  }

  std::string visit(int i) {
    const Row& current = row(i);
    Progress& progress = of(current);
    if (progress.has(current.action)) return fmt::format("was already done in row {}", progress.at(current.action));
    if (const int other = other_kind(current.action, progress); other != kNone) {
      return fmt::format("does not go with row {} ({}): a backward is whole or in two halves", other, cell(row(other)));
    }
    for (const Action before : prerequisites(current, progress)) {
      if (!progress.has(before)) return fmt::format("comes before its {}", to_string(before));
      if (current.action != Action::recv_backward) waits(i).push_back(progress.at(before));
    }
    progress.at(current.action) = i;
    if (std::string why = visit_slot(i, progress); !why.empty()) return why;
    return count(current);
  }

  // The row that has done, of the same backward, what this kind does too.
  static int other_kind(Action action, const Progress& progress) {
    if (action == Action::backward) return progress.at(Action::backward_input);
    if (action == Action::backward_input || action == Action::backward_weight) return progress.at(Action::backward);
    return kNone;
  }

  std::string count(const Row& current) {
    Counts& chunk = counts(current.chunk);
    const auto in_order = [&](int& done, std::string_view name) {
      if (current.microbatch == done) {
        ++done;
        return std::string{};
      }
      return fmt::format("is out of order: the next {} of chunk {} is that of microbatch {}", name, current.chunk,
                         done);
    };
    switch (current.action) {
      case Action::forward:
        if (!chunk.gathered) return "comes before the parameters of its chunk are gathered";
        ++live_;
        ++forwards_;
        report_.peak_chunks = std::max(report_.peak_chunks, live_);
        report_.peak_stages = static_cast<double>(report_.peak_chunks) / shape_.chunks;
        return {};
      case Action::recv_backward: return in_order(chunk.received, "received gradient");
      case Action::send_backward: return in_order(chunk.sent, "sent gradient");
      case Action::backward_input: note_warm_up(); return in_order(chunk.inputs, "backward");
      case Action::backward_weight: --live_; return in_order(chunk.weights, "backward_weight");
      case Action::backward: {
        note_warm_up();
        --live_;
        std::string why = in_order(chunk.inputs, "backward");
        return why.empty() ? in_order(chunk.weights, "backward_weight") : why;
      }
      default: return {};
    }
  }

  void note_warm_up() {
    if (!std::exchange(seen_backward_, true)) report_.warm_up = forwards_ - 1;
  }

  std::string visit_slot(int i, Progress& progress) {
    const Row& current = row(i);
    if (progress.first_row == i) {
      Holder& holder = holders_[static_cast<std::size_t>(current.slot)];
      if (holder.chunk != kNone) {
        Progress& before = of(holder.chunk, holder.microbatch);
        if (before.last_row > i) {
          return fmt::format("takes slot {}, which microbatch {} of chunk {} uses until row {}", current.slot,
                             holder.microbatch, holder.chunk, before.last_row);
        }
        progress.row_of_previous = before.row_of;
      }
      holder = {current.chunk, current.microbatch};
      progress.slot = current.slot;
    }
    if (current.slot != progress.slot) {
      return fmt::format("names slot {}, but its microbatch has slot {}", current.slot, progress.slot);
    }
    if (progress.first_row == i || current.action == Action::recv_backward) {
      for (const int previous : progress.row_of_previous) {
        if (previous != kNone) waits(i).push_back(previous);
      }
    }
    return {};
  }

  // A coupled executor's compute stream waits for every transfer above, and receives begin where it stands.
  void couple(int i) {
    const Row& current = row(i);
    if (current.is_compute() || current.action == Action::recv_forward || current.action == Action::recv_backward) {
      waits(i).insert(waits(i).end(), awaited_.begin(), awaited_.end());
    }
    if (current.is_compute()) awaited_ = {i};
    if (current.is_transfer()) awaited_.push_back(i);
  }

  std::string find_missing() {
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      for (int microbatch = 0; microbatch < shape_.microbatches; ++microbatch) {
        const Progress& progress = of(chunk, microbatch);
        for (std::size_t kind = 0; kind < kRowKinds; ++kind) {
          const auto action = static_cast<Action>(kind);
          const bool halves = progress.has(Action::backward_input);
          if (action == Action::backward_input || action == (halves ? Action::backward : Action::backward_weight))
            continue;
          if (belongs(action, chunk) && !progress.has(action)) {
            return fmt::format("rank {} has no {} of chunk {}, microbatch {}", rank_, to_string(action), chunk,
                               microbatch);
          }
        }
      }
      if (shape_.training && !counts(chunk).reduced) {
        return fmt::format("rank {} has no reduce_grads of chunk {}", rank_, chunk);
      }
    }
    return {};
  }

  // Gradients of a chunk arrive, are computed and leave in order of microbatch, so they can go through a ring of
  // buffers. It must be as long as the most of them that are between their first row and their last, and two where they
  // are sent, or the next one's computation would wait for the send. Whoever is first to use a buffer again waits for
  // those that used it before.
  void count_gradient_buffers() {
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      const auto first = [&](int m) {
        const Progress& p = of(chunk, m);
        return p.at(is_last(chunk) ? p.gradient() : Action::recv_backward);
      };
      const auto last = [&](int m) {
        const Progress& p = of(chunk, m);
        return p.at(is_first(chunk) ? p.gradient() : Action::send_backward);
      };
      int ring = is_first(chunk) ? 1 : std::min(2, shape_.microbatches), oldest = 0;
      for (int m = 0; m < shape_.microbatches; ++m) {
        while (oldest < m && last(oldest) < first(m)) ++oldest;
        ring = std::max(ring, m - oldest + 1);
      }
      for (int m = ring; m < shape_.microbatches; ++m) {
        const Progress& before = of(chunk, m - ring);
        waits(first(m)).push_back(before.at(before.gradient()));
        waits(first(m)).push_back(last(m - ring));
      }
      report_.gradient_buffers = std::max(report_.gradient_buffers, ring);
    }
  }

  const Shape& shape_;
  const std::vector<Row>& rows_;
  const int slots_;
  const int rank_;
  const Coupling coupling_;
  std::vector<Progress> progress_;  // [chunk][microbatch]
  std::vector<Counts> counts_;      // [chunk]
  std::vector<Holder> holders_;     // [slot]
  std::vector<std::vector<int>> waits_;
  std::vector<int> awaited_;  // coupled: the last computation and the transfers since
  RankReport report_;
  int live_ = 0, forwards_ = 0;
  bool seen_backward_ = false;
};

}  // namespace

RankWalk walk_rank(const Schedule& schedule, int rank, Coupling coupling) {
  Walk walk(schedule, rank, coupling);
  std::string problem = walk.run();
  if (!problem.empty()) return {.problem = std::move(problem), .report = {}, .waits = {}};
  return {.problem = {}, .report = walk.report(), .waits = walk.take_waits()};
}

}  // namespace ms::sched
