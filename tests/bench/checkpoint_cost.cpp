// What checkpoints cost a run, on CPU, in ratios of one run: the step that waits for a snapshot against copying the
// same bytes with the same threads, writing in the background against dd, training meanwhile, and loading against dd.
//
// checkpoint_cost DIR [LAYERS [SAVES]]: DIR is on the disk that is measured; 16 layers are 2.1 GB of state.
// checkpoint_cost --serve DIR LAYERS: for a peer to be compared with. Says type and elements of every piece; then, for
// every line on standard input, saves once with nothing else going on, and says the stall and the total time.
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>

#include "base/file.h"
#include "checkpoint_tools.h"
#include "ckpt/directory.h"
#include "ckpt/saver.h"
#include "tensor/cpu_device.h"
#include "tensor/cpu_stream.h"
#include "train/restore.h"

namespace ms::bench {
namespace {

constexpr std::int64_t kSeq = 128, kVocabulary = 50257;
constexpr int kQuietSteps = 5;  // between a save that is over and the next one; of these the median is taken
constexpr int kRounds = 5;      // of loading

train::Settings settings_of(std::int64_t layers, std::int64_t dp) {
  train::Settings settings;
  settings.model.layers = layers;
  settings.model.vocab = kVocabulary;
  settings.model.seq = kSeq;
  settings.mesh.dp = dp;
  settings.train.global_batch = dp;
  settings.train.microbatch = 1;
  settings.train.dtype = "bf16";
  return settings;
}

// The yardstick: the same tensors copied one after the other into memory that is there, each by all threads.
class PlainCopy {
 public:
  explicit PlainCopy(const std::vector<ckpt::Held>& held) : held_(held) {
    for (const ckpt::Held& h : held) bytes_ += h.piece.size_bytes();
    to_.resize(static_cast<std::size_t>(bytes_));
  }
  std::int64_t bytes() const { return bytes_; }
  double seconds(int threads) {
    return time_of([&] {
      std::byte* to = to_.data();
      for (const ckpt::Held& h : held_) {
        const auto size = static_cast<std::size_t>(h.piece.size_bytes());
#pragma omp parallel num_threads(threads)
        {
          const auto part = static_cast<std::size_t>(omp_get_thread_num()),
                     parts = static_cast<std::size_t>(omp_get_num_threads());
          const std::size_t begin = size * part / parts, end = size * (part + 1) / parts;
          std::memcpy(to + begin, h.tensor.data + begin, end - begin);
        }
        to += size;
      }
    });
  }

 private:
  const std::vector<ckpt::Held>& held_;
  std::int64_t bytes_ = 0;
  std::vector<std::byte> to_;
};

ckpt::Manifest example_manifest() {
  ckpt::Manifest manifest;
  manifest.run = "0123456789abcdef";
  manifest.created = "2026-01-31T12:00:00Z";
  manifest.version = "bench";
  manifest.dtype = "bf16";
  return manifest;
}

void print_row(const std::string& item, const std::string& aim, const std::string& measured) {
  fmt::print("{:<62} {:>10} {:>12}\n", item, aim, measured);
}

// What was seen of a save.
struct Save {
  double waited_s = 0;            // the step that waited for the snapshot, beyond the median step
  double later_s = 0, steps = 0;  // the steps after it while the save went on: beyond the median step; how many
  double memcpy_s = 0, dd_s = 0;
  ckpt::SaveOutcome outcome;
};

struct Loop {
  const train::Plan& plan;
  train::Engine& engine;
  std::vector<std::int32_t> tokens, targets;
  std::int64_t issued = 0, finished = 0;
  double last_end_s = 0;

