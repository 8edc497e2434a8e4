#include "train/simulate/tune.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>
#include <string_view>
#include <thread>

#include "base/text.h"
#include "cost/mfu.h"
#include "sched/registry.h"
#include "train/engine/rank_tensors.h"
#include "train/simulate/memory.h"

namespace ms::train {
namespace {

using Time = std::chrono::steady_clock;

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> result;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0) result.push_back(d);
  return result;
}

struct Candidate {
  Settings settings;
  std::int64_t memory_bytes = 0;
  double guess = 0;  // of its time, in times of what computing alone takes: only the order matters
};

// Estimates the time relative to compute alone: the bubble, recomputation, collectives of tp, rows of experts over ep
// and over tp, and keys of cp add to it, roughly.
double guess_of(const Settings& s) {
  const mesh::MeshConfig& mesh = s.mesh;
  const sched::Shape shape{.pp = static_cast<int>(mesh.pp),
                           .chunks = static_cast<int>(mesh.chunks),
                           .microbatches = static_cast<int>(s.train.global_batch / (mesh.dp * s.train.microbatch))};
  const sched::Times times;
  const double bubble = sched::find_kind(mesh.schedule, shape.chunks)->bubble(shape, times) /
                        (shape.microbatches * (times.forward + times.backward));
  const double again = s.train.recompute == "full" ? 0.3 : s.train.recompute == "selective" ? 0.02 : 0;
  const double messages = (s.overlap.tp ? 0.02 : 0.05) * std::log2(static_cast<double>(mesh.tp));
  const double rows = 0.03 * std::log2(static_cast<double>(mesh.ep * (s.model.experts > 0 ? mesh.expert_shards() : 1)));
  const double keys = 0.03 * std::log2(static_cast<double>(mesh.cp));
  return (1 + bubble) * (1 + again + messages + rows + keys);
}

// From what costs no time to what costs most.
constexpr std::array<std::string_view, 3> kRecompute = {"none", "selective", "full"};

class Search {
 public:
  Search(const Settings& settings, const cost::Cluster& cluster, std::int64_t world, const TuneOptions& options)
      : settings_(settings), cluster_(cluster), world_(world), options_(options) {}

  Tuning run() {
    const mesh::MeshConfig& mesh = settings_.mesh;
    for (const std::int64_t tp : divisors(std::min(world_, cluster_.node.ranks))) {
      if (world_ % tp != 0) continue;
      for (const std::int64_t pp : divisors(world_ / tp))
        if (pp <= settings_.model.layers) cut(tp, pp);
    }
    if (candidates_.empty()) throw nothing_found();
    std::ranges::stable_sort(candidates_, {}, &Candidate::guess);
    simulate_all();
    const auto by_time = [](const Layout& layout) { return layout.simulation.iteration_s; };
    std::ranges::stable_sort(tuning_.best, {}, by_time);
    if (tuning_.best.size() > options_.keep) {
      tuning_.slower = tuning_.best.size() - options_.keep;
      tuning_.best.resize(options_.keep);
    }
    for (Layout& layout : tuning_.best) shorten_ends(layout), group_shards(layout);
    std::ranges::stable_sort(tuning_.best, {}, by_time);
    // Where the time goes, of those that are shown.
    for (Layout& layout : tuning_.best) layout.simulation = simulated(layout.settings, true);
    if (mesh.ranks() == world_ && problems_between(settings_).empty()) {
      const Plan plan = make_plan(settings_, static_cast<int>(world_));
      const std::int64_t bytes = largest_stage(plan).bytes;
      if (bytes <= cluster_.device.memory_bytes) tuning_.given = Layout{settings_, simulated(settings_, true), bytes};
    }
    return std::move(tuning_);
  }

 private:
  Error nothing_found() const {
    if (tuning_.too_large > 0) {
      return user_error(
          "tune.none",
          fmt::format("no layout over {} ranks fits a {} with {}: the smallest needs {}", world_, cluster_.device.name,
                      format_size(static_cast<double>(cluster_.device.memory_bytes)),
                      format_size(static_cast<double>(tuning_.least_bytes))),
          "use more ranks, or a global batch that allows a larger dp");
    }
    std::string reasons;
    for (const auto& [rule, number] : tuning_.impossible)
      reasons += fmt::format("{}{} ({})", reasons.empty() ? "" : "; ", rule, plural(number, "layout"));
    return user_error(
        "tune.none", fmt::format("the model cannot be sharded over {} ranks: {}", world_, reasons),
        fmt::format("another --world, or another train.global_batch ({}), model.layers ({}) or model.heads ({})",
                    settings_.train.global_batch, settings_.model.layers, settings_.model.heads));
  }

  // Shorter pieces of a sequence than this save little memory, and their attention waits for messages.
  static constexpr std::int64_t kLeastOfContext = 4096;

  void cut(std::int64_t tp, std::int64_t pp) {
    for (const std::int64_t cp : divisors(world_ / (tp * pp)))
      if (cp == 1 || settings_.model.seq / cp >= kLeastOfContext) cut(tp, pp, cp);
  }

