#include "sched/checker.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "mesh/layers.h"
#include "sched/virtual_run.h"

namespace ms::sched {
namespace {

using RowOf = std::array<int, 6>;  // by What, transfers and computations: the row, kNone if not yet
constexpr RowOf kNoRows{kNone, kNone, kNone, kNone, kNone, kNone};

// What one rank has seen of one (chunk, microbatch).
struct Progress {
  RowOf row_of = kNoRows;
  RowOf row_of_previous = kNoRows;  // of the one that had the slot before
  int first_row = kNone, last_row = kNone;
  int slot = kNone;

  int& at(What what) { return row_of[static_cast<std::size_t>(what)]; }
  bool has(What what) { return at(what) != kNone; }
};

struct Holder {  // of a slot
  int chunk = kNone, microbatch = kNone;
};

// Walks the rows of one rank in order of issue. Finds what can be seen without the other ranks, and lists what each row
// waits for.
class RankWalk {
 public:
  RankWalk(const Schedule& schedule, int rank)
      : shape_(schedule.shape),
        rows_(schedule.rows[static_cast<std::size_t>(rank)]),
        slots_(schedule.slots[static_cast<std::size_t>(rank)]),
        rank_(rank),
        progress_(static_cast<std::size_t>(shape_.chunks) * static_cast<std::size_t>(shape_.microbatches)),
        gathered_(static_cast<std::size_t>(shape_.chunks), false),
        reduced_(gathered_),
        backwards_(static_cast<std::size_t>(shape_.chunks), 0),
        waits_(rows_.size()) {
    for (const int count : slots_) holders_.emplace_back(static_cast<std::size_t>(std::max(count, 0)));
  }

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
    }
    return find_missing();
  }

  RankReport report() const { return report_; }
  std::vector<std::vector<int>> take_waits() { return std::move(waits_); }

 private:
  const Row& row(int i) const { return rows_[static_cast<std::size_t>(i)]; }
  Progress& of(int chunk, int microbatch) {
    return progress_[static_cast<std::size_t>(chunk) * static_cast<std::size_t>(shape_.microbatches) +
                     static_cast<std::size_t>(microbatch)];
  }
  Progress& of(const Row& row) { return of(row.chunk, row.microbatch); }
  int stage(int chunk) const { return mesh::stage_of(rank_, chunk, shape_.pp); }
  bool is_first(int chunk) const { return stage(chunk) == 0; }
  bool is_last(int chunk) const { return stage(chunk) == shape_.stages() - 1; }

  std::string describe(int i, std::string_view why) const {
    return fmt::format("rank {} row {} ({}) {}", rank_, i, cell(row(i)), why);
  }

  // Does a virtual stage have rows of this kind at all?
  bool belongs(What what, int chunk) const {
    switch (what) {
      case What::forward:
      case What::gather_params:
        return true;
      case What::recv_forward:
        return !is_first(chunk);
      case What::send_forward:
        return !is_last(chunk);
      case What::backward:
      case What::reduce_grads:
        return shape_.training;
      case What::recv_backward:
        return shape_.training && !is_last(chunk);
      case What::send_backward:
        return shape_.training && !is_first(chunk);
    }
    return false;
  }

  std::string check_fields(const Row& row) const {
    const bool parameters = row.what == What::gather_params || row.what == What::reduce_grads;
    if (row.chunk < 0 || row.chunk >= shape_.chunks)
      return fmt::format("names chunk {} of {}", row.chunk, shape_.chunks);
    if (!belongs(row.what, row.chunk)) {
      return fmt::format("is a {}, which virtual stage {} of {} does not do{}", to_string(row.what), stage(row.chunk),
                         shape_.stages(), shape_.training ? "" : " in a forward-only schedule");
    }
    if (row.channel != channel_of(row.what)) {
      return fmt::format("names channel {} and not {}", row.channel, channel_of(row.what));
    }
    if (parameters) {
      return row.microbatch == kNone && row.slot == kNone ? "" : "names a microbatch or a slot, which it does not have";
    }
    if (row.microbatch < 0 || row.microbatch >= shape_.microbatches) {
      return fmt::format("names microbatch {} of {}", row.microbatch, shape_.microbatches);
    }
    const int count = slots_[static_cast<std::size_t>(row.chunk)];
    if (row.slot < 0 || row.slot >= count) return fmt::format("names slot {} of {}", row.slot, count);
    return {};
  }

  std::string visit_parameters(const Row& row) {
    const auto chunk = static_cast<std::size_t>(row.chunk);
    const bool gather = row.what == What::gather_params;
    if (gather ? gathered_[chunk] : reduced_[chunk]) return "is there twice";
    (gather ? gathered_ : reduced_)[chunk] = true;
    if (!gather && backwards_[chunk] != shape_.microbatches) {
      return fmt::format("comes after {} of {} backwards of its chunk", backwards_[chunk], shape_.microbatches);
    }
    return {};
  }

  // What must have come before, on this rank, for the same (chunk, microbatch).
  std::vector<What> prerequisites(const Row& row) const {
    switch (row.what) {
      case What::forward:
        return is_first(row.chunk) ? std::vector<What>{} : std::vector<What>{What::recv_forward};
      case What::send_forward:
        return {What::forward};
      case What::recv_backward:
        return {What::forward};  // in order of issue only: it does not wait for it
      case What::backward:
        return is_last(row.chunk) ? std::vector<What>{What::forward}
                                  : std::vector<What>{What::forward, What::recv_backward};
      case What::send_backward:
        return {What::backward};
      default:
        return {};
    }
  }