  void issue(const train::Votes& votes) { engine.issue_step(issued++, 1e-4, tokens, targets, votes); }
  train::StepResult finish(double& seconds) {
    const train::StepResult result = engine.finish_step(finished++);
    const double end = now_s();
    seconds = end - last_end_s;
    last_end_s = end;
    return result;
  }
  // Nothing is in flight afterwards.
  void drain() {
    double unused = 0;
    while (finished < issued) finish(unused);
  }
};

std::vector<Save> train_and_save(const std::string& dir, std::int64_t layers, int saves, double& median_s,
                                 std::int64_t& bytes, int& threads) {
  std::vector<Save> seen;
  on_ranks(settings_of(layers, 1), [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(1);
    const std::vector<ckpt::Held> held = engine.state();
    const mesh::Groups groups(plan.mesh, plan.chunks, plan.settings.model.tied_embeddings);
    ckpt::Saver saver({.dir = dir, .keep_last = 1, .group_id = groups.count()}, held, world, device);
    threads = tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), 1, 1).threads_per_op;
    PlainCopy copy(held);
    bytes = copy.bytes();
    copy.seconds(threads);  // touches its memory
    Loop loop{plan, engine, {}, {}};
    for (std::int64_t t = 0; t < kSeq; ++t) loop.tokens.push_back(static_cast<std::int32_t>(t * 373 % kVocabulary));
    loop.targets = loop.tokens;

    std::vector<double> quiet;
    double seconds = 0;
    for (int i = -1; i < saves; ++i) {  // the first one warms up: files, primitives, pages
      Save save;
      if (i >= 0) {
        loop.drain();
        std::vector<double> copies;
        for (int round = 0; round < 3; ++round) copies.push_back(copy.seconds(threads));
        save.memcpy_s = median(copies);
        save.dd_s = dd_write_s(dir + "/dd", bytes);
      }
      // The trainer's loop: one step ahead of the one awaited. The steps beside a drain are not counted.
      loop.issue({});
      for (int step = 0; step <= kQuietSteps; ++step) {
        loop.issue({});
        loop.finish(seconds);
        if (step > 0 && i >= 0) quiet.push_back(seconds);
      }
      ckpt::Manifest manifest = example_manifest();
      manifest.step = loop.issued;
      const auto copied = saver.begin(manifest, engine.state_ready(), loop.issued - 1);
      engine.update_after(*copied);
      std::vector<double> during;
      std::optional<ckpt::SaveOutcome> outcome;
      // The first step that ends was issued before the save and may overlap the copy; its successor waits for it.
      while (!outcome) {
        loop.issue({.stop = 0, .save = 0, .saving = saver.votes()});
        const std::int64_t step = loop.finished;
        const train::StepResult result = loop.finish(seconds);
        during.push_back(seconds);
        outcome = saver.agreed(step, result.votes.saving);
      }
      if (!outcome->committed) {
        fmt::print(stderr, "a save failed: {}\n", outcome->problem);
        std::_Exit(1);
      }
      save.outcome = *outcome;
      if (i < 0) continue;
      const double typical = median(quiet);
      for (std::size_t s = 0; s < during.size(); ++s) {
        (s < 2 ? save.waited_s : save.later_s) += during[s] - typical;
        if (s >= 2) ++save.steps;
      }
      seen.push_back(save);
    }
    loop.drain();
    median_s = median(quiet);
  });
  return seen;
}

// One checkpoint written by dp ranks; its path.
std::string save_once(const std::string& dir, std::int64_t layers, std::int64_t dp) {
  std::filesystem::create_directories(dir);
  on_ranks(settings_of(layers, dp), [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(1);
    const mesh::Groups groups(plan.mesh, plan.chunks, plan.settings.model.tied_embeddings);
    ckpt::Saver saver({.dir = dir, .group_id = groups.count()}, engine.state(), world, device);
    saver.begin(example_manifest(), engine.state_ready(), -1);
    const std::optional<ckpt::SaveOutcome> outcome = saver.finish();
    if (!outcome->committed) throw Error("bench.save", Blame::storage, outcome->problem);
  });
  return dir + "/" + ckpt::step_name(0);
}

struct Load {
  double seconds = 0, dd_s = 0;
  std::int64_t bytes_read = 0;
};
// Loads by dp ranks, each just after dd has read the same files; the engines are there already.
std::vector<Load> load(const std::string& path, std::int64_t layers, std::int64_t dp, bool warm) {
  std::vector<Load> rounds(kRounds);
  const ckpt::Manifest manifest = ckpt::parse_manifest(read_file(path + "/" + std::string(ckpt::kManifestName)), path);
  const auto each_file = [&](const std::function<void(const std::string&)>& visit) {
    for (const ckpt::FileEntry& file : manifest.files) visit(path + "/" + file.name);
  };
  on_ranks(settings_of(layers, dp), [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(1);
    const int threads = std::max(1, tensor::CpuPool::usable_cores() / world.size());
    const bool leads = world.rank() == 0;
    for (Load& round : rounds) {
      if (leads) {
        if (!warm) each_file(drop_from_cache);
        each_file([&](const std::string& file) { round.dd_s += dd_read_s(file); });
        if (!warm) each_file(drop_from_cache);
      }
      engine.share_state();  // everybody waits for everybody
      const double start = now_s();
      const ckpt::LoadReport report = train::restore(engine, manifest, path, threads);
      std::atomic_ref(round.bytes_read).fetch_add(report.bytes_read);
      const double seconds = now_s() - start;
      std::atomic_ref slowest(round.seconds);
      for (double seen = slowest; seen < seconds && !slowest.compare_exchange_weak(seen, seconds);) {}
    }
  });
  return rounds;
}

void print_load(const std::string& what, const std::string& path, std::int64_t layers, std::int64_t dp, bool warm) {
  const double stored = static_cast<double>(ckpt::look(path).manifest.value().size_bytes());
  std::vector<double> rates, ratios, read;
  for (const Load& round : load(path, layers, dp, warm)) {
    rates.push_back(stored / round.seconds / 1e9);
    ratios.push_back(100 * round.dd_s / round.seconds);
    read.push_back(static_cast<double>(round.bytes_read) / stored);
  }
  print_row(what + " (GB/s)", "", fmt::format("{:.2f}", median(rates)));
  print_row("  against dd of the files, just before", ">= 90 %", fmt::format("{:.0f} %", median(ratios)));
  print_row("  bytes read / checkpoint size", "1.0", fmt::format("{:.3f}", median(read)));
}

