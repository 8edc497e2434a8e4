// Exposed communication with [overlap] off and on, for each axis. Ranks are threads; communication over the axis takes
// time (comm::Link) but no processor time. Exposed communication is a step's time minus that of the same step with
// links that take no time: everything else, including copying the bytes, is in both. Four runs of a case alternate in
// one process, and medians of the differences are printed.
//
// The rate of a case's links is determined first, so that without overlap the communication over the axis takes a
// stated share of the step: there is compute to hide it, and enough of it to measure. Run by overlap.sh.
// usage: overlap_bench [--rounds N] [CASE...]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/rng.h"
#include "base/text.h"
#include "comm/thread_world.h"
#include "tensor/cpu_device.h"
#include "train/engine/engine.h"

namespace ms::bench {
namespace {

enum Axis { tp, pp, dp, ep, kAxes };
constexpr std::array<const char*, kAxes> kAxisNames{"tp", "pp", "dp", "ep"};
using Links = std::array<comm::Link, kAxes>;
constexpr double kLatencyS = 20e-6;

struct Case {
  const char* name;
  std::array<double, kAxes> share;  // communication without overlap, as a share of the step without delay
  int dp, tp, pp, chunks;
  bool parallel_block;
  std::int64_t layers, hidden, vocab, seq, microbatch, microbatches;
  int ep = 1;  // above 1: a mixture of four experts a rank, of which a token passes two
  int zero = 1;
};
// Parameters are communicated once per step and activations with each microbatch: dp has few tokens, tp and pp many.
// Over dp, only the loader and the bubble overlap the first all-gather and the last reduce-scatter, so it needs many
// collectives.
constexpr Case kCases[] = {
    {"tp2", {0.3, 0, 0}, 1, 2, 1, 1, false, 6, 512, 1024, 256, 2, 1},
    {"tp2-ptb", {0.3, 0, 0}, 1, 2, 1, 1, true, 6, 512, 1024, 256, 2, 1},
    {"tp4-ptb", {0.3, 0, 0}, 1, 4, 1, 1, true, 6, 512, 1024, 256, 2, 1},
    {"pp2", {0, 0.4, 0}, 1, 1, 2, 2, false, 8, 128, 256, 128, 2, 8},
    {"pp4", {0, 0.4, 0}, 1, 1, 4, 2, false, 8, 128, 256, 128, 2, 8},
    {"dp2", {0, 0, 0.4}, 2, 1, 1, 1, false, 16, 128, 256, 64, 4, 1},
    {"dp4", {0, 0, 0.4}, 4, 1, 1, 1, false, 16, 128, 256, 64, 2, 1},
    {"dp2-pp2", {0, 0, 0.4}, 2, 1, 2, 8, false, 16, 128, 256, 64, 1, 4},
    {"dp4-pp2", {0, 0, 0.4}, 4, 1, 2, 8, false, 16, 128, 256, 64, 1, 4},
    {"dp2-zero3", {0, 0, 0.3}, 2, 1, 1, 1, false, 16, 128, 256, 64, 4, 4, 1, 3},
    {"dp4-zero3", {0, 0, 0.3}, 4, 1, 1, 1, false, 16, 128, 256, 64, 4, 4, 1, 3},
    {"ep4", {0, 0, 0, 0.3}, 4, 1, 1, 1, false, 4, 256, 256, 128, 2, 1, 4},
    {"ep8", {0, 0, 0, 0.3}, 8, 1, 1, 1, false, 4, 256, 256, 128, 1, 1, 8},
    {"all", {0.15, 0.1, 0.1}, 2, 2, 2, 4, true, 8, 320, 1024, 192, 1, 4},
};

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

train::Settings settings_of(const Case& c, bool overlap) {
  train::Settings settings;
  settings.model = {.family = "gpt",
                    .layers = c.layers,
                    .hidden = c.hidden,
                    .heads = 8,
                    .vocab = c.vocab,
                    .seq = c.seq,
                    .tied_embeddings = false,
                    .parallel_block = c.parallel_block};
  if (c.ep > 1) {
    settings.model.family = "llama";
    settings.model.experts = 4 * std::int64_t{c.ep};
    settings.model.expert_ffn_hidden = 2 * c.hidden;
    settings.model.shared_experts = 1;
  }
  settings.mesh = {.dp = c.dp, .pp = c.pp, .tp = c.tp, .ep = c.ep, .chunks = c.chunks};
  settings.train.microbatch = c.microbatch;
  settings.train.global_batch = c.dp * c.microbatch * c.microbatches;
  settings.train.dtype = "fp32";
  settings.optim.zero = c.zero;
  settings.overlap = {.tp = overlap, .pp = overlap, .dp = overlap, .ep = overlap, .dp_message = 512 << 10};
  return settings;
}

// A world whose groups use the links of their axis.
class LinkedWorld final : public comm::World {
 public:
  LinkedWorld(const std::vector<std::unique_ptr<comm::ThreadHub>>& hubs, int rank) {
    for (const auto& hub : hubs) worlds_.push_back(hub->world(rank));
  }
  std::string_view kind() const override { return "threads"; }
  int rank() const override { return worlds_.back()->rank(); }
  int size() const override { return worlds_.back()->size(); }
  int ranks_on_node() const override { return size(); }
  std::string node(int rank) const override { return worlds_.back()->node(rank); }
  comm::Store& store() override { return worlds_.back()->store(); }
  std::unique_ptr<comm::Communicator> open(const comm::Group& group, tensor::Stream& stream) override {
    for (std::size_t axis = 0; axis < kAxes; ++axis) {
      if (group.name.starts_with(kAxisNames[axis])) return worlds_[axis]->open(group, stream);
    }
    return worlds_.back()->open(group, stream);
  }
  void abort(const Error& cause) noexcept override {
    for (const auto& world : worlds_) world->abort(cause);
  }
  std::optional<Cause> cause() const override { return worlds_.back()->cause(); }
  void close() override {
    for (const auto& world : worlds_) world->close();
  }