  void cut(std::int64_t tp, std::int64_t pp, std::int64_t cp) {
    const std::int64_t dp = world_ / (tp * pp * cp);
    if (settings_.train.global_batch % dp != 0) return refuse("dp does not divide train.global_batch");
    for (const std::int64_t microbatch : {1, 2, 4, 8}) {
      if (settings_.train.global_batch / dp % microbatch != 0) continue;
      for (const std::int64_t chunks : divisors(std::max<std::int64_t>(1, settings_.model.layers / pp))) {
        if (pp == 1 && chunks > 1) continue;
        for (const sched::ScheduleKind* kind : sched::schedule_kinds()) {
          if (!kind->tuned || !kind->takes(static_cast<int>(chunks))) continue;
          Settings s = settings_;
          s.mesh.tp = tp;
          s.mesh.pp = pp;
          s.mesh.dp = dp;
          s.mesh.cp = cp;
          s.mesh.chunks = chunks;
          s.mesh.first_layers = s.mesh.last_layers = 0;
          s.mesh.schedule = kind->key;
          s.train.microbatch = microbatch;
          share_experts(s);
          if (pp == 1) break;  // one stage has no bubble: all schedules are alike
        }
      }
    }
  }

  void share_experts(Settings s) {
    s.mesh.ep = 1, s.mesh.expert_tp = 0;
    if (s.model.experts == 0) return consider(s);
    for (const int expert_tp : {0, 1}) {
      s.mesh.expert_tp = expert_tp;
      for (const std::int64_t ep : divisors(std::gcd(s.mesh.expert_ranks(), s.model.experts))) {
        s.mesh.ep = ep;
        consider(s);
      }
      if (s.mesh.tp == 1) break;
    }
  }

  void refuse(const std::string& rule) {
    ++tuning_.considered;
    ++tuning_.impossible[rule];
  }

  void consider(Settings s) {
    s.overlap.pp = s.overlap.dp = s.overlap.ep = true;
    if (const auto problems = problems_between(s); !problems.empty())
      return refuse("the rules of " + problems.front().key);
    std::int64_t least_bytes = std::numeric_limits<std::int64_t>::max();
    bool fits = false;
    // Stage 3 saves memory and costs gathers: where it saves recomputation, either may be faster.
    for (const std::int64_t zero : {s.optim.zero, std::int64_t{3}}) {
      s.optim.zero = zero;
      try {
        const std::string_view recompute = add_candidates(s, least_bytes);
        fits = fits || !recompute.empty();
        if (recompute == kRecompute[0]) break;
      } catch (const Error& error) { return refuse(error.kind()); }
      if (zero == 0 || zero == 3 || s.mesh.dp * s.mesh.cp == 1) break;
      Settings sharded = s;
      sharded.optim.zero = 3;
      if (!problems_between(sharded).empty()) break;
    }
    if (fits) return;
    ++tuning_.considered;
    ++tuning_.too_large;
    tuning_.least_bytes = tuning_.least_bytes == 0 ? least_bytes : std::min(tuning_.least_bytes, least_bytes);
  }

  // With the least recomputation that fits: more only costs time. Returns it; empty: with none it fits. Throws what
  // make_plan() does.
  std::string_view add_candidates(Settings s, std::int64_t& least_bytes) {
    for (const std::string_view recompute : kRecompute) {
      s.train.recompute = recompute;
      bool fits = false;
      for (const bool overlap_tp : {false, true}) {
        if (overlap_tp && s.mesh.tp == 1) continue;
        s.overlap.tp = overlap_tp;  // it takes buffers
        const std::int64_t bytes = largest_stage(make_plan(s, static_cast<int>(world_))).bytes;
        least_bytes = std::min(least_bytes, bytes);
        if (bytes > cluster_.device.memory_bytes) continue;
        fits = true;
        ++tuning_.considered;
        candidates_.push_back({s, bytes, guess_of(s)});
      }
      if (fits) return recompute;
    }
    return {};
  }

  Simulation simulated(const Settings& s, bool parts) const {
    return simulate(make_plan(s, static_cast<int>(world_)), cluster_, {.parts = parts});
  }

  // Takes layers from the stages that also embed tokens or compute the loss if the layout is then faster and fits.
  void shorten_ends(Layout& layout) {
    const Settings given = layout.settings;
    const std::int64_t stages = given.mesh.pp * given.mesh.chunks;
    if (stages == 1) return;
    const std::int64_t share = (given.model.layers + stages - 1) / stages;
    for (const auto& [first, last] : {std::pair{share, share - 1}, {share - 1, share - 1}, {share, share - 2}}) {
      Settings s = given;
      s.mesh.first_layers = first, s.mesh.last_layers = last;
      if (last < 1 || first < 1 || !problems_between(s).empty()) continue;
      replace_if_faster(layout, s);
    }
  }

  // Shards the state over the ranks of a node if the layout is then faster and fits.
  void group_shards(Layout& layout) {
    Settings s = layout.settings;
    if (s.optim.zero == 0 || s.optim.shard_group > 0) return;
    s.optim.shard_group = cluster_.node.ranks / s.mesh.tp;
    if (s.optim.shard_group >= s.mesh.dp * s.mesh.cp || !problems_between(s).empty()) return;
    replace_if_faster(layout, s);
  }