int serve(const std::string& dir, std::int64_t layers) {
  std::filesystem::create_directories(dir);
  on_ranks(settings_of(layers, 1), [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(1);
    const std::vector<ckpt::Held> held = engine.state();
    for (const ckpt::Held& h : held) { fmt::print("{} {}\n", tensor::to_string(h.piece.dtype), h.piece.slice.size()); }
    fmt::print("\n");
    std::fflush(stdout);
    const mesh::Groups groups(plan.mesh, plan.chunks, plan.settings.model.tied_embeddings);
    ckpt::Saver saver({.dir = dir, .keep_last = 1, .group_id = groups.count()}, held, world, device);
    ckpt::Manifest manifest = example_manifest();
    for (std::string line; std::getline(std::cin, line);) {
      ++manifest.step;
      const double start = now_s();
      saver.begin(manifest, engine.state_ready(), -1)->synchronize();
      const double stall = now_s() - start;
      const std::optional<ckpt::SaveOutcome> outcome = saver.finish();
      if (!outcome->committed) throw Error("bench.save", Blame::storage, outcome->problem);
      fmt::print("{} {}\n", stall, now_s() - start);
      std::fflush(stdout);
    }
  });
  return 0;
}

int run(const std::string& dir, std::int64_t layers, int saves) {
  std::filesystem::create_directories(dir);
  double median_s = 0;
  std::int64_t bytes = 0;
  int threads = 0;
  const std::vector<Save> seen = train_and_save(dir, layers, saves, median_s, bytes, threads);
  const auto of = [&](const std::function<double(const Save&)>& value) {
    std::vector<double> values;
    for (const Save& save : seen) values.push_back(value(save));
    return median(values);
  };
  const double size = static_cast<double>(bytes);
  fmt::print("state {:.2f} GB, {} threads, median step {:.3f} s, {} saves; medians\n\n", size / 1e9, threads, median_s,
             saves);
  print_row("item", "aim", "measured");
  print_row("copy of the same bytes, same threads (GB/s)", "",
            fmt::format("{:.2f}", of([&](const Save& s) { return size / s.memcpy_s / 1e9; })));
  print_row("the step that waits for the snapshot, beyond the median (s)", "",
            fmt::format("{:.3f}", of([](const Save& s) { return s.waited_s; })));
  print_row("  against the copy of the same bytes", "<= 1.15 x",
            fmt::format("{:.2f} x", of([](const Save& s) { return s.waited_s / s.memcpy_s; })));
  print_row("dd conv=fsync (GB/s)", "", fmt::format("{:.2f}", of([&](const Save& s) { return size / s.dd_s / 1e9; })));
  print_row("background write, hashed and synced (GB/s)", "",
            fmt::format("{:.2f}", of([&](const Save& s) { return size / s.outcome.write_s / 1e9; })));
  print_row("  against dd, just before", ">= 85 %",
            fmt::format("{:.0f} %", of([](const Save& s) { return 100 * s.dd_s / s.outcome.write_s; })));
  print_row("boundary to commit (s)", "", fmt::format("{:.2f}", of([](const Save& s) { return s.outcome.total_s; })));
  print_row("writer's processor time (s)", "",
            fmt::format("{:.2f}", of([](const Save& s) { return s.outcome.cpu_s; })));
  print_row("steps while it writes, beyond the median and that time", "< 5 %",
            fmt::format("{:.1f} %", of([&](const Save& s) {
                          const double beyond = s.later_s - s.outcome.cpu_s;
                          return s.steps == 0 ? 0 : 100 * std::max(0.0, beyond) / (s.steps * median_s);
                        })));
  print_row("  the same, the writer's time not taken off", "",
            fmt::format("{:.1f} %",
                        of([&](const Save& s) { return s.steps == 0 ? 0 : 100 * s.later_s / (s.steps * median_s); })));

  const std::optional<ckpt::Found> newest = ckpt::newest_complete(dir);
  print_load("load by one rank, warm", newest.value().path, layers, 1, true);
  print_load("load by one rank, cold", newest.value().path, layers, 1, false);
  const std::string four = save_once(dir + "/dp4", layers, 4);
  print_load("load by dp 4, saved by dp 4, warm", four, layers, 4, true);
  print_load("load by dp 4, saved by one rank, warm", newest.value().path, layers, 4, true);
  return 0;
}

}  // namespace
}  // namespace ms::bench

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "--serve") return ms::bench::serve(argv[2], std::atoll(argv[3]));
  if (argc < 2) {
    fmt::print(stderr, "usage: checkpoint_cost DIR [LAYERS [SAVES]] | checkpoint_cost --serve DIR LAYERS\n");
    return 2;
  }
  return ms::bench::run(argv[1], argc > 2 ? std::atoll(argv[2]) : 16, argc > 3 ? std::atoi(argv[3]) : 5);
}