 private:
  std::vector<std::unique_ptr<comm::World>> worlds_;  // by axis, then of the other groups
};

// A run that continues for a few steps on request. An error ends the program.
class Training {
 public:
  Training(const train::Settings& settings, const Links& links)
      : ranks_(static_cast<int>(settings.mesh.dp * settings.mesh.pp * settings.mesh.tp)),
        plan_(train::make_plan(settings, ranks_)),
        pool_(tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), ranks_, ranks_)) {
    constexpr auto kDeadline = std::chrono::seconds(120);
    for (const comm::Link& link : links) hubs_.push_back(std::make_unique<comm::ThreadHub>(ranks_, kDeadline, link));
    hubs_.push_back(std::make_unique<comm::ThreadHub>(ranks_, kDeadline));
    const auto tokens = static_cast<std::uint64_t>(plan_.tokens_per_step() / plan_.mesh.dp);
    for (std::uint64_t i = 0; i <= tokens; ++i) {
      text_.push_back(static_cast<std::int32_t>(uniform_below(1, rng_key("text"), i, 256)));
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      worlds_.push_back(std::make_unique<LinkedWorld>(hubs_, rank));
      devices_.push_back(std::make_unique<tensor::CpuDevice>(pool_, matmuls_));
      engines_.push_back(std::make_unique<train::Engine>(plan_, *worlds_.back(), *devices_.back()));
      engines_.back()->initialize(1);
    }
    seconds_a_step(2);  // makes primitives, touches pages, makes parameters that have to be gathered
  }
  ~Training() {
    on_ranks([](train::Engine& engine, LinkedWorld& world) {
      engine.synchronize();
      world.close();
    });
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // One step is issued ahead, as the trainer does.
  double seconds_a_step(int steps) {
    const double start = now_s();
    on_ranks([&](train::Engine& engine, LinkedWorld&) {
      const std::span<const std::int32_t> text = engine.needs_input() ? text_ : std::span<const std::int32_t>();
      const std::size_t tokens = text.empty() ? 0 : text.size() - 1;
      for (int k = 0; k < steps; ++k) {
        engine.prefetch();
        engine.issue_step(next_step_ + k, 1e-4, text.first(tokens), text.last(tokens));
        if (k > 0) engine.finish_step(next_step_ + k - 1);
      }
      engine.finish_step(next_step_ + steps - 1);
    });
    next_step_ += steps;
    return (now_s() - start) / steps;
  }

 private:
  template <class F>
  void on_ranks(F&& body) {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < engines_.size(); ++rank) {
      threads.emplace_back([&, rank] { body(*engines_[rank], *worlds_[rank]); });
    }
  }

