// What writing traces costs: steps of the CPU engine with [trace] on and off, in turns, in one process, and the bytes
// that a rank writes in a step. Ranks are threads. Run by trace_cost.sh; nothing else may run on the machine.
// usage: trace_cost [--rounds N] [CASE...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/rng.h"
#include "base/text.h"
#include "comm/thread_world.h"
#include "tensor/cpu_device.h"
#include "trace/flusher.h"
#include "tracepp/read/trace_reader.h"
#include "train/engine/engine.h"

namespace ms::bench {
namespace {

struct Case {
  const char* name;
  int dp, tp, pp;
  std::int64_t layers, hidden, vocab, seq, microbatch, microbatches;
  int steps;   // of a turn
  int rounds;  // times as many: short turns say less
};
constexpr Case kCases[] = {
    {"one rank, a step of a second", 1, 1, 1, 12, 768, 8192, 256, 1, 2, 1, 1},
    {"dp 2 x pp 2", 2, 1, 2, 8, 256, 1024, 256, 2, 4, 2, 1},
    {"configs/tiny-3d.toml", 2, 2, 2, 4, 160, 257, 128, 4, 2, 4, 4},
    {"tp 2 x dp 2 x pp 2, many small", 2, 2, 2, 8, 64, 257, 64, 1, 4, 8, 8},
};

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double quantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

train::Settings settings_of(const Case& c) {
  train::Settings settings;
  settings.model = {.family = "gpt",
                    .layers = c.layers,
                    .hidden = c.hidden,
                    .heads = 4,
                    .vocab = c.vocab,
                    .seq = c.seq,
                    .tied_embeddings = false};
  settings.mesh = {.dp = c.dp, .pp = c.pp, .tp = c.tp};
  settings.train.microbatch = c.microbatch;
  settings.train.global_batch = c.dp * c.microbatch * c.microbatches;
  settings.train.dtype = "fp32";
  return settings;
}

// A run whose recorders can be detached and attached between steps.
class Training {
 public:
  Training(const Case& c, const std::string& dir)
      : ranks_(c.dp * c.tp * c.pp),
        plan_(train::make_plan(settings_of(c), ranks_)),
        pool_(tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), ranks_, ranks_)),
        hub_(ranks_, std::chrono::seconds(120)) {
    const auto tokens = static_cast<std::uint64_t>(plan_.tokens_per_step() / plan_.mesh.dp);
    for (std::uint64_t i = 0; i <= tokens; ++i) {
      text_.push_back(static_cast<std::int32_t>(uniform_below(1, rng_key("text"), i, 256)));
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      recorders_.push_back(std::make_unique<trace::Recorder>(dir,
                                                             trace::Identity{.rank = rank,
                                                                             .world = ranks_,
                                                                             .dp = c.dp,
                                                                             .pp = c.pp,
                                                                             .tp = c.tp,
                                                                             .host = "bench",
                                                                             .run = {},
                                                                             .device = "cpu"},
                                                             64 << 20, trace::Level::messages));
      flusher_.add(*recorders_.back());
      worlds_.push_back(hub_.world(rank));
      devices_.push_back(std::make_unique<tensor::CpuDevice>(pool_, matmuls_));
      devices_.back()->set_recorder(recorders_.back().get());
      engines_.push_back(std::make_unique<train::Engine>(plan_, *worlds_.back(), *devices_.back()));
      engines_.back()->initialize(1);
    }
    seconds_a_step(3, false);
  }
  ~Training() {
    on_ranks([this](std::size_t rank) {
      engines_[rank]->synchronize();
      worlds_[rank]->close();
    });
    for (const auto& recorder : recorders_) {
      flusher_.remove(*recorder);
      recorder->close(trace::format::Ending::done);
    }
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // One step is issued ahead, as the trainer does.
  double seconds_a_step(int steps, bool traced) {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      devices_[i]->set_recorder(traced ? recorders_[i].get() : nullptr);
    }
    const double start = now_s();
    on_ranks([&](std::size_t rank) {
      train::Engine& engine = *engines_[rank];
      trace::Recorder* recorder = traced ? recorders_[rank].get() : nullptr;
      const std::span<const std::int32_t> text = engine.needs_input() ? text_ : std::span<const std::int32_t>();
      const std::size_t tokens = text.empty() ? 0 : text.size() - 1;
      const auto finish = [&](std::int64_t step) {
        engine.finish_step(step);
        if (recorder != nullptr) recorder->end_step(step, trace::now_ns(), engine.device().op_seconds());
      };
      for (int k = 0; k < steps; ++k) {
        if (recorder != nullptr) recorder->begin_step(next_step_ + k, trace::now_ns());
        engine.prefetch();
        engine.issue_step(next_step_ + k, 1e-4, text.first(tokens), text.last(tokens));
        if (k > 0) finish(next_step_ + k - 1);
      }
      finish(next_step_ + steps - 1);
    });
    next_step_ += steps;
    return (now_s() - start) / steps;
  }

