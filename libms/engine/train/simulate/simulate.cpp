#include "train/simulate/simulate.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <thread>

#include "base/rng.h"
#include "base/text.h"
#include "train/simulate/memory.h"
#include "train/simulate/sim_issuer.h"
#include "train/simulate/sim_trace.h"

namespace ms::train {
namespace {

using cost::Cluster;

constexpr std::size_t kRanksForAxes = 1024;  // above, a solution takes tens of seconds

std::vector<int> ranks_there(const mesh::Mesh& mesh, bool every_rank) {
  std::vector<int> ranks;
  if (every_rank) {
    for (int r = 0; r < mesh.size(); ++r) ranks.push_back(r);
  } else {
    for (int p = 0; p < mesh.pp; ++p) ranks.push_back(mesh.rank({.dp = 0, .pp = p, .tp = 0}));
  }
  return ranks;
}

double chance_of(const Plan& plan, int which) {
  static constexpr std::uint64_t kKey = rng_key("simulated speed");
  return normal(static_cast<std::uint64_t>(plan.settings.train.seed), kKey, static_cast<std::uint64_t>(which));
}

// A node that is alone is as slow as chance has it; a rank that stands for its stage as the slowest of the stage's
// nodes. Stages differ in that, too: a pipeline goes as its slowest, and chance says which stage that is.
double slowness_of(const Plan& plan, const Cluster& cluster, const std::vector<Slow>& slow, int rank, bool every_rank) {
  const auto per_node = static_cast<int>(cluster.node.ranks);
  if (!every_rank) {
    const int stages = plan.mesh.pp, stage = plan.mesh.coord(rank).pp;
    const int first = rank / per_node, last = (rank + plan.mesh.dp * plan.mesh.tp - 1) / per_node;
    int place = 1;
    for (int other = 0; other < stages; ++other) place += chance_of(plan, other) < chance_of(plan, stage) ? 1 : 0;
    return cost::slowest_of(cluster.noise, last - first + 1, place, stages);
  }
  double slowness = std::max(0.1, 1 + cluster.noise.spread * chance_of(plan, rank / per_node));
  for (const Slow& s : slow)
    if (s.target == Slow::Target::rank && rank >= s.first && rank <= s.last) slowness *= s.factor;
  return slowness;
}
double link_slowness_of(const std::vector<Slow>& slow, int rank) {
  double slowness = 1;
  for (const Slow& s : slow)
    if (s.target == Slow::Target::link && rank >= s.first && rank <= s.last) slowness *= s.factor;
  return slowness;
}

// The member of another rank's group that is what `member` is of the recorded rank's.
int moved(const mesh::Mesh& mesh, int recorded, int rank, int member) {
  const mesh::Coord from = mesh.coord(recorded), to = mesh.coord(rank);
  mesh::Coord at = mesh.coord(member);
  const auto shifted = [](int value, int from_value, int to_value, int size) {
    return (value % size + to_value % size - from_value % size + size) % size;
  };
  // Blocks of dp that share experts, sequences or the optimizer's state stay whole; each lies in the next. So do blocks
  // of tp that share experts.
  const int of_tp = mesh.folds_tp ? std::min(mesh.ep, mesh.tp) : 1, of_dp = mesh.ep / of_tp;
  const int shares = std::max(of_dp, mesh.cp), shards = mesh.shard_place(false, {}).shards;
  int block = 1, dp = 0;
  for (const int next : {std::min(shares, shards), std::max(shares, shards), mesh.dp}) {
    dp += block * shifted(at.dp / block, from.dp / block, to.dp / block, next / block);
    block = next;
  }
  at.dp = dp;
  at.tp = of_tp * shifted(at.tp / of_tp, from.tp / of_tp, to.tp / of_tp, mesh.tp / of_tp) +
          shifted(at.tp, from.tp, to.tp, of_tp);
  return mesh.rank(at);
}

// "dp" of "dp[pp 0 tp 1]", "pp" of "pp.fwd[dp 0 tp 1] 0>1".
double network_share_of(const std::vector<clos::CollectiveForecast>& network, const comm::Group& group) {
  const std::string_view axis = std::string_view(group.name).substr(0, group.name.find_first_of(".["));
  const auto found = std::ranges::find(network, axis, &clos::CollectiveForecast::axis);
  return found == network.end() ? 1 : found->slowest_median;
}

double peak_of(const Plan& plan, const Cluster& cluster) {
  return cost::Roofline(cluster.device).peak_flops(plan.dtype == tensor::DType::bf16);
}
cost::FlopsPerToken mfu_of(const Plan& plan, double peak_flops, double tokens_per_s) {
  const double share = tokens_per_s / (peak_flops * plan.mesh.size());
  cost::FlopsPerToken mfu = cost::flops_per_token(plan.model_shape());
  for (double* flops : {&mfu.gemm, &mfu.causal, &mfu.full, &mfu.reported}) *flops *= share;
  return mfu;
}

using Axes = std::vector<trace::GroupAxis>;

// Solves it as it is, then without the messages of the first of `lots`, of the first two, and so on.
std::vector<comm::SimResult> solve_without(const comm::SimSetup& setup, const std::vector<Axes>& lots) {
  std::vector<comm::SimSetup> setups{setup};
  Axes gone;
  for (const Axes& axes : lots) {
    gone.insert(gone.end(), axes.begin(), axes.end());
    setups.emplace_back(setup).is_free = [gone](const comm::Group& group) {
      return std::ranges::find(gone, trace::axis_of(group.name)) != gone.end();
    };
  }
  std::vector<comm::SimResult> results(setups.size());
  std::vector<std::exception_ptr> errors(setups.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < setups.size(); i = next++) {
      try {
        results[i] = comm::solve(setups[i]);
      } catch (const Error&) { errors[i] = std::current_exception(); }
    }
  };
  {
    std::jthread other;
    if (setups.size() > 1) other = std::jthread(work);
    work();
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return results;
}

}  // namespace

double expert_load_of(const Plan& plan, const SimulateOptions& options, int pp_rank) {
  if (options.busiest_ranks.empty()) return 1;
  double sum = 0;
  std::int64_t layers = 0;
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    const nn::ChunkPart part = plan.part(pp_rank, chunk);
    for (std::int64_t layer = part.layer_begin; layer < part.layer_end; ++layer) {
      if (!plan.settings.model.has_experts(layer)) continue;
      sum += options.busiest_ranks[static_cast<std::size_t>(layer)];
      ++layers;
    }
  }
  return layers > 0 ? sum / static_cast<double>(layers) : 1;
}

