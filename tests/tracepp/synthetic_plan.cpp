#include "tracepp/synthetic_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/error.h"
#include "sched/generate.h"

namespace ms::tracepp {
namespace {

using sched::Action;

bool ends_weights(const sched::Row& row) {
  return row.action == sched::Action::backward || row.action == sched::Action::backward_weight;
}

std::size_t place(int number) { return static_cast<std::size_t>(number); }

// The rows of one stage, what they wait for on it, and how many events its step has.
class Stage {
 public:
  Stage(const SyntheticRun& run, int pp, SyntheticPlan& plan)
      : run_(run), pp_(pp), plan_(plan), begun_(place(run.chunks), false), last_backward_(place(run.chunks), -1) {}

  void add(const std::vector<sched::Row>& rows) {
    const std::size_t over_dp = run_.mesh.dp > 1 ? place(run_.chunks * run_.spans) : 0;
    plan_.gather.push_back(next_event_);
    next_event_ += over_dp;
    for (const sched::Row& row : rows)
      if (row.is_compute() || row.is_transfer()) add(row);
    for (const int node : last_backward_) plan_.nodes[place(node)].last_backward = true;
    plan_.reduce.push_back(next_event_);
    plan_.events.push_back(next_event_ + over_dp + 2);  // clip, optimizer
  }
  const std::array<std::vector<int>, mesh::kChannels>& on_channel() const { return on_channel_; }

 private:
  void add(const sched::Row& row) {
    const int index = static_cast<int>(plan_.nodes.size());
    SyntheticRow node{.row = row, .pp = pp_, .event = next_event_};
    next_event_ += 1 + (row.is_compute() ? place(tp_collectives_of(run_)) : 0);
    const auto wait = [&](Action action) {
      const auto found = done_.find({action, row.chunk, row.microbatch});
      if (found != done_.end()) node.waits.push_back(found->second);
    };
    std::vector<int>& stream = row.is_compute() ? computed_ : on_channel_[place(row.channel)];
    if (!stream.empty()) node.waits.push_back(stream.back());
    stream.push_back(index);
    if (row.action == sched::Action::forward) {
      wait(Action::recv_forward);
      node.first_forward = !begun_[place(row.chunk)];
      begun_[place(row.chunk)] = true;
    } else if (row.action == sched::Action::backward || row.action == sched::Action::backward_input) {
      wait(Action::recv_backward);
    } else if (row.action == sched::Action::send_forward) {
      wait(Action::forward);
    } else if (row.action == sched::Action::send_backward) {
      wait(Action::backward);
      wait(Action::backward_input);
    } else if (row.action == sched::Action::recv_forward && slots_.contains(row.slot)) {
      node.waits.push_back(slots_[row.slot]);
    }
    if (row.is_compute()) slots_[row.slot] = index;
    if (ends_weights(row)) last_backward_[place(row.chunk)] = index;
    done_[{row.action, row.chunk, row.microbatch}] = index;
    plan_.nodes.push_back(std::move(node));
  }

  const SyntheticRun& run_;
  int pp_;
  SyntheticPlan& plan_;
  std::size_t next_event_ = 2;                        // behind step and data_wait
  std::map<std::tuple<Action, int, int>, int> done_;  // by action, chunk, microbatch
  std::map<int, int> slots_;                          // by slot: the last computation that used it
  std::vector<bool> begun_;
  std::vector<int> last_backward_;
  std::vector<int> computed_;
  std::array<std::vector<int>, mesh::kChannels> on_channel_;
};

void find_order(SyntheticPlan& plan) {
  const std::size_t count = plan.nodes.size();
  std::vector<std::size_t> left(count);
  std::vector<std::vector<int>> next(count);
  std::vector<bool> is_ready(count, false);
  std::vector<int> ready;
  for (std::size_t i = 0; i < count; ++i) {
    left[i] = plan.nodes[i].waits.size();
    for (const int before : plan.nodes[i].waits) next[place(before)].push_back(static_cast<int>(i));
    if (left[i] == 0) ready.push_back(static_cast<int>(i));
  }
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const int index = ready[i], peer = plan.nodes[place(index)].peer;
    is_ready[place(index)] = true;
    if (peer >= 0 && !is_ready[place(peer)]) continue;
    plan.order.push_back(index);
    for (const int done : {index, peer}) {
      if (done < 0) continue;
      for (const int waiting : next[place(done)])
        if (--left[place(waiting)] == 0) ready.push_back(waiting);
    }
  }
  MS_ASSERT(ready.size() == count, "the schedule does not come to its end");
}

Kind kind_of(Action action) {
  return action == sched::Action::forward          ? Kind::forward
         : action == sched::Action::backward       ? Kind::backward
         : action == sched::Action::backward_input ? Kind::backward_input
                                                   : Kind::backward_weight;
}

}  // namespace

int tp_collectives_of(const SyntheticRun& run) { return run.mesh.tp > 1 ? run.tp_collectives : 0; }

std::vector<int> reduction_order(const SyntheticRun& run) {
  std::vector<int> chunks;
  for (int chunk = run.chunks; chunk-- > 0;) chunks.push_back(chunk);
  return chunks;
}

