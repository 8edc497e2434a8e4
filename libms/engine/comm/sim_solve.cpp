// The discrete-event loop. A stream advances until it must wait for an event of its own rank or for a communication
// operation. Communication operations begin and end in order of time, because their rate depends on the others in
// progress; a stream that resumes at a time never issues anything earlier than that.
#include "comm/sim_solve.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

#include "comm/sim_groups.h"
#include "cost/flows.h"

namespace ms::comm {
namespace {

using tensor::SimItem;

constexpr double kNever = -1;
constexpr std::uint32_t kNothing = ~std::uint32_t{0};

// A communication operation under way, in one flow, or in one for each member where members copy on their processors.
struct Sent {
  SimGroup::Operation operation;
  std::size_t flows = 0;  // that have not ended
};

using StreamOfRank = std::pair<std::uint32_t, std::uint32_t>;

// The processors of a node whose ranks share them, as tensor/cpu_stream.h has them: a processor runs a stream until it
// must wait, and communication comes first.
struct Processors {
  std::int64_t free = 0;
  std::deque<StreamOfRank> comm = {}, compute = {};  // streams that want one
};

// The owner of a flow: a communication operation, or an operation of a rank where ranks share processors.
struct InFlight {
  std::uint32_t sent = kNothing;
  std::uint32_t rank = kNothing, stream = 0;
};

struct StreamState {
  std::size_t next = 0;  // item
  double now_s = 0;
  std::uint32_t waits_for = kNothing;  // event
  bool is_held = false;                // by a communication operation or an operation on shared processors
  std::uint32_t copies = kNothing;     // for this communication operation, once it has a processor,
  double copies_s = 0;                 // and for how long
  double section_busy_s = 0;
};

struct RankState {
  std::vector<StreamState> streams;
  std::vector<double> events;                    // time of completion; kNever: not yet
  std::vector<std::uint64_t> issued;             // operations, by recorded group
  const std::vector<double>* seconds = nullptr;  // by op, at average speed
  std::size_t node = 0;
};

class Solver {
 public:
  explicit Solver(const SimSetup& setup)
      : setup_(setup),
        groups_(setup),
        per_node_(static_cast<int>(setup.cluster->node.ranks)),
        shares_processors_(setup.cluster->node.cores > 0 && setup.cluster->node.cores < per_node_),
        flows_(capacities(setup)) {
    const cost::Roofline roofline(setup.cluster->device);
    for (const SimRank& rank : setup.ranks) {
      const SimRecording& recording = *rank.recording;
      std::vector<double>& seconds = seconds_[&recording];
      if (seconds.empty()) {
        for (const tensor::OpCost& op : recording.program.ops)
          seconds.push_back(setup.seconds ? setup.seconds(op) : roofline.seconds(op));
      }
      RankState state;
      state.streams.resize(recording.program.streams.size());
      state.events.assign(recording.program.events, kNever);
      state.issued.resize(recording.groups.size());
      state.seconds = &seconds;
      state.node = static_cast<std::size_t>(rank.rank / per_node_);
      if (nodes_.size() <= state.node) nodes_.resize(state.node + 1, {.free = setup.cluster->node.cores});
      ranks_.push_back(std::move(state));
      SimRankResult& result = result_.ranks.emplace_back();
      result.class_seconds.assign(tensor::kOpClasses, 0.0);
    }
  }