std::vector<Slow> parse_slow(const std::vector<std::string>& texts, const mesh::Mesh& mesh, const Cluster& cluster) {
  std::vector<Slow> slow;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('='), colon = text.find(':');
    const auto number = [&](std::size_t begin, std::size_t end, auto& value) {
      const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, value);
      return error == std::errc{} && stop == text.data() + end;
    };
    const std::string what = text.substr(0, std::min(equals, text.size()));
    int which = -1;
    double factor = 0;
    if (equals == std::string::npos || colon == std::string::npos || colon < equals ||
        (what != "rank" && what != "node" && what != "link") || !number(equals + 1, colon, which) ||
        !number(colon + 1, text.size(), factor) || !(factor >= (what == "link" ? 1 : 0.01) && factor <= 1e6)) {
      throw user_error(
          "cli.value",
          fmt::format(
              "--slow {}: expected WHAT=N:FACTOR, as rank=17:1.2, node=3:1.1 or link=17:2, with a factor of at least 1",
              text));
    }
    const auto per_node = static_cast<int>(cluster.node.ranks);
    const int count = what == "node" ? (mesh.size() + per_node - 1) / per_node : mesh.size();
    if (which < 0 || which >= count) {
      throw user_error("cli.value", fmt::format("--slow {}: there are {} 0 to {}", text,
                                                what == "node" ? "nodes" : "ranks", count - 1));
    }
    Slow s{.target = what == "link" ? Slow::Target::link : Slow::Target::rank,
           .first = which,
           .last = which,
           .factor = factor};
    if (what == "node") s.first = which * per_node, s.last = std::min(mesh.size(), s.first + per_node) - 1;
    slow.push_back(s);
  }
  return slow;
}

void refuse_unknown(const Settings& settings, const cost::Cluster& cluster) {
  if (settings.train.fp8 && cluster.device.tflops_fp8 == 0)
    throw user_error("train.fp8", "the cluster file has no rate of FP8 GEMMs (device.tflops_fp8)",
                     "add it and device.gemm_fp8, see ms-cluster(5); --set train.fp8=false simulates bf16 GEMMs");
}

