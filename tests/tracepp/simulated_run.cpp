#include "tracepp/simulated_run.h"

#include <algorithm>

namespace ms::tracepp {
namespace {

constexpr std::int64_t kMicrosecond = 1000, kMillisecond = 1000000, kSecond = 1000000000;
constexpr int kHost = -1, kCompute = 0, kTp = 1, kDp = 2, kWorld = 3, kPp = 4;
constexpr int kStreams = 8;
constexpr int kRanksOnNode = 8;

}  // namespace

// One rank's operations in order of issue.
struct Simulation::Program {
  Simulation& sim;
  int number;
  Rank& rank;
  int step = 0;

  std::uint32_t info(Kind kind, Purpose purpose, std::int32_t group, std::int64_t size_bytes, std::string_view type) {
    return sim.tables_.info({.kind = kind,
                             .purpose = purpose,
                             .chunk = static_cast<std::int16_t>(purpose == Purpose::clip ? -1 : 0),
                             .group = group,
                             .type = sim.shared_.strings.id(type),
                             .size_bytes = size_bytes});
  }

  int put(Op op, std::vector<int> after) {
    op.step = step;
    std::erase(after, -1);
    op.after = std::move(after);
    rank.ops.push_back(std::move(op));
    return static_cast<int>(rank.ops.size()) - 1;
  }

  // With the faults that name it.
  int add(Kind kind, Purpose purpose, int stream, std::int64_t work_ns, std::vector<int> after, int microbatch = -1,
          std::int32_t group = -1, int section = -1) {
    const std::int64_t size_bytes = group < 0 ? -1 : 4096 + 64 * static_cast<int>(purpose);
    const bool sums = kind == Kind::all_reduce || kind == Kind::reduce_scatter;
    Op op;
    op.stream = stream;
    op.work_ns = work_ns;
    op.section = section;
    op.microbatch = microbatch < 0 ? kNoMicrobatch : static_cast<std::uint16_t>(microbatch);
    op.info = info(kind, purpose, group, size_bytes, group < 0 ? "" : sums ? "f32 sum" : "f32");
    for (InjectedFault& fault : sim.run_.faults) {
      if (fault.rank != number || fault.step != step || fault.call != kind || fault.purpose != purpose) continue;
      switch (fault.kind) {
        case FaultKind::missing_call: op.is_left_out = true; break;
        case FaultKind::host_stops: op.host_stops = true; break;
        case FaultKind::extra_call: put(op, after); break;
        case FaultKind::foreign_call: {
          Op foreign = op;
          foreign.info = info(kind, purpose, group, 12345, "f32");
          put(foreign, after);
          break;
        }
        case FaultKind::wrong_size:
          op.info = info(kind, purpose, group, size_bytes * 2, sums ? "f32 sum" : "f32");
          break;
        case FaultKind::wrong_dtype: op.info = info(kind, purpose, group, size_bytes, "bf16"); break;
        case FaultKind::wrong_kind: op.info = info(Kind::broadcast, purpose, group, size_bytes, "f32"); break;
        case FaultKind::never_ends: op.never_ends = true; break;
        case FaultKind::dies: op.dies = true; break;
        case FaultKind::wrong_order:
        case FaultKind::crossed_pair: continue;
      }
      fault.rank = -1;  // only the first one
    }
    return put(std::move(op), std::move(after));
  }

  std::int32_t group(const std::string& name, std::vector<int> ranks) {
    return sim.tables_.group({.name = name, .ranks = std::move(ranks), .axis = trace::axis_of(name)});
  }
  std::int32_t channel(const char* name, const mesh::Coord& at, int from, int to) {
    const mesh::Mesh& mesh = sim.run_.mesh;
    return group(std::string(name) + "[dp " + std::to_string(at.dp) + " tp " + std::to_string(at.tp) + "] " +
                     std::to_string(from) + ">" + std::to_string(to),
                 {mesh.rank({.dp = at.dp, .pp = from, .tp = at.tp}), mesh.rank({.dp = at.dp, .pp = to, .tp = at.tp})});
  }
  std::int64_t around(std::int64_t ns) {
    return ns * std::uniform_int_distribution<std::int64_t>(80, 120)(sim.random_) / 100;
  }

