// The cost of checkpoints on CPU, as ratios within one run: the step that waits for a snapshot against copying the same
// bytes with the same threads, writing in the background against dd, training meanwhile, and loading against dd.
//
// checkpoint_cost DIR [LAYERS [SAVES]]: DIR is on the disk to measure; 16 layers are 2.1 GB of state.
// checkpoint_cost --serve DIR LAYERS: for comparison with another program. Prints type and elements of every piece;
// then, for every line on standard input, saves once without other load and prints the stall and the total time.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <thread>

#include "base/file.h"
#include "checkpoint_tools.h"
#include "ckpt/directory.h"
#include "ckpt/saver.h"
#include "tensor/cpu_device.h"
#include "tensor/cpu_stream.h"
#include "train/checkpoint/restore.h"

namespace ms::bench {
namespace {

constexpr std::int64_t kSeq = 128, kVocabulary = 50257;
constexpr int kQuietSteps = 5;  // before a save and after it; the median step is of these
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

// The yardstick: the same tensors copied one after the other into memory of the same kind, each by all threads.
class PlainCopy {
 public:
  PlainCopy(const std::vector<ckpt::Held>& held, tensor::Device& device) : held_(held) {
    for (const ckpt::Held& h : held) bytes_ += h.piece.size_bytes();
    to_ = device.allocate(static_cast<std::size_t>(bytes_), "a copy of the state");
  }
  std::int64_t bytes() const { return bytes_; }
  double seconds(int threads) {
    return time_of([&] {
      std::byte* to = to_->data();
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
  std::unique_ptr<tensor::Memory> to_;
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

// Measurements of a save.
struct Save {
  std::vector<double> quiet;   // seconds of the steps around it
  std::vector<double> during;  // of those from its boundary to when all know that it has ended
  double snapshot_s = 0;       // from the state being ready to its copy being complete
  double memcpy_s = 0, dd_s = 0;
  ckpt::SaveOutcome outcome;

  double typical_s() const { return median(quiet); }
  // The step that was in flight at the boundary, and the one whose update waits for the snapshot.
  double waited_s() const { return beyond(0, 2); }
  // The slowdown of the later steps, while the save continued, as a share of a step.
  double slowed(double own_s) const {
    if (during.size() < 3) return 0;
    return (beyond(2, during.size()) - own_s) / (static_cast<double>(during.size() - 2) * typical_s());
  }

 private:
  double beyond(std::size_t begin, std::size_t end) const {
    double sum = 0;
    for (std::size_t i = begin; i < std::min(end, during.size()); ++i) sum += during[i] - typical_s();
    return sum;
  }
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

std::vector<Save> train_and_save(const std::string& dir, std::int64_t layers, int saves, std::int64_t& bytes,
                                 int& threads) {
  std::vector<Save> seen;
  on_ranks(settings_of(layers, 1), [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(1);
    const std::vector<ckpt::Held> held = engine.state();
    const mesh::Groups groups(plan.mesh, plan.chunks, plan.settings.model.tied_embeddings);
    ckpt::Saver saver({.dir = dir, .keep_last = 1, .group_id = groups.count()}, held, world, device, device);
    threads = tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), 1, 1).threads_per_op;
    PlainCopy copy(held, device);
    bytes = copy.bytes();
    copy.seconds(threads);  // touches its memory
    Loop loop{plan, engine, {}, {}};
    for (std::int64_t t = 0; t < kSeq; ++t) loop.tokens.push_back(static_cast<std::int32_t>(t * 373 % kVocabulary));
    loop.targets = loop.tokens;

    const auto quiet_steps = [&](std::vector<double>& into) {
      double seconds = 0;
      for (int step = 0; step < kQuietSteps; ++step) {
        loop.issue({});
        loop.finish(seconds);
        into.push_back(seconds);
      }
    };

    for (int i = -1; i < saves; ++i) {  // the first one warms up: files, primitives, pages
      Save save;
      std::vector<double> copies;
      for (int round = 0; round < 3; ++round) copies.push_back(copy.seconds(threads));
      save.memcpy_s = median(copies);
      save.dd_s = dd_write_s(dir + "/dd", bytes);
      // The trainer's loop: one step ahead of the one awaited. Steps beside those with nothing in flight do not count.
      double seconds = 0;
      loop.issue({});
      loop.issue({});
      loop.finish(seconds);
      quiet_steps(save.quiet);
      ckpt::Manifest manifest = example_manifest();
      manifest.step = loop.issued;
      const tensor::Event ready = engine.state_ready(), copied = *saver.begin(manifest, ready, loop.issued - 1);
      engine.update_after(copied);
      std::jthread watch([&] {
        ready.synchronize();
        save.snapshot_s = time_of([&] { copied.synchronize(); });
      });
      std::optional<ckpt::SaveOutcome> outcome;
      while (!outcome) {
        loop.issue({.stop = 0, .save = 0, .saving = saver.votes()});
        const std::int64_t step = loop.finished;
        const train::StepResult result = loop.finish(seconds);
        save.during.push_back(seconds);
        outcome = saver.agreed(step, result.votes.saving);
      }
      if (!outcome->committed) throw Error("bench.save", Blame::storage, outcome->problem);
      save.outcome = *outcome;
      watch.join();
      quiet_steps(save.quiet);
      loop.drain();
      if (i < 0) continue;
      fmt::print(stderr, "save {}: steps before and after {:.3f}, during {:.3f}\n", i + 1, fmt::join(save.quiet, " "),
                 fmt::join(save.during, " "));
      seen.push_back(save);
    }
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
    ckpt::Saver saver({.dir = dir, .group_id = groups.count()}, engine.state(), world, device, device);
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
  print_row("  against dd of the files, just before", warm ? "" : ">= 90 %", fmt::format("{:.0f} %", median(ratios)));
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
    ckpt::Saver saver({.dir = dir, .keep_last = 1, .group_id = groups.count()}, held, world, device, device);
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
  std::int64_t bytes = 0;
  int threads = 0;
  const std::vector<Save> seen = train_and_save(dir, layers, saves, bytes, threads);
  const auto of = [&](const std::function<double(const Save&)>& value) {
    std::vector<double> values;
    for (const Save& save : seen) values.push_back(value(save));
    return median(values);
  };
  const double size = static_cast<double>(bytes);
  fmt::print("state {:.2f} GB, {} threads, median step {:.3f} s, {} saves; medians\n\n", size / 1e9, threads,
             of([](const Save& s) { return s.typical_s(); }), saves);
  print_row("item", "aim", "measured");
  print_row("copy of the same bytes, same threads (GB/s)", "",
            fmt::format("{:.2f}", of([&](const Save& s) { return size / s.memcpy_s / 1e9; })));
  print_row("the snapshot, while a step goes on (s)", "",
            fmt::format("{:.3f}", of([](const Save& s) { return s.snapshot_s; })));
  print_row("  against the copy of the same bytes", "",
            fmt::format("{:.2f} x", of([](const Save& s) { return s.snapshot_s / s.memcpy_s; })));
  print_row("the step that waits for the snapshot, beyond the median (s)", "",
            fmt::format("{:.3f}", of([](const Save& s) { return s.waited_s(); })));
  print_row("  against the copy of the same bytes", "<= 1.15 x",
            fmt::format("{:.2f} x", of([](const Save& s) { return s.waited_s() / s.memcpy_s; })));
  print_row("dd conv=fsync (GB/s)", "", fmt::format("{:.2f}", of([&](const Save& s) { return size / s.dd_s / 1e9; })));
  print_row("background write, hashed and synced (GB/s)", "",
            fmt::format("{:.2f}", of([&](const Save& s) { return size / s.outcome.write_s / 1e9; })));
  print_row("  against dd, just before", ">= 85 %",
            fmt::format("{:.0f} %", of([](const Save& s) { return 100 * s.dd_s / s.outcome.write_s; })));
  print_row("boundary to commit (s)", "", fmt::format("{:.2f}", of([](const Save& s) { return s.outcome.total_s; })));
  print_row("writer's processor time (s)", "",
            fmt::format("{:.2f}", of([](const Save& s) { return s.outcome.cpu_s; })));
  print_row("steps while it writes, beyond the median and that time", "< 5 %",
            fmt::format("{:.1f} %", of([](const Save& s) { return 100 * s.slowed(s.outcome.cpu_s); })));
  print_row("  the same, the writer's time not taken off", "",
            fmt::format("{:.1f} %", of([](const Save& s) { return 100 * s.slowed(0); })));

  const std::optional<ckpt::Found> newest = ckpt::newest_complete(dir);
  print_load("load by one rank, page cache empty", newest.value().path, layers, 1, false);
  print_load("load by one rank, from the page cache", newest.value().path, layers, 1, true);
  const std::string four = save_once(dir + "/dp4", layers, 4);
  print_load("load by dp 4, page cache empty", four, layers, 4, false);
  print_load("load by dp 4 of what one rank saved, page cache empty", newest.value().path, layers, 4, false);
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
