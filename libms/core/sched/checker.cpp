#include "sched/checker.h"

#include <utility>

#include "base/error.h"
#include "sched/rank_walk.h"
#include "sched/virtual_run.h"

namespace ms::sched {
namespace {

std::string check_shape(const Schedule& schedule) {
  const Shape& shape = schedule.shape;
  if (shape.pp < 1 || shape.chunks < 1 || shape.microbatches < 1) return "the shape has a size below 1";
  if (shape.pp == 1 && shape.chunks > 1) return "with pp 1 there can be only one chunk";
  if (std::ssize(schedule.rows) != shape.pp || std::ssize(schedule.slots) != shape.pp) {
    return fmt::format("the schedule has rows for {} ranks and slots for {}, pp is {}", schedule.rows.size(),
                       schedule.slots.size(), shape.pp);
  }
  return {};
}

// `end` of the rows as they ran: a gather or reduction is launched when the computation above it ends.
void note_launches(const std::vector<Row>& rows, const std::vector<double>& end, int chunks, RankReport& report) {
  report.gathers.assign(static_cast<std::size_t>(chunks), 0.0);
  report.reductions = report.gathers;
  double now = 0.0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto chunk = static_cast<std::size_t>(rows[i].chunk);
    if (rows[i].is_compute()) now = end[i];
    if (rows[i].action == Action::gather_params) report.gathers[chunk] = now;
    if (rows[i].action == Action::reduce_grads) report.reductions[chunk] = now;
  }
}

}  // namespace

Report check(const Schedule& schedule, const Times& times, Coupling coupling) {
  Report report;
  report.problem = check_shape(schedule);
  if (!report.problem.empty()) return report;
  const Shape& shape = schedule.shape;
  Waits waits;
  for (int rank = 0; rank < shape.pp; ++rank) {
    RankWalk walk = walk_rank(schedule, rank, coupling);
    report.problem = std::move(walk.problem);
    if (!report.problem.empty()) return report;
    report.ranks.push_back(std::move(walk.report));
    waits.push_back(std::move(walk.waits));
  }
  const VirtualRun run = run_in_virtual_time(schedule, waits, times);
  report.problem = run.problem;
  if (!report.problem.empty()) return report;
  report.problem = deadlock_when_late(schedule, std::move(waits));
  if (!report.problem.empty()) {
    report.problem +=
        "; no row may be issued before the computations above it are over: a send belongs right below the computation "
        "that it sends, above any that may wait for the peer";
    return report;
  }
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    report.ranks[rank].at_once = run.at_once[rank];
    note_launches(schedule.rows[rank], run.end[rank], shape.chunks, report.ranks[rank]);
  }
  report.makespan = run.makespan;
  const double busy = shape.microbatches * (times.forward + (shape.training ? times.backward : 0.0));
  report.bubble = (run.makespan - busy) / busy;
  report.ok = true;
  return report;
}

void require_sound(const Schedule& schedule, std::string_view name, Coupling coupling) {
  const Report report = check(schedule, {}, coupling);
  if (report.ok) return;
  std::string hint;
  if (coupling == Coupling::coupled && check(schedule).ok) {
    hint = "it can with overlap.pp = true; without it, place a receive before a send that is due at the same time";
  }
  throw user_error("sched.invalid", fmt::format("the schedule {} cannot run: {}", name, report.problem), hint);
}

}  // namespace ms::sched