 private:
  void on_ranks(const std::function<void(std::size_t)>& body) {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < engines_.size(); ++rank) threads.emplace_back([&body, rank] { body(rank); });
  }

  int ranks_;
  train::Plan plan_;
  trace::Flusher flusher_{1.0};
  tensor::MatmulCache matmuls_;
  tensor::CpuPool pool_;
  comm::ThreadHub hub_;
  std::vector<std::int32_t> text_;
  std::vector<std::unique_ptr<trace::Recorder>> recorders_;
  std::vector<std::unique_ptr<comm::World>> worlds_;
  std::vector<std::unique_ptr<tensor::CpuDevice>> devices_;
  std::vector<std::unique_ptr<train::Engine>> engines_;
  std::int64_t next_step_ = 0;
};

void measure(const Case& c, int rounds, TextTable& table) {
  const std::string dir = std::filesystem::temp_directory_path() / fmt::format("trace_cost.{}", getpid());
  std::filesystem::create_directories(dir);
  std::vector<double> off_s, cost, control;
  {
    Training training(c, dir);
    // on, off, off, on: what drifts slowly is on both sides alike.
    const auto round = [&](bool on) {
      const double first = training.seconds_a_step(c.steps, on), second = training.seconds_a_step(c.steps, false);
      const double third = training.seconds_a_step(c.steps, false), fourth = training.seconds_a_step(c.steps, on);
      off_s.push_back((second + third) / 2);
      return (first + fourth) / (second + third) - 1;
    };
    for (int i = 0; i < rounds; ++i) {
      cost.push_back(round(true));
      control.push_back(round(false));
    }
  }
  double events = 0;
  std::uint64_t dropped = 0;
  for (int rank = 0; rank < c.dp * c.tp * c.pp; ++rank) {
    tracepp::RunTrace run;
    tracepp::TraceFileReader(run).read(dir + "/" + trace::trace_file_name(rank));
    const tracepp::RankTrace& one = run.ranks.front();
    events = std::max(events, static_cast<double>(one.events.size()) / static_cast<double>(one.sums.size()));
    dropped += one.dropped;
  }
  std::filesystem::remove_all(dir);
  using namespace trace::format;  // NOLINT: the sizes of a file's parts
  const double bytes = events * kPageBytes / static_cast<double>(kRecordsAPage) + sizeof(Sum);
  table.row({c.name, fmt::format("{:.1f}", 1e3 * quantile(off_s, 0.5)),
             fmt::format("{:+.2f} %", 100 * quantile(cost, 0.5)),
             fmt::format("{:+.2f} .. {:+.2f} %", 100 * quantile(cost, 0.25), 100 * quantile(cost, 0.75)),
             fmt::format("{:+.2f} %", 100 * quantile(control, 0.5)), fmt::format("{:.0f}", events),
             fmt::format("{:.0f}", bytes), fmt::format("{}", dropped)});
}

int run(int argc, char** argv) {
  int rounds = 25;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--rounds" && i + 1 < argc) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else {
      names.push_back(argument);
    }
  }
  std::printf(
      "%d rounds of on, off, off, on (4 and 8 times as many of short steps); medians, and the middle half;\n"
      "'nothing costs': as many rounds of off, off, off, off, which tell how far to believe the others\n",
      rounds);
  TextTable table({{"case"},
                   {"step ms", Align::right},
                   {"tracing costs", Align::right},
                   {"middle half", Align::right},
                   {"nothing costs", Align::right},
                   {"events a rank and step", Align::right},
                   {"bytes", Align::right},
                   {"dropped", Align::right}});
  for (const Case& c : kCases) {
    if (names.empty() || std::ranges::find(names, std::string(c.name)) != names.end())
      measure(c, rounds * c.rounds, table);
  }
  std::fputs(table.str().c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace ms::bench

int main(int argc, char** argv) { return ms::bench::run(argc, argv); }
