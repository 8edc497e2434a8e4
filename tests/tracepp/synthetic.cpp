#include "tracepp/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "tracepp/parallel.h"
#include "tracepp/synthetic_plan.h"

namespace ms::tracepp {
namespace {

constexpr int kPhases = 4;  // of a section without tp messages: where parameters are awaited and gradients complete

class VirtualRun {
 public:
  explicit VirtualRun(const SyntheticRun& run)
      : run_(run),
        plan_(make_synthetic_plan(run)),
        ranks_(static_cast<std::size_t>(run.mesh.size())),
        trace_(describe_run(run, plan_)),
        speed_(ranks_),
        loaded_(ranks_, 0.0),
        issued_(ranks_, 0.0),
        finished_(ranks_, 0.0),
        finished_before_(ranks_, 0.0),
        dp_free_(ranks_, 0.0),
        issue_begin_(ranks_, 0.0) {
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      speed_[rank] =
          1 + run.rank_spread * normal(run.seed, rng_key("spread"), rank) +
          run.host_spread * normal(run.seed, rng_key("host"), rank / static_cast<std::size_t>(run.ranks_on_host));
    const auto spans = static_cast<std::size_t>(run.chunks * run.spans);
    gathered_.resize(ranks_ * spans);
    complete_.resize(ranks_ * spans);
  }

  RunTrace simulate() {
    for (int step = 0; step < run_.steps; ++step) {
      issue(step);
      gather(step);
      in_blocks(static_cast<std::size_t>(run_.mesh.dp), [&](std::size_t begin, std::size_t end) {
        for (std::size_t dp = begin; dp < end; ++dp) pipeline(step, static_cast<int>(dp));
      });
      reduce(step);
      finish(step);
    }
    return std::move(trace_);
  }

 private:
  std::size_t spans() const { return static_cast<std::size_t>(run_.chunks * run_.spans); }
  std::size_t rank_of(int dp, int pp, int tp) const {
    return static_cast<std::size_t>(run_.mesh.rank({.dp = dp, .pp = pp, .tp = tp}));
  }
  Event& event(std::size_t rank, int step, std::size_t index) {
    RankTrace& out = trace_.ranks[rank];
    return out.events[static_cast<std::size_t>(step) * plan_.events[static_cast<std::size_t>(out.at.pp)] + index];
  }
  void put(std::size_t rank, int step, std::size_t index, double begin_s, double end_s) {
    const auto host = static_cast<std::uint64_t>(static_cast<int>(rank) / run_.ranks_on_host);
    const double offset_s = run_.clock_offset_s * (2 * uniform(run_.seed, rng_key("clock"), host) - 1);
    Event& to = event(rank, step, index);
    to.begin_ns = std::llround((begin_s + offset_s + 1) * 1e9);
    to.duration_ns = std::llround((end_s + offset_s + 1) * 1e9) - to.begin_ns;
  }
  std::uint64_t draw(std::size_t rank, int step, std::size_t index) const {
    return (static_cast<std::uint64_t>(rank) * static_cast<std::uint64_t>(run_.steps) +
            static_cast<std::uint64_t>(step)) *
               4096 +
           index;
  }
  double noisy(double seconds, std::size_t rank, int step, std::size_t index) const {
    return seconds *
           std::max(0.5, 1 + run_.message_noise * normal(run_.seed, rng_key("message"), draw(rank, step, index)));
  }
  bool holds(const Fault& fault, Fault::Kind kind, int step) const {
    return fault.kind == kind && step >= fault.from_step;
  }

  // The host: a step ahead, and not without its batch.
  void issue(int step) {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const mesh::Coord at = trace_.ranks[rank].at;
      const double begin = std::max(issued_[rank], finished_before_[rank]);
      double ready = begin + 20e-6;
      for (const Fault& fault : run_.faults) {
        if (!holds(fault, Fault::Kind::data_stall, step) || at.dp != run_.mesh.coord(fault.rank).dp) continue;
        if (at.pp != 0 && at.pp != run_.mesh.pp - 1) continue;
        if (step == fault.from_step) loaded_[rank] = begin;
        loaded_[rank] += fault.seconds;
        ready = std::max(ready, loaded_[rank]);
      }
      put(rank, step, 1, begin, ready);
      issued_[rank] = ready + 100e-6;
      issue_begin_[rank] = begin;
    }
  }

