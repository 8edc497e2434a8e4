#include "made_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace ms::tracepp {

MadeRun::MadeRun(mesh::Mesh mesh, int ranks_on_host) {
  run.mesh = mesh;
  run.has_mesh = true;
  run.source = &kOwnSource;
  run.chunks = 1;
  for (int r = 0; r < mesh.size(); ++r) {
    RankTrace rank;
    rank.rank = r;
    rank.at = mesh.coord(r);
    rank.host = fmt::format("n{}", r / ranks_on_host);
    run.ranks.push_back(std::move(rank));
  }
}

std::int32_t MadeRun::group(const std::string& name, const std::vector<int>& ranks) {
  return tables_.group({.name = name, .ranks = ranks, .axis = trace::axis_of(name)});
}

std::uint32_t MadeRun::info(Kind kind, Purpose purpose, std::int32_t group, std::int64_t size_bytes, int chunk) {
  EventInfo info;
  info.kind = kind;
  info.purpose = purpose;
  info.group = group;
  info.size_bytes = size_bytes;
  info.chunk = static_cast<std::int16_t>(chunk);
  return tables_.info(info);
}

void MadeRun::add(int rank, std::uint32_t info, const At& at) {
  Event event;
  event.begin_ns = at.begin_ns;
  event.duration_ns = at.end_ns - at.begin_ns;
  event.detail = at.detail;
  event.info = info;
  event.step = step;
  event.microbatch = at.microbatch;
  event.state = at.state;
  run.ranks[static_cast<std::size_t>(rank)].events.push_back(event);
}

void MadeRun::section(int rank, Kind kind, std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t busy_us,
                      std::uint16_t microbatch) {
  add(rank, info(kind), {begin_ns, end_ns, busy_us, microbatch, State::ended});
}

void MadeRun::step_event(int rank, std::int64_t begin_ns, std::int64_t end_ns) {
  add(rank, info(Kind::step), {begin_ns, end_ns, static_cast<std::uint32_t>(step), kNoMicrobatch, State::ended});
}

namespace {

// One operation under way: when each member came, and the number of the operation in its group.
struct Numbered {
  std::int32_t group = -1;
  std::uint32_t next = 0;
};

class Player {
 public:
  explicit Player(const PipelineSpec& spec) : spec_(spec), mesh_(spec.mesh), made_(spec.mesh, spec.ranks_on_host) {
    made_.run.microbatches = spec.microbatches;
    lane_.resize(static_cast<std::size_t>(mesh_.size()));
    ready_ = lane_;
    forward_ = made_.info(Kind::forward, Purpose::none, -1, -1, 0);
    backward_ = made_.info(Kind::backward, Purpose::none, -1, -1, 0);
    optimizer_ = made_.info(Kind::optimizer);
    data_wait_ = made_.info(Kind::data_wait);
    step_ = made_.info(Kind::step);
    std::vector<int> all;
    for (int r = 0; r < mesh_.size(); ++r) all.push_back(r);
    world_ = open("world", all);
    clip_ = made_.info(Kind::all_reduce, Purpose::clip, world_.group, 64);
    for (int pp = 0; pp < mesh_.pp; ++pp) {
      for (int dp = 0; dp < mesh_.dp; ++dp) {
        tp_.push_back(open(fmt::format("tp[dp {} pp {}]", dp, pp), mesh_.along(mesh::Axis::tp, at(dp, pp, 0))));
        for (int backward = 0; backward < 2; ++backward) {
          tp_whats_.push_back(made_.info(Kind::all_reduce, backward != 0 ? Purpose::backward : Purpose::forward,
                                         tp_.back().group, 1 << 20, 0));
        }
      }
      for (int tp = 0; tp < mesh_.tp; ++tp) {
        dp_.push_back(open(fmt::format("dp[pp {} tp {}]", pp, tp), mesh_.along(mesh::Axis::dp, at(0, pp, tp))));
        params_.push_back(made_.info(Kind::all_gather, Purpose::params, dp_.back().group, 8 << 20, 0));
        grads_.push_back(made_.info(Kind::reduce_scatter, Purpose::grads, dp_.back().group, 16 << 20, 0));
      }
    }
    for (int pp = 0; pp + 1 < mesh_.pp; ++pp) {
      for (int dp = 0; dp < mesh_.dp; ++dp) {
        for (int tp = 0; tp < mesh_.tp; ++tp) {
          const int low = at(dp, pp, tp), high = at(dp, pp + 1, tp);
          const std::string where = fmt::format("[dp {} tp {}]", dp, tp);
          add_edge("pp.fwd" + where + fmt::format(" {}>{}", pp, pp + 1), {low, high}, Purpose::forward);
          add_edge("pp.bwd" + where + fmt::format(" {}>{}", pp + 1, pp), {high, low}, Purpose::backward);
        }
      }
    }
  }