  SimResult run() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r)
      for (std::uint32_t s = 0; s < ranks_[r].streams.size(); ++s) make_ready(r, s);
    advance_ready();
    while (const auto done = flows_.next()) {
      const InFlight flow = in_flight_[done->flow];
      now_s_ = done->at_s;
      if (flow.sent == kNothing) {
        end_op(flow);
      } else {
        if (flow.rank != kNothing) ++node_of(flow.rank).free;
        if (--sent_[flow.sent].flows == 0) end_comm_op(flow.sent, done->at_s);
      }
      advance_ready();
    }
    check_done();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (const StreamState& stream : ranks_[r].streams)
        result_.ranks[r].end_s = std::max(result_.ranks[r].end_s, stream.now_s);
      result_.seconds = std::max(result_.seconds, result_.ranks[r].end_s);
    }
    return std::move(result_);
  }

 private:
  // Returns the capacities of the links of the ranks.
  static std::vector<double> capacities(const SimSetup& setup) {
    std::vector<double> capacity;
    for (const SimRank& rank : setup.ranks) capacity.insert(capacity.end(), kLinksOfRank, 1 / rank.link_slowness);
    return capacity;
  }

  std::int64_t clock(double time_s) const { return setup_.begin_ns + std::llround(time_s * 1e9); }

  Processors& node_of(std::uint32_t rank) { return nodes_[ranks_[rank].node]; }
  tensor::StreamKind kind_of(std::uint32_t rank, std::uint32_t stream) const {
    return setup_.ranks[rank].recording->program.streams[stream].kind;
  }

  void make_ready(std::uint32_t rank, std::uint32_t stream) {
    if (!shares_processors_) {
      ready_.push_back({rank, stream});
    } else if (kind_of(rank, stream) == tensor::StreamKind::comm) {
      node_of(rank).comm.push_back({rank, stream});
    } else {
      node_of(rank).compute.push_back({rank, stream});
    }
  }
  void advance_ready() {
    while (!ready_.empty()) {
      const auto [rank, stream] = ready_.back();
      ready_.pop_back();
      advance(rank, stream);
    }
    if (!shares_processors_) return;
    for (Processors& node : nodes_) {
      while (node.free > 0 && (!node.comm.empty() || !node.compute.empty())) {
        std::deque<StreamOfRank>& queue = node.comm.empty() ? node.compute : node.comm;
        const auto [rank, stream] = queue.front();
        queue.pop_front();
        --node.free;
        run_on_processor(rank, stream);
      }
    }
  }

  // -- Shared processors. Streams that wait for nothing but one are in the queues of their node.

  void run_on_processor(std::uint32_t r, std::uint32_t s) {
    StreamState& stream = ranks_[r].streams[s];
    if (stream.copies != kNothing) {
      start(now_s_, stream.copies_s, {}, {.sent = std::exchange(stream.copies, kNothing), .rank = r});
      return;
    }
    stream.now_s = std::max(stream.now_s, now_s_);
    go_on(r, s);
  }
  void go_on(std::uint32_t r, std::uint32_t s) {
    if (!advance(r, s)) ++node_of(r).free;
  }

  // Returns whether an operation has begun that needs its processor.
  bool advance(std::uint32_t r, std::uint32_t s) {
    RankState& rank = ranks_[r];
    StreamState& stream = rank.streams[s];
    const SimRank& who = setup_.ranks[r];
    const std::vector<SimItem>& items = who.recording->program.streams[s].items;
    while (stream.next < items.size()) {
      const SimItem& item = items[stream.next++];
      switch (item.kind) {
        case SimItem::Kind::op:
          if (run_op(r, s, item)) return true;
          break;
        case SimItem::Kind::record:
          rank.events[item.index] = stream.now_s;
          for (std::uint32_t other = 0; other < rank.streams.size(); ++other) {
            if (rank.streams[other].waits_for != item.index) continue;
            rank.streams[other].waits_for = kNothing;
            rank.streams[other].now_s = std::max(rank.streams[other].now_s, stream.now_s);
            make_ready(r, other);
          }
          break;
        case SimItem::Kind::wait:
          if (rank.events[item.index] == kNever) {
            stream.waits_for = item.index;
            return false;
          }
          stream.now_s = std::max(stream.now_s, rank.events[item.index]);
          break;
        case SimItem::Kind::comm_op:
          stream.is_held = true;
          arrive(r, s, item);
          return false;
        case SimItem::Kind::begin_section:
          stream.section_busy_s = 0;
          if (who.recorder != nullptr) who.recorder->begin(item.ticket, clock(stream.now_s));
          break;
        case SimItem::Kind::end_section:
          if (who.recorder != nullptr)
            who.recorder->end_section(item.ticket, clock(stream.now_s), std::llround(stream.section_busy_s * 1e9));
          break;
      }
    }
    return false;
  }

  // Starts an operation; returns whether the stream waits for it.
  bool run_op(std::uint32_t r, std::uint32_t s, const SimItem& item) {
    const SimRank& who = setup_.ranks[r];
    const double seconds = (*ranks_[r].seconds)[item.index] * who.slowness;
    StreamState& stream = ranks_[r].streams[s];
    if (who.recorder != nullptr && item.ticket != trace::kNoTicket)
      who.recorder->begin(item.ticket, clock(stream.now_s));
    if (shares_processors_ && seconds > 0) {
      stream.is_held = true;
      start(stream.now_s, seconds, {}, {.rank = r, .stream = s});
      return true;
    }
    finish_op(r, s, item, seconds);
    return false;
  }
  void finish_op(std::uint32_t r, std::uint32_t s, const SimItem& item, double seconds) {
    const SimRank& who = setup_.ranks[r];
    StreamState& stream = ranks_[r].streams[s];
    stream.now_s += seconds;
    stream.section_busy_s += seconds;
    const tensor::OpCost& op = who.recording->program.ops[item.index];
    if (who.recording->program.streams[s].kind == tensor::StreamKind::compute)
      result_.ranks[r].class_seconds[static_cast<std::size_t>(op.op_class)] += seconds;
    if (who.recorder != nullptr && item.ticket != trace::kNoTicket) who.recorder->end(item.ticket, clock(stream.now_s));
  }

  // -- Communication operations.

  void arrive(std::uint32_t r, std::uint32_t s, const SimItem& item) {
    const SimCommOp& op = setup_.ranks[r].recording->comm_ops[item.index];
    SimGroup& group = groups_.of(r, op.group);
    const std::uint64_t number = ranks_[r].issued[op.group]++;
    const StreamState& stream = ranks_[r].streams[s];
    const auto at = static_cast<std::size_t>(number - group.first);
    if (group.pending.size() <= at) group.pending.resize(at + 1);
    SimGroup::Operation& operation = group.pending[at];
    if (operation.arrived.empty() && !spare_.empty()) {
      operation.arrived = std::move(spare_.back());
      spare_.pop_back();
    }
    MS_ASSERT(operation.arrived.empty() || operation.size_bytes == op.size_bytes,
              "operation {} of a group of {} has {} bytes on one rank and {} on another", number, group.size,
              operation.size_bytes, op.size_bytes);
    operation.kind = op.kind;
    operation.size_bytes = op.size_bytes;
    operation.arrived.push_back({r, s, stream.now_s, item.ticket, op.kind != OpKind::send});
    if (operation.arrived.size() < group.arrivals) return;
    // All members reach operations in order, so the first pending one completes first.
    MS_ASSERT(at == 0, "operation {} of a group is complete before the one before it", number);
    SimGroup::Operation complete = std::move(operation);
    group.pending.pop_front();
    ++group.first;
    ++result_.comm_ops;
    send(group, std::move(complete));
  }

  void send(const SimGroup& group, SimGroup::Operation operation) {
    double begin_s = 0;
    for (const SimGroup::Arrival& arrival : operation.arrived) {
      begin_s = std::max(begin_s, arrival.ready_s);
      trace::Recorder* recorder = setup_.ranks[arrival.rank].recorder;
      if (recorder != nullptr) recorder->begin(arrival.ticket, clock(arrival.ready_s));
    }
    if (group.is_free) return start(begin_s, 0, {}, {.sent = keep(std::move(operation), 1)});
    const cost::Collective kind = collective_of(operation.kind);
    const cost::Traffic traffic =
        cost::traffic_of(kind, static_cast<double>(operation.size_bytes), group.size, group.path);
    if (!shares_processors_ || group.path.meet != cost::Meet::node)
      return start(begin_s + traffic.latency_s, traffic.transfer_s, group.links,
                   {.sent = keep(std::move(operation), 1)});
    const std::size_t members = operation.arrived.size();
    const std::uint32_t sent = keep(std::move(operation), members);
    for (const SimGroup::Arrival& arrival : sent_[sent].operation.arrived) {
      StreamState& stream = ranks_[arrival.rank].streams[arrival.stream];
      stream.copies = sent;
      stream.copies_s = traffic.latency_s + (arrival.copies ? traffic.transfer_s : 0);
      make_ready(arrival.rank, arrival.stream);
    }
  }

  std::uint32_t keep(SimGroup::Operation operation, std::size_t flows) {
    if (free_sent_.empty()) {
      free_sent_.push_back(static_cast<std::uint32_t>(sent_.size()));
      sent_.emplace_back();
    }
    const std::uint32_t index = free_sent_.back();
    free_sent_.pop_back();
    sent_[index] = {std::move(operation), flows};
    return index;
  }

  void start(double begin_s, double seconds, std::span<const std::uint32_t> resources, InFlight what) {
    const std::uint32_t flow = flows_.start(begin_s, seconds, resources);
    if (in_flight_.size() <= flow) in_flight_.resize(flow + 1);
    in_flight_[flow] = what;
  }

  void end_op(const InFlight& flow) {
    StreamState& stream = ranks_[flow.rank].streams[flow.stream];
    const SimItem& item = setup_.ranks[flow.rank].recording->program.streams[flow.stream].items[stream.next - 1];
    stream.is_held = false;
    finish_op(flow.rank, flow.stream, item, now_s_ - stream.now_s);
    Processors& node = node_of(flow.rank);
    if (kind_of(flow.rank, flow.stream) == tensor::StreamKind::compute && !node.comm.empty()) {
      node.compute.push_front({flow.rank, flow.stream});  // communication first; this stream is next
      ++node.free;
    } else {
      go_on(flow.rank, flow.stream);
    }
  }

  void end_comm_op(std::uint32_t sent, double now_s) {
    std::vector<SimGroup::Arrival>& arrived = sent_[sent].operation.arrived;
    for (const SimGroup::Arrival& arrival : arrived) {
      StreamState& stream = ranks_[arrival.rank].streams[arrival.stream];
      stream.now_s = now_s;
      stream.is_held = false;
      if (trace::Recorder* recorder = setup_.ranks[arrival.rank].recorder; recorder != nullptr)
        recorder->end(arrival.ticket, clock(now_s));
      make_ready(arrival.rank, arrival.stream);
    }
    arrived.clear();
    spare_.push_back(std::move(arrived));
    free_sent_.push_back(sent);
  }

  void check_done() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t s = 0; s < ranks_[r].streams.size(); ++s) {
        const StreamState& stream = ranks_[r].streams[s];
        if (!stream.is_held && stream.waits_for == kNothing) continue;
        throw Error("sim.deadlock", Blame::bug,
                    fmt::format("rank {} does not finish: its stream {} waits for {} at {} s", setup_.ranks[r].rank,
                                setup_.ranks[r].recording->program.streams[s].name,
                                stream.is_held ? "a communication operation" : "another stream", stream.now_s));
      }
    }
  }

  const SimSetup& setup_;
  SimGroups groups_;
  int per_node_;
  bool shares_processors_;
  std::map<const SimRecording*, std::vector<double>> seconds_;
  std::vector<RankState> ranks_;
  std::vector<StreamOfRank> ready_;
  std::vector<Processors> nodes_;  // where ranks share them
  double now_s_ = 0;               // of the event loop
  cost::Flows flows_;
  std::vector<InFlight> in_flight_;  // [flow]
  std::vector<Sent> sent_;
  std::vector<std::uint32_t> free_sent_;               // in sent_
  std::vector<std::vector<SimGroup::Arrival>> spare_;  // empty vectors with capacity, for reuse
  SimResult result_;
};

}  // namespace

double SimRankResult::busy_s() const { return std::accumulate(class_seconds.begin(), class_seconds.end(), 0.0); }

SimResult solve(const SimSetup& setup) {
  MS_ASSERT(setup.cluster != nullptr && !setup.ranks.empty(), "a simulation without cluster or ranks");
  return Solver(setup).run();
}

}  // namespace ms::comm