  int ranks_;
  train::Plan plan_;
  tensor::MatmulCache matmuls_;
  tensor::CpuPool pool_;
  std::vector<std::unique_ptr<comm::ThreadHub>> hubs_;
  std::vector<std::int32_t> text_;
  std::vector<std::unique_ptr<LinkedWorld>> worlds_;
  std::vector<std::unique_ptr<tensor::CpuDevice>> devices_;
  std::vector<std::unique_ptr<train::Engine>> engines_;
  std::int64_t next_step_ = 0;
};

constexpr int kSteps = 3;  // of a turn

// Returns the rate at which communication over the axis takes that share of a step without overlap, found in a few
// trials: time is bytes over rate.
double rate_for(const Case& c, Axis axis, double share) {
  constexpr int kTrials = 4, kTurns = 3;
  Training free(settings_of(c, false), {});
  double rate = 500e6;
  for (int trial = 0; trial < kTrials; ++trial) {
    Links links{};
    links[axis] = {kLatencyS, rate};
    Training delayed(settings_of(c, false), links);
    std::vector<double> shares;
    for (int turn = 0; turn < kTurns; ++turn) {
      const double step_s = free.seconds_a_step(kSteps);
      shares.push_back(delayed.seconds_a_step(kSteps) / step_s - 1);
    }
    std::fprintf(stderr, "%s: at %.1f MB/s communication over %s takes %.0f %% of a step\n", c.name, rate * 1e-6,
                 kAxisNames[axis], 100 * median(shares));
    rate *= std::clamp(median(shares) / share, 0.25, 2.0);
  }
  return rate;
}

void measure(const Case& c, int rounds, TextTable& table) {
  Links links{};
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (c.share[axis] > 0) links[axis] = {kLatencyS, rate_for(c, static_cast<Axis>(axis), c.share[axis])};
  }
  struct Side {
    Training delayed, free;
    std::vector<double> step_s, exposed_s;
  };
  Side off{{settings_of(c, false), links}, {settings_of(c, false), {}}, {}, {}};
  Side on{{settings_of(c, true), links}, {settings_of(c, true), {}}, {}, {}};
  std::vector<double> fall;
  for (int round = 0; round < rounds; ++round) {
    std::fprintf(stderr, "%s: round %d of %d\n", c.name, round + 1, rounds);
    std::array<Side*, 2> sides{&off, &on};
    if (round % 2 == 1) std::swap(sides[0], sides[1]);
    for (Side* side : sides) {
      const double free_s = side->free.seconds_a_step(kSteps), delayed_s = side->delayed.seconds_a_step(kSteps);
      side->step_s.push_back(free_s);
      side->exposed_s.push_back(delayed_s - free_s);
    }
  }
  const double step_s = median(off.step_s), off_s = median(off.exposed_s), on_s = median(on.exposed_s);
  table.row({c.name,
             fmt::format("{} = dp {} x tp {} x pp {}, {} chunks", c.dp * c.tp * c.pp, c.dp, c.tp, c.pp, c.chunks),
             fmt::format("{:.1f}", 1e3 * step_s), fmt::format("{:.1f}", 1e3 * median(on.step_s)),
             fmt::format("{:.1f}", 1e3 * off_s), fmt::format("{:.0f} %", 100 * off_s / step_s),
             fmt::format("{:.1f}", 1e3 * on_s), fmt::format("{:.0f} %", 100 * (1 - on_s / off_s))});
}

int run(int argc, char** argv) {
  int rounds = 7;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--rounds" && i + 1 < argc) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else {
      const auto is_named = [&](const Case& c) { return argument == c.name; };
      if (std::none_of(std::begin(kCases), std::end(kCases), is_named)) {
        std::fprintf(stderr, "no case is called '%s'\n", argument.c_str());
        return 2;
      }
      names.push_back(argument);
    }
  }
  const auto wanted = [&](const Case& c) {
    return names.empty() || std::find(names.begin(), names.end(), c.name) != names.end();
  };
  std::printf("%d rounds of 4 x %d steps in turn, medians; %d cores\n", rounds, kSteps,
              tensor::CpuPool::usable_cores());
  TextTable table({{"case"},
                   {"ranks"},
                   {"step ms, no delay, off", Align::right},
                   {"on", Align::right},
                   {"exposed ms, off", Align::right},
                   {"of the step", Align::right},
                   {"exposed ms, on", Align::right},
                   {"fall", Align::right}});
  for (const Case& c : kCases) {
    if (wanted(c)) measure(c, rounds, table);
  }
  std::fputs(table.str().c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace ms::bench

int main(int argc, char** argv) { return ms::bench::run(argc, argv); }