  double link_factor(const Fault& fault, std::size_t rank, int step) const {
    return holds(fault, Fault::Kind::slow_nic, step) && static_cast<std::size_t>(fault.rank) == rank ? fault.factor : 1;
  }
  double group_factor(int pp, int tp, int step) const {
    double factor = 1;
    for (const Fault& fault : run_.faults) {
      const mesh::Coord at = run_.mesh.coord(fault.rank);
      if (holds(fault, Fault::Kind::slow_nic, step) && at.pp == pp && at.tp == tp) factor *= fault.factor;
    }
    return factor;
  }

  // One message of every dp group: `ready(rank)` is when it may begin.
  template <class Ready>
  void over_dp(int pp, int tp, int step, std::size_t index, double seconds, const Ready& ready, double* ends,
               std::size_t stride) {
    double latest = 0;
    for (int dp = 0; dp < run_.mesh.dp; ++dp) {
      const std::size_t rank = rank_of(dp, pp, tp);
      latest = std::max(latest, std::max(dp_free_[rank], ready(rank)));
    }
    const double end = latest + noisy(seconds, rank_of(0, pp, tp), step, index) * group_factor(pp, tp, step);
    for (int dp = 0; dp < run_.mesh.dp; ++dp) {
      const std::size_t rank = rank_of(dp, pp, tp);
      put(rank, step, index, std::max(dp_free_[rank], ready(rank)), end);
      dp_free_[rank] = end;
      if (ends != nullptr) ends[rank * stride] = end;
    }
  }

  template <class Body>
  void each_group(const Body& body) const {
    for (int pp = 0; pp < run_.mesh.pp; ++pp)
      for (int tp = 0; tp < run_.mesh.tp; ++tp) body(pp, tp);
  }

  void gather(int step) {
    if (run_.mesh.dp == 1) return;
    each_group([&](int pp, int tp) {
      for (std::size_t i = 0; i < spans(); ++i) {
        over_dp(
            pp, tp, step, plan_.gather[static_cast<std::size_t>(pp)] + i, run_.gather_s,
            [&](std::size_t rank) { return std::max(finished_[rank], issued_[rank]); }, gathered_.data() + i, spans());
      }
    });
  }

  double work_s(const SyntheticRow& node, std::size_t rank, int step) const {
    using sched::Action;
    double seconds = 0;
    switch (node.row.action) {
      case Action::forward: seconds = run_.forward_s; break;
      case Action::backward: seconds = run_.backward_s; break;
      case Action::backward_input: seconds = run_.backward_s * (1 - run_.weight_share); break;
      default: seconds = run_.backward_s * run_.weight_share;
    }
    seconds *= speed_[rank] / run_.chunks;
    const mesh::Coord at = trace_.ranks[rank].at;
    for (const Fault& fault : run_.faults) {
      if (holds(fault, Fault::Kind::slow_rank, step) && static_cast<std::size_t>(fault.rank) == rank)
        seconds *= fault.factor;
      if (holds(fault, Fault::Kind::last_stage, step) && at.pp == run_.mesh.pp - 1) seconds *= fault.factor;
      if (holds(fault, Fault::Kind::slow_stage, step) && at.pp == run_.mesh.coord(fault.rank).pp)
        seconds *= fault.factor;
      if (holds(fault, Fault::Kind::uneven_samples, step)) {
        const auto sample =
            static_cast<std::uint64_t>((step * run_.mesh.dp + at.dp) * run_.microbatches + node.row.microbatch);
        seconds *= std::max(0.3, 1 + fault.factor * normal(run_.seed, rng_key("sample"), sample));
      }
    }
    const std::uint64_t index = draw(rank, step, node.event);
    if (uniform(run_.seed, rng_key("is outlier"), index) < run_.outlier_rate)
      seconds *= 1.2 + 0.8 * uniform(run_.seed, rng_key("outlier"), index);
    return seconds;
  }