  void write() {
    const mesh::Mesh& mesh = sim.run_.mesh;
    const mesh::Coord at = mesh.coord(number);
    const int microbatches = sim.run_.microbatches;
    const auto place = [](const char* a, int x, const char* b, int y) {
      return std::string("[") + a + " " + std::to_string(x) + " " + b + " " + std::to_string(y) + "]";
    };
    const std::int32_t dp = group("dp" + place("pp", at.pp, "tp", at.tp), mesh.along(mesh::Axis::dp, number));
    const std::int32_t tp = group("tp" + place("dp", at.dp, "pp", at.pp), mesh.along(mesh::Axis::tp, number));
    std::vector<int> all(static_cast<std::size_t>(mesh.size()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    const std::int32_t world = group("world", std::move(all));
    const bool first = at.pp == 0, last = at.pp + 1 == mesh.pp;
    int optimizer = -1;
    for (step = 0; step < sim.run_.steps; ++step) {
      const bool crossed = sim.fault(number, step, FaultKind::crossed_pair) != nullptr;
      const bool swapped = sim.fault(number, step, FaultKind::wrong_order) != nullptr;
      add(Kind::data_wait, Purpose::none, kHost, 50 * kMicrosecond, {});
      std::vector<int> gathers, received(static_cast<std::size_t>(microbatches), -1);
      for (int span = 0; span < 2; ++span)
        gathers.push_back(add(Kind::all_gather, Purpose::params, kDp, around(200 * kMicrosecond), {optimizer}, -1, dp));
      int done = -1;
      const auto section = [&](Kind kind, Purpose purpose, std::int64_t work_ns, std::vector<int> after,
                               int microbatch) {
        done = add(kind, Purpose::none, kCompute, around(work_ns), std::move(after), microbatch);
        if (mesh.tp == 1) return;
        const int inside = add(Kind::all_reduce, purpose, kTp, around(50 * kMicrosecond), {}, microbatch, tp, done);
        rank.ops[static_cast<std::size_t>(done)].inner = inside;
      };
      const auto forward = [&](int microbatch) {
        std::vector<int> after = gathers;
        if (!first)
          after.push_back(add(Kind::recv, Purpose::forward, kPp, around(100 * kMicrosecond), {}, microbatch,
                              channel("pp.fwd", at, at.pp - 1, at.pp)));
        section(Kind::forward, Purpose::forward, kMillisecond, after, microbatch);
        if (last) return;
        const int computed = done;
        int& answer = received[static_cast<std::size_t>(microbatch)];
        if (crossed && microbatch == 0)
          answer =
              add(Kind::recv, Purpose::backward, kPp + 3, kMicrosecond, {}, 0, channel("pp.bwd", at, at.pp + 1, at.pp));
        add(Kind::send, Purpose::forward, kPp + 1, around(100 * kMicrosecond), {computed, answer}, microbatch,
            channel("pp.fwd", at, at.pp, at.pp + 1));
      };
      const auto backward = [&](int microbatch) {
        int& answer = received[static_cast<std::size_t>(microbatch)];
        if (!last && answer < 0)
          answer = add(Kind::recv, Purpose::backward, kPp + 3, around(100 * kMicrosecond), {}, microbatch,
                       channel("pp.bwd", at, at.pp + 1, at.pp));
        section(Kind::backward, Purpose::backward, 2 * kMillisecond, {answer}, microbatch);
        if (!first)
          add(Kind::send, Purpose::backward, kPp + 2, around(100 * kMicrosecond), {done}, microbatch,
              channel("pp.bwd", at, at.pp, at.pp - 1));
      };
      const int ahead = std::min(mesh.pp - 1 - at.pp, microbatches);
      for (int i = 0; i < microbatches + ahead; ++i) {
        if (i < microbatches) forward(i);
        if (i >= ahead) backward(i - ahead);
      }
      std::vector<int> before{done};
      if (swapped) before.push_back(add(Kind::all_reduce, Purpose::clip, kWorld, 50 * kMicrosecond, {done}, -1, world));
      std::vector<int> sums;
      for (int span = 0; span < 2; ++span)
        sums.push_back(add(Kind::reduce_scatter, Purpose::grads, kDp, around(300 * kMicrosecond), before, -1, dp));
      if (!swapped) sums.push_back(add(Kind::all_reduce, Purpose::clip, kWorld, 50 * kMicrosecond, sums, -1, world));
      optimizer = add(Kind::optimizer, Purpose::none, kCompute, around(500 * kMicrosecond), sums);
      rank.last_of_step.push_back(optimizer);
    }
  }
};

Simulation::Simulation(const SimulatedRun& run) : run_(run), random_(run.seed) {
  shared_.mesh = run.mesh;
  shared_.has_mesh = true;
  shared_.source = &kOwnSource;
  shared_.microbatches = run.microbatches;
  ranks_.resize(static_cast<std::size_t>(run.mesh.size()));
  for (std::size_t i = 0; i < ranks_.size(); ++i) Program{*this, static_cast<int>(i), ranks_[i]}.write();
  ready_.resize(shared_.groups.size());
  for (Rank& rank : ranks_) link(rank);
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    due_.push({std::uniform_int_distribution<std::int64_t>(0, kMillisecond)(random_), static_cast<int>(i), -1});
  while (!due_.empty()) {
    const Due due = due_.top();
    due_.pop();
    Rank& rank = ranks_[static_cast<std::size_t>(due.rank)];
    if (due.at_ns > rank.died_ns) continue;
    rest_ns_ = std::max(rest_ns_, due.at_ns);
    if (due.op < 0) {
      issue(due.rank, due.at_ns);
    } else {
      finish(due.rank, due.op, due.at_ns);
    }
  }
}

const InjectedFault* Simulation::fault(int rank, int step, FaultKind kind) const {
  for (const InjectedFault& fault : run_.faults)
    if (fault.rank == rank && fault.step == step && fault.kind == kind) return &fault;
  return nullptr;
}

// Streams, numbers in groups, and how much each operation waits for: one of it is to be issued.
void Simulation::link(Rank& rank) {
  std::vector<int> newest(kStreams, -1);
  std::vector<std::uint32_t> numbers(shared_.groups.size(), 0);
  rank.then.resize(rank.ops.size());
  for (std::size_t i = 0; i < rank.ops.size(); ++i) {
    Op& op = rank.ops[i];
    const EventInfo& info = shared_.infos[op.info];
    if (info.group >= 0 && !op.is_left_out) op.sequence = numbers[static_cast<std::size_t>(info.group)]++;
    if (op.stream >= 0 && !op.is_left_out) {
      int& before = newest[static_cast<std::size_t>(op.stream)];
      if (before >= 0) op.after.push_back(before);
      before = static_cast<int>(i);
    }
    op.waits = 1 + static_cast<int>(op.after.size()) + (op.section >= 0 ? 1 : 0);
    for (const int earlier : op.after) rank.then[static_cast<std::size_t>(earlier)].push_back(static_cast<int>(i));
  }
}

// The host is at most one step ahead of its device.
void Simulation::issue(int number, std::int64_t now_ns) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  std::int64_t at_ns = now_ns;
  if (rank.issued > 0 && rank.ops[rank.issued - 1].stream == kHost && rank.ops[rank.issued - 1].end_ns == kNever)
    return;
  while (rank.issued < rank.ops.size() && now_ns <= rank.died_ns) {
    Op& op = rank.ops[rank.issued];
    if (op.step >= 2) {
      const int gate = rank.last_of_step[static_cast<std::size_t>(op.step - 2)];
      if (rank.ops[static_cast<std::size_t>(gate)].end_ns == kNever) return;
    }
    if (op.host_stops) return;
    op.issued_ns = at_ns;
    at_ns += kMicrosecond;
    release(number, static_cast<int>(rank.issued++), now_ns);
    if (op.stream == kHost) return;  // the host goes on when it ends
  }
}

// One thing less that it waits for.
void Simulation::release(int number, int index, std::int64_t now_ns) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  Op& op = rank.ops[static_cast<std::size_t>(index)];
  if (--op.waits > 0 || now_ns > rank.died_ns) return;
  op.begin_ns = std::max(now_ns, op.issued_ns);
  if (op.dies) {
    rank.died_ns = op.begin_ns;
    rest_ns_ = std::max(rest_ns_, rank.died_ns);
    return;
  }
  const EventInfo& info = shared_.infos[op.info];
  if (op.is_left_out || info.group < 0) {
    if (op.inner >= 0) {
      release(number, op.inner, op.begin_ns);
    } else if (!op.never_ends) {
      due_.push({op.begin_ns + (op.is_left_out ? 0 : op.work_ns), number, index});
    }
    return;
  }
  auto& meetings = ready_[static_cast<std::size_t>(info.group)];
  if (meetings.size() <= op.sequence) meetings.resize(op.sequence + std::size_t{1});
  auto& meeting = meetings[op.sequence];
  meeting.emplace_back(number, index);
  if (meeting.size() < shared_.groups[static_cast<std::size_t>(info.group)].ranks.size()) return;
  std::int64_t last_ns = 0;
  for (const auto& [member, i] : meeting) {
    const Op& theirs = ranks_[static_cast<std::size_t>(member)].ops[static_cast<std::size_t>(i)];
    const EventInfo& call = shared_.infos[theirs.info];
    const bool alike = trace::is_point_to_point(info.kind) || call.kind == info.kind;
    if (!alike || call.size_bytes != info.size_bytes || call.type != info.type) return;
    last_ns = std::max(last_ns, theirs.begin_ns);
  }
  for (const auto& [member, i] : meeting) due_.push({last_ns + op.work_ns, member, i});
}

void Simulation::finish(int number, int index, std::int64_t now_ns) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  Op& op = rank.ops[static_cast<std::size_t>(index)];
  op.end_ns = now_ns;
  for (const int next : rank.then[static_cast<std::size_t>(index)]) release(number, next, now_ns);
  if (op.section >= 0) {
    const Op& section = rank.ops[static_cast<std::size_t>(op.section)];
    if (section.inner == index && !section.never_ends)
      due_.push({std::max(now_ns, section.begin_ns + section.work_ns), number, op.section});
  }
  if (op.stream == kHost || std::ranges::count(rank.last_of_step, index) > 0) issue(number, now_ns);
}