Simulation simulate(const Plan& plan, const Cluster& cluster, const SimulateOptions& options) {
  refuse_unknown(plan.settings, cluster);
  require_memory(plan, cluster);
  const mesh::Mesh& mesh = plan.mesh;
  const auto per_node = static_cast<int>(cluster.node.ranks);
  const bool shares_processors = cluster.node.cores > 0 && cluster.node.cores < per_node;
  const bool every_rank =
      options.every_rank || !options.slow.empty() || !options.trace_dir.empty() || shares_processors;

  std::vector<comm::SimRecording> recordings;  // of each stage
  for (const int rank : ranks_there(mesh, false)) {
    SimIssuer issuer(plan, per_node, rank, nullptr, expert_load_of(plan, options, mesh.coord(rank).pp));
    issuer.step(0);
    recordings.push_back(issuer.step(1));
  }
  comm::SimSetup setup;
  setup.cluster = &cluster;
  setup.seconds = options.seconds;
  for (const int rank : ranks_there(mesh, every_rank)) {
    setup.ranks.push_back({.rank = rank,
                           .recording = &recordings[static_cast<std::size_t>(mesh.coord(rank).pp)],
                           .slowness = slowness_of(plan, cluster, options.slow, rank, every_rank),
                           .link_slowness = link_slowness_of(options.slow, rank)});
  }
  setup.moved = [&mesh](int recorded, int rank, int member) { return moved(mesh, recorded, rank, member); };
  setup.stands_for = [&mesh, every_rank](int rank) {
    return static_cast<std::size_t>(every_rank ? rank : mesh.coord(rank).pp);
  };
  if (!options.network.empty())
    setup.network_share = [&](const comm::Group& group) { return network_share_of(options.network, group); };
  // Axis after axis loses its messages, or all at once.
  struct Lot {
    Axes axes;
    double StepParts::*exposed;
  };
  using enum trace::GroupAxis;
  std::vector<Lot> lots;
  if (options.parts && setup.ranks.size() > kRanksForAxes) {
    lots = {{{world, dp, pp, tp, other}, &StepParts::messages_s}};
  } else if (options.parts) {
    lots = {{{world}, &StepParts::world_s},
            {{dp}, &StepParts::dp_s},
            {{pp}, &StepParts::pp_s},
            {{other}, mesh.cp > 1 ? &StepParts::cp_s : &StepParts::ep_s},
            {{tp}, &StepParts::tp_s}};
  }
  std::vector<Axes> axes;
  for (const Lot& lot : lots) axes.push_back(lot.axes);
  const std::vector<comm::SimResult> results = solve_without(setup, axes);
  const comm::SimResult& result = results.front();

  Simulation simulation;
  simulation.iteration_s = result.seconds + cluster.node.step_s;
  simulation.tokens_per_s = static_cast<double>(plan.tokens_per_step()) / simulation.iteration_s;
  simulation.peak_flops = peak_of(plan, cluster);
  simulation.mfu = mfu_of(plan, simulation.peak_flops, simulation.tokens_per_s);
  simulation.parts.host_s = cluster.node.step_s;
  simulation.ranks = setup.ranks.size();
  simulation.messages = result.comm_ops;
  for (int p = 0; p < mesh.pp; ++p) {
    const auto longest = [&] {
      const comm::SimRankResult* found = nullptr;
      for (std::size_t r = 0; r < setup.ranks.size(); ++r) {
        if (mesh.coord(setup.ranks[r].rank).pp != p) continue;
        if (found == nullptr || result.ranks[r].busy_s() > found->busy_s()) found = &result.ranks[r];
      }
      return found;
    }();
    simulation.stages.push_back({.memory_bytes = rank_memory(plan, {.dp = 0, .pp = p, .tp = 0}).total_bytes,
                                 .busy_s = longest->busy_s(),
                                 .class_seconds = longest->class_seconds,
                                 .expert_load = expert_load_of(plan, options, p)});
    simulation.parts.compute_s = std::max(simulation.parts.compute_s, longest->busy_s());
  }
  if (shares_processors) {  // which compute for longer than any rank does
    std::vector<double> of_node_s(static_cast<std::size_t>((mesh.size() - 1) / per_node + 1));
    for (std::size_t r = 0; r < setup.ranks.size(); ++r)
      of_node_s[static_cast<std::size_t>(setup.ranks[r].rank / per_node)] += result.ranks[r].busy_s();
    simulation.parts.compute_s =
        std::max(simulation.parts.compute_s, std::ranges::max(of_node_s) / static_cast<double>(cluster.node.cores));
  }
  StepParts& parts = simulation.parts;
  for (std::size_t i = 0; i < lots.size(); ++i) parts.*lots[i].exposed = results[i].seconds - results[i + 1].seconds;
  if (options.parts) parts.bubble_s = results.back().seconds - parts.compute_s;
  simulation.network = options.network;
  if (options.parts && !options.network.empty()) {
    comm::SimSetup alone = setup;
    alone.network_share = nullptr;
    simulation.network_s = result.seconds - comm::solve(alone).seconds;
  }
  if (!options.trace_dir.empty()) write_traces(plan, setup, simulation.peak_flops, options);
  return simulation;
}

}  // namespace ms::train