  // Returns how long the rank stalls before the row, or within it.
  double pause_s(const SyntheticRow& node, std::size_t rank, int step, bool within) const {
    double seconds = 0;
    for (const Fault& fault : run_.faults) {
      const auto turn = [&](std::uint64_t key) {  // one of the rank's forwards
        return node.row.action == sched::Action::forward && node.row.chunk == 0 &&
               uniform_below(run_.seed, key, draw(rank, step, 0), static_cast<std::uint64_t>(run_.microbatches)) ==
                   static_cast<std::uint64_t>(node.row.microbatch);
      };
      const bool one = fault.kind == (within ? Fault::Kind::stall : Fault::Kind::pause);
      if (one && step == fault.from_step && static_cast<std::size_t>(fault.rank) == rank && turn(rng_key("pause")))
        seconds += fault.seconds;
      if (within || !holds(fault, Fault::Kind::launch_pauses, step)) continue;
      const std::uint64_t index = draw(rank, step, 0);
      if (uniform(run_.seed, rng_key("pauses"), index) < fault.rate && turn(rng_key("pauses turn")))
        seconds += fault.seconds * (0.5 + uniform(run_.seed, rng_key("pauses length"), index));
    }
    return seconds;
  }

  // The rows of one dp rank's pipeline.
  void pipeline(int step, int dp) {
    const auto tp = static_cast<std::size_t>(run_.mesh.tp);
    std::vector<double> ends(plan_.nodes.size() * tp);
    const auto ready = [&](const SyntheticRow& node, std::size_t t, std::size_t rank) {
      double at = std::max(issued_[rank], finished_[rank]);
      for (const int before : node.waits) at = std::max(at, ends[static_cast<std::size_t>(before) * tp + t]);
      return at;
    };
    for (const int index : plan_.order) {
      const SyntheticRow& node = plan_.nodes[static_cast<std::size_t>(index)];
      if (node.row.is_compute()) {
        section(node, step, dp, ready, ends.data() + static_cast<std::size_t>(index) * tp);
        continue;
      }
      const SyntheticRow& peer = plan_.nodes[static_cast<std::size_t>(node.peer)];
      for (std::size_t t = 0; t < tp; ++t) {
        const std::size_t rank = rank_of(dp, node.pp, static_cast<int>(t)),
                          other = rank_of(dp, peer.pp, static_cast<int>(t));
        double seconds = noisy(run_.transfer_s, std::min(rank, other), step, rank < other ? node.event : peer.event);
        for (const Fault& fault : run_.faults) {
          seconds *= link_factor(fault, rank, step) * link_factor(fault, other, step);
          const auto culprit = static_cast<std::size_t>(fault.rank);
          const bool is_edge = (culprit == rank && peer.pp == (node.pp + 1) % run_.mesh.pp) ||
                               (culprit == other && node.pp == (peer.pp + 1) % run_.mesh.pp);
          if (holds(fault, Fault::Kind::slow_link, step) && is_edge) seconds *= fault.factor;
        }
        const double mine = ready(node, t, rank), theirs = ready(peer, t, other),
                     end = std::max(mine, theirs) + seconds;
        put(rank, step, node.event, mine, end);
        put(other, step, peer.event, theirs, end);
        ends[static_cast<std::size_t>(index) * tp + t] = ends[static_cast<std::size_t>(node.peer) * tp + t] = end;
      }
    }
    for (int pp = 0; pp < run_.mesh.pp; ++pp) {
      for (std::size_t t = 0; t < tp; ++t) {
        const std::size_t rank = rank_of(dp, pp, static_cast<int>(t));
        finished_before_[rank] = finished_[rank];
        finished_[rank] = 0;
        for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
          if (plan_.nodes[i].pp == pp && plan_.nodes[i].row.is_compute())
            finished_[rank] = std::max(finished_[rank], ends[i * tp + t]);
        }
      }
    }
  }