  void replace_if_faster(Layout& layout, const Settings& s) {
    ++tuning_.considered;
    const std::int64_t bytes = largest_stage(make_plan(s, static_cast<int>(world_))).bytes;
    if (bytes > cluster_.device.memory_bytes) {
      ++tuning_.too_large;
      return;
    }
    ++tuning_.slower;  // one of the two is
    Layout other{s, simulated(s, false), bytes};
    if (other.simulation.iteration_s < layout.simulation.iteration_s) layout = std::move(other);
  }

  void simulate_all() {
    const auto begin = Time::now();
    std::atomic<std::size_t> next = 0;
    std::mutex mutex;
    std::vector<std::optional<Layout>> done(candidates_.size());
    std::exception_ptr failed;
    const auto work = [&] {
      for (std::size_t i = next++; i < candidates_.size(); i = next++) {
        if (i > 0 && std::chrono::duration<double>(Time::now() - begin).count() > options_.patience_s) break;
        const Candidate& candidate = candidates_[i];
        try {
          done[i] = Layout{candidate.settings, simulated(candidate.settings, false), candidate.memory_bytes};
        } catch (const Error&) {
          const std::lock_guard lock(mutex);
          failed = std::current_exception();
          break;
        }
      }
    };
    {
      const std::jthread other(work);
      work();
    }
    if (failed) std::rethrow_exception(failed);
    for (std::optional<Layout>& layout : done) {
      if (layout) {
        tuning_.best.push_back(std::move(*layout));
      } else {
        ++tuning_.not_reached;
      }
    }
  }

  const Settings& settings_;
  const cost::Cluster& cluster_;
  const std::int64_t world_;
  const TuneOptions& options_;
  std::vector<Candidate> candidates_;
  Tuning tuning_;
};

}  // namespace

Tuning tune(const Settings& settings, const cost::Cluster& cluster, std::int64_t world, const TuneOptions& options) {
  refuse_unknown(settings, cluster);
  return Search(settings, cluster, world, options).run();
}

Settings for_devices_of(const cost::Cluster& cluster, Settings settings) {
  if (!cost::known_ceilings(cluster.device.name)) return settings;
  Settings on_gpus = settings;
  on_gpus.run.device = "cuda";
  return problems_between(on_gpus).empty() ? on_gpus : settings;
}

std::string why_slower(const Layout& other, const Layout& best) {
  const StepParts &a = other.simulation.parts, &b = best.simulation.parts;
  const mesh::MeshConfig &mesh = other.settings.mesh, &than = best.settings.mesh;
  const TrainConfig &train = other.settings.train, &its = best.settings.train;
  struct Loss {
    double seconds;
    std::string reason;
  };
  const std::int64_t microbatches = train.global_batch / (mesh.dp * train.microbatch);
  std::string computing = "GEMMs of other sizes";
  if (std::ranges::find(kRecompute, train.recompute) > std::ranges::find(kRecompute, its.recompute)) {
    computing = fmt::format("recompute = {}", train.recompute);
  } else if (mesh.tp > than.tp) {
    computing = fmt::format("smaller GEMMs of tp {}", mesh.tp);
  } else if (train.microbatch < its.microbatch) {
    computing = fmt::format("smaller GEMMs of microbatches of {}", train.microbatch);
  } else if (other.settings.overlap.tp && !best.settings.overlap.tp) {
    computing = "GEMMs split for the overlap of tp";
  } else if (mesh.pp > than.pp) {
    computing = fmt::format("a last stage with the head and as many layers as the others (pp {})", mesh.pp);
  }
  std::vector<Loss> losses{
      {a.compute_s - b.compute_s, "it computes longer: " + computing},
      {a.bubble_s - b.bubble_s, fmt::format("its bubble is longer: {} microbatches through pp {} x {} chunks ({})",
                                            microbatches, mesh.pp, mesh.chunks, mesh.schedule)},
      {a.tp_s - b.tp_s, fmt::format("compute waits longer for collectives of tp {}{}", mesh.tp,
                                    other.settings.overlap.tp ? "" : ", which are not overlapped")},
      {a.pp_s - b.pp_s,
       fmt::format("compute waits longer for transfers between {} stages x {} chunks", mesh.pp, mesh.chunks)},
      {a.cp_s - b.cp_s, fmt::format("compute waits longer for keys, values and heads over cp {}", mesh.cp)},
      {a.ep_s - b.ep_s, fmt::format("compute waits longer for rows of experts over ep {}", mesh.ep)},
      {a.dp_s - b.dp_s, fmt::format("compute waits longer for gradients and parameters over dp {}", mesh.dp)}};
  const Loss& most = *std::ranges::max_element(losses, {}, &Loss::seconds);
  const double slower = other.simulation.iteration_s - best.simulation.iteration_s;
  if (slower <= 1e-4 * best.simulation.iteration_s) return "as fast";
  return fmt::format("{:.1f} % slower; {}", 100 * slower / best.simulation.iteration_s, most.reason);
}

}  // namespace ms::train