  RunTrace play() {
    for (int step = 0; step < spec_.steps; ++step) play_step(step);
    return std::move(made_.run);
  }

 private:
  struct Edge {
    Numbered channel;
    std::uint32_t send = 0, recv = 0;
    std::vector<std::int64_t> sent_ns;  // [microbatch] of this step: when its section was done
  };

  int at(int dp, int pp, int tp) const { return mesh_.rank({.dp = dp, .pp = pp, .tp = tp}); }
  std::int64_t& lane(int rank) { return lane_[static_cast<std::size_t>(rank)]; }

  Numbered open(const std::string& name, const std::vector<int>& ranks) { return {made_.group(name, ranks), 0}; }

  void add_edge(const std::string& name, const std::vector<int>& ranks, Purpose purpose) {
    Edge edge{open(name, ranks), 0, 0, {}};
    edge.send = made_.info(Kind::send, purpose, edge.channel.group, 4 << 20, 0);
    edge.recv = made_.info(Kind::recv, purpose, edge.channel.group, 4 << 20, 0);
    edges_.push_back(std::move(edge));
  }
  // Of the boundary between stages pp and pp + 1.
  Edge& edge(int dp, int pp, int tp, bool backward) {
    return edges_[static_cast<std::size_t>(((pp * mesh_.dp + dp) * mesh_.tp + tp) * 2 + (backward ? 1 : 0))];
  }

  // All of `ranks` meet; they came at their ready_ times, which become the operation's end.
  void meet(const std::vector<int>& ranks, Numbered& numbered, std::uint32_t info, std::int64_t transfer_ns,
            std::uint16_t microbatch = kNoMicrobatch) {
    std::int64_t last = ready_[static_cast<std::size_t>(ranks[0])];
    for (const int r : ranks) last = std::max(last, ready_[static_cast<std::size_t>(r)]);
    for (const int r : ranks) {
      std::int64_t& ready = ready_[static_cast<std::size_t>(r)];
      made_.add(r, info, {ready, last + transfer_ns, numbered.next, microbatch, State::ended});
      ready = last + transfer_ns;
    }
    ++numbered.next;
  }

  // Plays the next computation of a stage if its input is there.
  bool play_section(int dp, int pp, int microbatch, bool backward) {
    const bool receives = backward ? pp + 1 < mesh_.pp : pp > 0, sends = backward ? pp > 0 : pp + 1 < mesh_.pp;
    const auto mb = static_cast<std::uint16_t>(microbatch);
    const auto in_edge = [&](int tp) -> Edge& { return edge(dp, backward ? pp : pp - 1, tp, backward); };
    const auto out_edge = [&](int tp) -> Edge& { return edge(dp, backward ? pp - 1 : pp, tp, backward); };
    if (receives && std::ssize(in_edge(0).sent_ns) <= microbatch) return false;
    const std::vector<int> group = mesh_.along(mesh::Axis::tp, at(dp, pp, 0));
    std::vector<std::int64_t> begins, busy;
    const int parts = mesh_.tp > 1 ? spec_.tp_collectives + 1 : 1;
    for (int tp = 0; tp < mesh_.tp; ++tp) {
      const int r = at(dp, pp, tp);
      if (receives) receive(in_edge(tp), r, at(dp, backward ? pp + 1 : pp - 1, tp), mb);
      begins.push_back(lane(r));
      const double slow = spec_.slowness ? spec_.slowness(r, made_.step) : 0;
      const auto length = backward ? spec_.backward_ns : spec_.forward_ns;
      busy.push_back(static_cast<std::int64_t>(static_cast<double>(length) * (1 + slow)) / (1000 * parts) * 1000);
    }
    for (int part = 0; part < parts; ++part) {
      for (int tp = 0; tp < mesh_.tp; ++tp) {
        const auto r = static_cast<std::size_t>(at(dp, pp, tp));
        ready_[r] = lane_[r] += busy[static_cast<std::size_t>(tp)];
      }
      if (part + 1 == parts) break;
      const auto g = static_cast<std::size_t>(pp * mesh_.dp + dp);
      meet(group, tp_[g], tp_whats_[g * 2 + (backward ? 1 : 0)], spec_.tp_ns, mb);
      for (const int r : group) lane(r) = ready_[static_cast<std::size_t>(r)];
    }
    for (int tp = 0; tp < mesh_.tp; ++tp) {
      const int r = at(dp, pp, tp);
      const auto t = static_cast<std::size_t>(tp);
      made_.add(r, backward ? backward_ : forward_,
                {begins[t], lane(r), static_cast<std::uint32_t>(busy[t] * parts / 1000), mb, State::ended});
      if (sends) out_edge(tp).sent_ns.push_back(lane(r));
    }
    return true;
  }

