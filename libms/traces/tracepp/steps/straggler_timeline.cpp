#include "tracepp/steps/straggler_timeline.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"

namespace ms::tracepp {
namespace {

// One event: which operation, when.
struct Record {
  std::size_t op, step;
  int dp;
  double start_s, duration_s;
};

struct Records {
  std::vector<Record> all;
  std::vector<StepOp> ops;
  std::map<std::int32_t, std::size_t> steps;  // numbers to indices
};

// The rank that stands for a stage and a dp rank.
std::map<std::pair<int, int>, const RankTrace*> workers(const RunTrace& trace) {
  std::map<std::pair<int, int>, const RankTrace*> found;
  for (const RankTrace& rank : trace.ranks) {
    const RankTrace*& of = found[{rank.at.pp, rank.at.dp}];
    if (of == nullptr || rank.at.tp < of->at.tp) of = &rank;
  }
  return found;
}

Records records_of(const RunTrace& trace, const std::map<std::pair<int, int>, const RankTrace*>& workers) {
  std::vector<std::optional<OpType>> types;
  for (const EventInfo& info : trace.infos) types.push_back(op_type(trace.strings.text(info.name)));
  std::int64_t origin_ns = std::numeric_limits<std::int64_t>::max();
  for (const auto& [place, rank] : workers) {
    if (!rank->events.empty()) origin_ns = std::min(origin_ns, rank->events.front().begin_ns);
  }
  Records records;
  std::map<std::tuple<int, OpType, int>, std::size_t> op_of;  // stage, type, sequence
  for (const auto& [place, rank] : workers) {
    std::map<std::pair<std::int32_t, OpType>, int> counts;
    for (const Event& event : rank->events) {
      const std::optional<OpType> type = types[event.info];
      if (!type || event.step == kNoStep || event.state != State::ended) continue;
      const int sequence = counts[{event.step, *type}]++;
      const auto [op, is_new] = op_of.try_emplace({place.first, *type, sequence}, records.ops.size());
      if (is_new) {
        records.ops.push_back(
            {.type = *type, .sequence = sequence, .stage = place.first, .chunk = trace.info(event).chunk});
      }
      const std::size_t step = records.steps.try_emplace(event.step, records.steps.size()).first->second;
      records.all.push_back({.op = op->second,
                             .step = step,
                             .dp = place.second,
                             .start_s = 1e-9 * static_cast<double>(event.begin_ns - origin_ns),
                             .duration_s = 1e-9 * static_cast<double>(event.duration_ns)});
    }
  }
  return records;
}

// [op of records], [step of records] -> index in StepTrace or -1; [step of records]: an operation that not all ranks
// have.
struct Kept {
  const std::vector<int>&op, &step, &lacking;
};

// Says of each step that is left out which rank lacks an operation, or has one that most steps do not have.
void tell_why(const Records& records, const std::map<std::pair<int, int>, const RankTrace*>& workers, const Kept& kept,
              StepTrace& steps) {
  if (steps.left_out.empty()) return;
  const auto dp = static_cast<std::size_t>(steps.dp);
  // At most twice as large as the trace: some step is kept, so that more than half of all lanes have its operations.
  std::vector<char> has(records.steps.size() * dp, 0);
  std::vector<const Record*> other(records.steps.size(), nullptr);
  for (const Record& record : records.all) {
    if (kept.step[record.step] >= 0) continue;
    if (kept.op[record.op] < 0) {
      other[record.step] = &record;
    } else if (kept.op[record.op] == kept.lacking[record.step]) {
      has[record.step * dp + static_cast<std::size_t>(record.dp)] = 1;
    }
  }
  for (StepLeftOut& left : steps.left_out) {
    const std::size_t step = records.steps.at(static_cast<std::int32_t>(left.step));
    if (kept.lacking[step] >= 0) {
      const StepOp& op = steps.ops[static_cast<std::size_t>(kept.lacking[step])];
      const auto lanes = has.begin() + static_cast<std::ptrdiff_t>(step * dp);
      const auto absent = static_cast<int>(std::find(lanes, lanes + steps.dp, 0) - lanes);
      left.why = fmt::format("rank {} lacks {}", workers.at({op.stage, absent})->rank, to_string(op));
    } else {
      const StepOp& op = records.ops[other[step]->op];
      left.why = fmt::format("rank {} has {}, which most steps do not have",
                             workers.at({op.stage, other[step]->dp})->rank, to_string(op));
    }
  }
}

}  // namespace

StepTrace straggler_steps(const RunTrace& trace) {
  const auto worker_of = workers(trace);
  const Records records = records_of(trace, worker_of);
  StepTrace steps;
  for (const auto& [place, rank] : worker_of) {
    steps.pp = std::max(steps.pp, place.first + 1);
    steps.dp = std::max(steps.dp, place.second + 1);
  }
  steps.tp = trace.mesh.tp;
  const std::size_t op_count = records.ops.size(), step_count = records.steps.size();
  if (op_count == 0) {
    throw user_error("trace.shape", "the trace has no events of a training step: no forward-compute, no optimizer");
  }
  const auto dp = static_cast<std::size_t>(steps.dp);
  if (worker_of.size() != static_cast<std::size_t>(steps.pp) * dp) {
    throw user_error("trace.shape", fmt::format("the trace has {} of the {} ranks of dp {} and pp {}", worker_of.size(),
                                                static_cast<std::size_t>(steps.pp) * dp, dp, steps.pp));
  }

  std::vector<std::size_t> lanes_with(op_count);
  for (const Record& record : records.all) ++lanes_with[record.op];
  std::vector<int> new_op(op_count, -1), new_step(step_count, -1), lacking(step_count, -1);
  for (std::size_t op = 0; op < op_count; ++op) {
    if (2 * lanes_with[op] <= step_count * dp) continue;
    new_op[op] = static_cast<int>(steps.ops.size());
    steps.ops.push_back(records.ops[op]);
  }
  // Counts only operations that most steps have: a table of all could have a million rows and a million columns.
  std::vector<std::size_t> lanes_of(steps.ops.size() * step_count);
  std::vector<char> has_other(step_count, 0);
  for (const Record& record : records.all) {
    if (new_op[record.op] < 0) {
      has_other[record.step] = 1;
    } else {
      ++lanes_of[static_cast<std::size_t>(new_op[record.op]) * step_count + record.step];
    }
  }
  for (const auto& [number, step] : records.steps) {
    std::size_t op = 0;
    while (op < steps.ops.size() && lanes_of[op * step_count + step] == dp) ++op;
    if (op < steps.ops.size() || has_other[step] != 0) {
      steps.left_out.push_back({number, {}});
      if (op < steps.ops.size()) lacking[step] = static_cast<int>(op);
      continue;
    }
    new_step[step] = static_cast<int>(steps.steps.size());
    steps.steps.push_back(number);
  }
  if (steps.steps.empty()) {
    throw user_error(
        "trace.shape",
        fmt::format("in none of the {} steps of the trace all ranks have the same operations", step_count));
  }
  tell_why(records, worker_of, {new_op, new_step, lacking}, steps);

  steps.start_s.resize(steps.ops.size() * steps.lanes());
  steps.duration_s.resize(steps.start_s.size());
  for (const Record& record : records.all) {
    if (new_step[record.step] < 0) continue;
    const std::size_t at = steps.at(static_cast<std::size_t>(new_op[record.op]),
                                    static_cast<std::size_t>(new_step[record.step]), record.dp);
    steps.start_s[at] = record.start_s;
    steps.duration_s[at] = record.duration_s;
  }
  steps.ranks.assign(static_cast<std::size_t>(steps.pp) * dp, -1);
  for (const auto& [place, rank] : worker_of) {
    steps.ranks[static_cast<std::size_t>(place.first) * dp + static_cast<std::size_t>(place.second)] = rank->rank;
  }
  return steps;
}

}  // namespace ms::tracepp