bool Simulation::came_to_an_end() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.ops.back().end_ns != kNever; });
}

RankTrace Simulation::trace_of(int number, std::int64_t at_ns, std::mt19937& random) const {
  const Rank& rank = ranks_[static_cast<std::size_t>(number)];
  const int node = number / kRanksOnNode;
  const auto flush_ns = std::min(at_ns, rank.died_ns) - std::uniform_int_distribution<std::int64_t>(0, kSecond)(random);
  const std::int64_t offset_ns = static_cast<std::int64_t>(node * 7919 % 997) * 3600 * kSecond;
  RankTrace trace;
  trace.rank = number;
  trace.at = run_.mesh.coord(number);
  trace.host = "n" + std::to_string(100 + node).substr(1);
  trace.clock_ns = offset_ns;
  trace.realtime_ns = 1700000000 * kSecond + node * 2 * kMillisecond;
  trace.ending = Ending::running;
  std::int64_t written_ns = flush_ns;
  const bool ended = rank.ops.back().end_ns <= at_ns;
  if (ended) {
    trace.ending = Ending::done;
    written_ns = rank.ops.back().end_ns;
  }
  for (const Op& op : rank.ops) {
    if (op.issued_ns > written_ns || op.is_left_out) continue;
    Event event{.info = op.info, .step = op.step, .microbatch = op.microbatch};
    event.detail = shared_.infos[op.info].group < 0 ? kNoDetail : op.sequence;
    event.state = op.end_ns <= written_ns ? State::ended : op.begin_ns <= written_ns ? State::begun : State::issued;
    if (event.state != State::issued) event.begin_ns = op.begin_ns + offset_ns;
    if (event.state == State::ended) event.duration_ns = op.end_ns - op.begin_ns;
    trace.events.push_back(event);
  }
  trace.last_flush_ns = written_ns + offset_ns;
  return trace;
}

RunTrace Simulation::traces(double at_s) {
  const auto at_ns = static_cast<std::int64_t>(at_s * 1e9);
  std::mt19937 random(run_.seed + static_cast<unsigned>(at_ns / kMicrosecond));
  RunTrace trace;
  trace.source = shared_.source;
  trace.mesh = shared_.mesh;
  trace.has_mesh = true;
  trace.infos = shared_.infos;
  trace.groups = shared_.groups;
  for (std::uint32_t i = 1; i < shared_.strings.size(); ++i) trace.strings.id(shared_.strings.text(i));
  for (std::size_t i = 0; i < ranks_.size(); ++i) trace.ranks.push_back(trace_of(static_cast<int>(i), at_ns, random));
  return trace;
}

}  // namespace ms::tracepp