  // The receiver is ready when its compute lane has come to the section.
  void receive(Edge& edge, int receiver, int sender, std::uint16_t microbatch) {
    const std::int64_t sent = edge.sent_ns[microbatch], ready = lane(receiver);
    const double slow = spec_.link_slowness ? spec_.link_slowness(sender, receiver) : 0;
    const std::int64_t end =
        std::max(sent, ready) + static_cast<std::int64_t>(static_cast<double>(spec_.pp_ns) * (1 + slow));
    made_.add(sender, edge.send, {sent, end, edge.channel.next, microbatch, State::ended});
    made_.add(receiver, edge.recv, {ready, end, edge.channel.next, microbatch, State::ended});
    ++edge.channel.next;
    lane(receiver) = end;
  }

  void play_step(int step) {
    made_.step = step;
    std::vector<std::int64_t> issued = lane_;
    for (int r = 0; r < mesh_.size(); ++r) {
      const std::int64_t wait_ns = spec_.data_wait_ns ? spec_.data_wait_ns(r, step) : 0;
      if (wait_ns > 0) {
        made_.add(r, data_wait_, {lane(r), lane(r) + wait_ns, kNoDetail, kNoMicrobatch, State::ended});
        lane(r) += wait_ns;
      }
      ready_[static_cast<std::size_t>(r)] = lane(r);
    }
    over_dp(params_);
    lane_ = ready_;
    for (Edge& edge : edges_) edge.sent_ns.clear();
    const int m = spec_.microbatches;
    std::vector<int> done(static_cast<std::size_t>(mesh_.pp * mesh_.dp));  // computations of each stage
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int pp = 0; pp < mesh_.pp; ++pp) {
        for (int dp = 0; dp < mesh_.dp; ++dp) {
          int& next = done[static_cast<std::size_t>(pp * mesh_.dp + dp)];
          while (next < 2 * m && play_next(dp, pp, next)) {
            ++next;
            goes_on = true;
          }
        }
      }
    }
    ready_ = lane_;
    over_dp(grads_);
    std::vector<int> all;
    for (int r = 0; r < mesh_.size(); ++r) all.push_back(r);
    meet(all, world_, clip_, spec_.world_ns);
    for (int r = 0; r < mesh_.size(); ++r) {
      const std::int64_t begin = ready_[static_cast<std::size_t>(r)];
      lane(r) = begin + spec_.optimizer_ns;
      made_.add(r, optimizer_,
                {begin, lane(r), static_cast<std::uint32_t>(spec_.optimizer_ns / 1000), kNoMicrobatch, State::ended});
      made_.add(r, step_,
                {issued[static_cast<std::size_t>(r)], lane(r), static_cast<std::uint32_t>(step), kNoMicrobatch,
                 State::ended});
    }
  }

  // The n-th computation of a stage in 1F1B.
  bool play_next(int dp, int pp, int n) {
    const int m = spec_.microbatches, warm_up = std::min(mesh_.pp - pp - 1, m);
    if (n < warm_up) return play_section(dp, pp, n, false);
    if (n >= 2 * m - warm_up) return play_section(dp, pp, n - m, true);
    const int in_pairs = n - warm_up;
    return in_pairs % 2 == 0 ? play_section(dp, pp, warm_up + in_pairs / 2, false)
                             : play_section(dp, pp, in_pairs / 2, true);
  }

  void over_dp(const std::vector<std::uint32_t>& infos) {
    for (int pp = 0; pp < mesh_.pp; ++pp) {
      for (int tp = 0; tp < mesh_.tp; ++tp) {
        const auto g = static_cast<std::size_t>(pp * mesh_.tp + tp);
        meet(mesh_.along(mesh::Axis::dp, at(0, pp, tp)), dp_[g], infos[g], spec_.dp_ns);
      }
    }
  }

  const PipelineSpec& spec_;
  mesh::Mesh mesh_;
  MadeRun made_;
  std::vector<std::int64_t> lane_, ready_;  // [rank]: its compute stream is free, what it meets others for is ready
  std::uint32_t forward_ = 0, backward_ = 0, optimizer_ = 0, data_wait_ = 0, step_ = 0, clip_ = 0;
  Numbered world_;
  std::vector<Numbered> tp_, dp_;
  std::vector<std::uint32_t> tp_whats_, params_, grads_;
  std::vector<Edge> edges_;
};

}  // namespace

RunTrace play_pipeline(const PipelineSpec& spec) { return Player(spec).play(); }

}  // namespace ms::tracepp