  template <class Ready>
  void section(const SyntheticRow& node, int step, int dp, const Ready& ready, double* ends) {
    const auto tp = static_cast<std::size_t>(run_.mesh.tp);
    const int collectives = tp_collectives_of(run_), phases = collectives > 0 ? collectives : kPhases;
    std::vector<double> begin(tp), now(tp), work(tp), stall(tp), part(tp), own(tp, 0.0);
    std::vector<std::array<float, 4>> noise(tp);
    for (std::size_t t = 0; t < tp; ++t) {
      const std::size_t rank = rank_of(dp, node.pp, static_cast<int>(t));
      begin[t] = now[t] = ready(node, t, rank) + pause_s(node, rank, step, false);
      work[t] = work_s(node, rank, step) / phases;
      stall[t] = pause_s(node, rank, step, true);
      noise[t] = normal_block(run_.seed, rng_key("noise"), draw(rank, step, node.event));
    }
    const double spread = run_.noise * std::sqrt(static_cast<double>(phases));
    for (int phase = 0; phase < phases; ++phase) {
      double latest = 0;
      for (std::size_t t = 0; t < tp; ++t) {
        const std::size_t rank = rank_of(dp, node.pp, static_cast<int>(t));
        if (node.first_forward && run_.mesh.dp > 1) {
          const auto span = static_cast<std::size_t>(node.row.chunk * run_.spans + phase * run_.spans / phases);
          now[t] = std::max(now[t], gathered_[rank * spans() + span]);
          if (phase == 0) begin[t] = std::max(begin[t], now[t]);
        }
        const double seconds = work[t] * std::max(0.2, 1 + spread * noise[t][static_cast<std::size_t>(phase % 4)]);
        own[t] += seconds;
        part[t] = now[t] += seconds + (phase == 1 ? stall[t] : 0);
        latest = std::max(latest, now[t]);
      }
      if (collectives > 0)
        latest +=
            noisy(run_.tp_transfer_s, rank_of(dp, node.pp, 0), step, node.event + 1 + static_cast<std::size_t>(phase));
      for (std::size_t t = 0; t < tp; ++t) {
        const std::size_t rank = rank_of(dp, node.pp, static_cast<int>(t));
        if (collectives > 0) {
          put(rank, step, node.event + 1 + static_cast<std::size_t>(phase), part[t], latest);
          now[t] = latest;
        }
        if (!node.last_backward || run_.mesh.dp == 1) continue;
        for (int span = 0; span < run_.spans; ++span) {
          if ((span + 1) * phases / run_.spans - 1 == phase)
            complete_[rank * spans() + static_cast<std::size_t>(node.row.chunk * run_.spans + span)] = now[t];
        }
      }
    }
    for (std::size_t t = 0; t < tp; ++t) {
      const std::size_t rank = rank_of(dp, node.pp, static_cast<int>(t));
      put(rank, step, node.event, begin[t], now[t]);
      if (run_.has_detail)
        event(rank, step, node.event).detail = static_cast<std::uint32_t>(std::llround(own[t] * 1e6));
      ends[t] = now[t];
    }
  }

  void reduce(int step) {
    if (run_.mesh.dp == 1) return;
    each_group([&](int pp, int tp) {
      std::size_t index = plan_.reduce[static_cast<std::size_t>(pp)];
      for (const int chunk : reduction_order(run_)) {
        for (int span = 0; span < run_.spans; ++span) {
          const auto i = static_cast<std::size_t>(chunk * run_.spans + span);
          over_dp(
              pp, tp, step, index++, run_.reduce_s, [&](std::size_t rank) { return complete_[rank * spans() + i]; },
              nullptr, 0);
        }
      }
    });
  }

  void finish(int step) {
    double latest = 0;
    const auto ready = [&](std::size_t rank) { return std::max(finished_[rank], dp_free_[rank]); };
    for (std::size_t rank = 0; rank < ranks_; ++rank) latest = std::max(latest, ready(rank));
    const double clipped = latest + run_.clip_s;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::size_t last = plan_.events[static_cast<std::size_t>(trace_.ranks[rank].at.pp)] - 1;
      put(rank, step, last - 1, ready(rank), clipped);
      const double seconds = run_.optimizer_s * speed_[rank] *
                             (1 + run_.noise * normal(run_.seed, rng_key("optimizer"), draw(rank, step, 0)));
      finished_[rank] = clipped + seconds;
      put(rank, step, last, clipped, finished_[rank]);
      if (run_.has_detail) event(rank, step, last).detail = static_cast<std::uint32_t>(std::llround(seconds * 1e6));
      put(rank, step, 0, issue_begin_[rank], finished_[rank]);
    }
  }

  const SyntheticRun& run_;
  SyntheticPlan plan_;
  std::size_t ranks_;
  RunTrace trace_;
  // [rank]. Of steps: `finished_before_` is what the host of the next step waits for.
  std::vector<double> speed_, loaded_, issued_, finished_, finished_before_, dp_free_;
  std::vector<double> issue_begin_;
  std::vector<double> gathered_, complete_;  // [rank][span]
};

}  // namespace

RunTrace make_run(const SyntheticRun& run) { return VirtualRun(run).simulate(); }

}  // namespace ms::tracepp