SyntheticPlan make_synthetic_plan(const SyntheticRun& run) {
  const sched::Schedule schedule = sched::make_schedule(run.schedule, run.mesh.pp, run.chunks, run.microbatches);
  SyntheticPlan plan;
  const int pp = run.mesh.pp;
  std::vector<std::array<std::vector<int>, mesh::kChannels>> channels;
  for (int stage = 0; stage < pp; ++stage) {
    Stage rows(run, stage, plan);
    rows.add(schedule.rows[place(stage)]);
    channels.push_back(rows.on_channel());
  }
  for (int stage = 0; stage < pp; ++stage) {
    for (const bool forward : {true, false}) {
      const auto out = forward ? mesh::Channel::forward_out : mesh::Channel::backward_out;
      const auto in = forward ? mesh::Channel::forward_in : mesh::Channel::backward_in;
      const auto& sends = channels[place(stage)][static_cast<std::size_t>(out)];
      const auto& receives = channels[place((stage + (forward ? 1 : pp - 1)) % pp)][static_cast<std::size_t>(in)];
      MS_ASSERT(sends.size() == receives.size(), "{} sends for {} receives", sends.size(), receives.size());
      for (std::size_t k = 0; k < sends.size(); ++k) {
        plan.nodes[place(sends[k])].peer = receives[k];
        plan.nodes[place(receives[k])].peer = sends[k];
      }
    }
  }
  find_order(plan);
  return plan;
}

RunTrace describe_run(const SyntheticRun& run, const SyntheticPlan& plan) {
  constexpr std::int64_t kSpanBytes = 1 << 24, kActivationBytes = 1 << 22;
  const mesh::Groups groups(run.mesh, run.chunks, false);
  RunTrace trace;
  trace.run = "synthetic";
  trace.source = &kOwnSource;
  trace.mesh = run.mesh;
  trace.has_mesh = true;
  trace.microbatches = run.microbatches;
  trace.chunks = run.chunks;
  for (const mesh::GroupSpec& group : groups.all())
    trace.groups.push_back({group.name, group.ranks, trace::axis_of(group.name)});
  Tables tables(trace);
  trace.ranks.resize(place(run.mesh.size()));
  for (int rank = 0; rank < run.mesh.size(); ++rank) {
    RankTrace& out = trace.ranks[place(rank)];
    out.rank = rank;
    out.at = run.mesh.coord(rank);
    out.host = fmt::format("n{:04}", rank / run.ranks_on_host);
    out.ending = Ending::done;
    const std::size_t stage = place(out.at.pp);
    std::vector<Event> step(plan.events[stage]);
    std::map<int, std::uint32_t> used;  // messages a step, by group
    const auto set = [&](std::size_t event, Kind kind, Purpose purpose, int chunk = -1, int microbatch = -1,
                         int group = -1, std::int64_t size_bytes = -1) {
      tracepp::EventInfo info;
      info.kind = kind;
      info.purpose = purpose;
      info.chunk = static_cast<std::int16_t>(chunk);
      info.group = group;
      info.size_bytes = size_bytes;
      step[event].info = tables.info(info);
      step[event].detail = group >= 0 ? used[group]++ : kNoDetail;
      step[event].microbatch = microbatch < 0 ? kNoMicrobatch : static_cast<std::uint16_t>(microbatch);
    };
    set(0, Kind::step, Purpose::none);
    set(1, Kind::data_wait, Purpose::none);
    const int tp = groups.along(mesh::Axis::tp, rank).id, dp = groups.along(mesh::Axis::dp, rank).id;
    for (std::size_t i = 0; run.mesh.dp > 1 && i < place(run.chunks * run.spans); ++i) {
      const int chunk = static_cast<int>(i) / run.spans;
      set(plan.gather[stage] + i, Kind::all_gather, Purpose::params, chunk, -1, dp, kSpanBytes);
    }
    for (const SyntheticRow& node : plan.nodes) {
      if (node.pp != out.at.pp) continue;
      const sched::Row& row = node.row;
      const bool forward = row.action == sched::Action::forward || row.action == sched::Action::recv_forward ||
                           row.action == sched::Action::send_forward;
      const Purpose purpose = forward ? Purpose::forward : Purpose::backward;
      if (row.is_transfer()) {
        const bool sends = row.action == sched::Action::send_forward || row.action == sched::Action::send_backward;
        set(node.event, sends ? Kind::send : Kind::recv, purpose, row.chunk, row.microbatch,
            groups.channel(static_cast<mesh::Channel>(row.channel), rank)->id, kActivationBytes);
        continue;
      }
      set(node.event, kind_of(row.action), purpose, row.chunk, row.microbatch);
      for (int i = 0; i < tp_collectives_of(run); ++i) {
        set(node.event + 1 + place(i), i % 2 == 0 ? Kind::all_gather : Kind::reduce_scatter, purpose, row.chunk,
            row.microbatch, tp, kActivationBytes);
      }
    }
    for (std::size_t i = 0; run.mesh.dp > 1 && i < place(run.chunks * run.spans); ++i) {
      const int chunk = reduction_order(run)[i / place(run.spans)];
      set(plan.reduce[stage] + i, Kind::reduce_scatter, Purpose::grads, chunk, -1, dp, kSpanBytes);
    }
    set(step.size() - 2, Kind::all_reduce, Purpose::clip, -1, -1, 0, 64);
    set(step.size() - 1, Kind::optimizer, Purpose::optimizer);
    for (int k = 0; k < run.steps; ++k) {
      for (Event event : step) {
        event.step = k;
        const int group = trace.info(event).group;
        if (group >= 0) event.detail += static_cast<std::uint32_t>(k) * used[group];
        out.events.push_back(event);
      }
    }
  }
  return trace;
}

}  // namespace ms::tracepp