  std::string visit(int i) {
    const Row& current = row(i);
    Progress& progress = of(current);
    std::vector<int>& waits = waits_[static_cast<std::size_t>(i)];
    if (progress.has(current.what)) return fmt::format("was already done in row {}", progress.at(current.what));
    for (const What before : prerequisites(current)) {
      if (!progress.has(before)) return fmt::format("comes before its {}", to_string(before));
      if (current.what != What::recv_backward) waits.push_back(progress.at(before));
    }
    progress.at(current.what) = i;
    if (std::string why = visit_slot(i, progress, waits); !why.empty()) return why;
    const auto chunk = static_cast<std::size_t>(current.chunk);
    if (current.what == What::forward) {
      if (!gathered_[chunk]) return "comes before the parameters of its chunk are gathered";
      ++live_;
      ++forwards_;
      report_.peak_chunks = std::max(report_.peak_chunks, live_);
      report_.peak_stages = static_cast<double>(report_.peak_chunks) / shape_.chunks;
    } else if (current.what == What::backward) {
      if (current.microbatch != backwards_[chunk]) {
        return fmt::format("is out of order: the next backward of chunk {} is that of microbatch {}", current.chunk,
                           backwards_[chunk]);
      }
      if (live_ == forwards_) report_.warm_up = forwards_ - 1;  // the first backward
      ++backwards_[chunk];
      --live_;
    }
    return {};
  }

  std::string visit_slot(int i, Progress& progress, std::vector<int>& waits) {
    const Row& current = row(i);
    if (progress.first_row == i) {
      Holder& holder = holders_[static_cast<std::size_t>(current.chunk)][static_cast<std::size_t>(current.slot)];
      if (holder.chunk != kNone) {
        Progress& before = of(holder.chunk, holder.microbatch);
        if (before.last_row > i) {
          return fmt::format("takes slot {}, which microbatch {} uses until row {}", current.slot, holder.microbatch,
                             before.last_row);
        }
        progress.row_of_previous = before.row_of;
      }
      holder = {current.chunk, current.microbatch};
      progress.slot = current.slot;
    }
    if (current.slot != progress.slot) {
      return fmt::format("names slot {}, but its microbatch has slot {}", current.slot, progress.slot);
    }
    if (progress.first_row == i || current.what == What::recv_backward) {
      for (const int previous : progress.row_of_previous) {
        if (previous != kNone) waits.push_back(previous);
      }
    }
    return {};
  }

  std::string find_missing() {
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      for (int microbatch = 0; microbatch < shape_.microbatches; ++microbatch) {
        for (std::size_t kind = 0; kind < 6; ++kind) {
          const auto what = static_cast<What>(kind);
          if (belongs(what, chunk) && !of(chunk, microbatch).has(what)) {
            return fmt::format("rank {} has no {} of chunk {}, microbatch {}", rank_, to_string(what), chunk,
                               microbatch);
          }
        }
      }
      if (shape_.training && !reduced_[static_cast<std::size_t>(chunk)]) {
        return fmt::format("rank {} has no reduce_grads of chunk {}", rank_, chunk);
      }
    }
    return {};
  }

  const Shape& shape_;
  const std::vector<Row>& rows_;
  const std::vector<int>& slots_;
  const int rank_;
  std::vector<Progress> progress_;            // [chunk][microbatch]
  std::vector<std::vector<Holder>> holders_;  // [chunk][slot]
  std::vector<bool> gathered_, reduced_;
  std::vector<int> backwards_;  // done, by chunk
  std::vector<std::vector<int>> waits_;
  RankReport report_;
  int live_ = 0, forwards_ = 0;
};

std::string check_shape(const Schedule& schedule) {
  const Shape& shape = schedule.shape;
  if (shape.pp < 1 || shape.chunks < 1 || shape.microbatches < 1) return "the shape has a size below 1";
  if (shape.pp == 1 && shape.chunks > 1) return "with pp 1 there can be only one chunk";
  if (std::ssize(schedule.rows) != shape.pp || std::ssize(schedule.slots) != shape.pp) {
    return fmt::format("the schedule has rows for {} ranks and slots for {}, pp is {}", schedule.rows.size(),
                       schedule.slots.size(), shape.pp);
  }
  for (std::size_t rank = 0; rank < schedule.slots.size(); ++rank) {
    if (std::ssize(schedule.slots[rank]) != shape.chunks) {
      return fmt::format("rank {} counts the slots of {} chunks and not of {}", rank, schedule.slots[rank].size(),
                         shape.chunks);
    }
  }
  return {};
}

}  // namespace

Report check(const Schedule& schedule, const Times& times) {
  Report report;
  report.problem = check_shape(schedule);
  if (!report.problem.empty()) return report;
  const Shape& shape = schedule.shape;
  Waits waits;
  for (int rank = 0; rank < shape.pp; ++rank) {
    RankWalk walk(schedule, rank);
    report.problem = walk.run();
    if (!report.problem.empty()) return report;
    report.ranks.push_back(walk.report());
    waits.push_back(walk.take_waits());
  }
  const VirtualRun run = run_in_virtual_time(schedule, waits, times);
  report.problem = run.problem;
  if (!report.problem.empty()) return report;
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) report.ranks[rank].at_once = run.at_once[rank];
  report.makespan = run.makespan;
  const double busy = shape.microbatches * (times.forward + (shape.training ? times.backward : 0.0));
  report.bubble = (run.makespan - busy) / busy;
  report.ok = true;
  return report;
}

void require_sound(const Schedule& schedule, std::string_view name) {
  const Report report = check(schedule);
  if (!report.ok)
    throw user_error("sched.invalid", fmt::format("the schedule {} cannot run: {}", name, report.problem));
}

}  // namespace ms::sched
