// One loader for the ranks of a node against one loader in each rank, over the same token files in one run: memory and
// mapped files of all processes, tokens/s when ranks do nothing but read, and how long ranks wait for tokens beside
// 50 ms of compute. Ranks are processes. A loader in each rank reads ahead in a thread of it, as far as the other does.
// Then what ranks wait when the loader is killed, and larger files that no cache holds: samples read one after another,
// and by the loader, which asks for a batch at once. The temporary directory (TMPDIR) must be on a disk.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/handle.h"
#include "base/print.h"
#include "base/unexpected.h"
#include "data/batch_reader.h"
#include "data/encode_workers.h"
#include "data/fill_ring.h"
#include "data/loader.h"
#include "data/loader_process.h"
#include "data/token_writer.h"

namespace {

using namespace ms;
namespace fs = std::filesystem;

constexpr int kRanks = 8;
constexpr int kSources = 100;
constexpr std::int64_t kSeq = 4096;
constexpr std::int64_t kGlobalBatch = 64;
constexpr std::int64_t kVocab = 32'000;
constexpr std::int64_t kSourceTokens = 400'000, kColdTokens = 4'000'000;
constexpr std::int64_t kDocumentTokens = 200;  // on average
constexpr double kCompute_s = 0.05;
constexpr std::int64_t kSteps = 400, kComputedSteps = 60, kColdSteps = 20, kStepsPerKill = 10;

enum class Way { none, each_rank, node };

struct Layout {
  const char* name;
  int dp;  // ranks of one dp rank are neighbours
};
constexpr Layout kLayouts[] = {{"tp 8", 1}, {"dp 2 x tp 4", 2}, {"dp 4 x tp 2", 4}, {"dp 8", 8}};

// Ranks and the parent, which forked them all, meet here.
struct Board {
  std::atomic<int> ready, read, go_compute;
  char address[64];
  double seconds[kRanks], waited_s[kRanks];
};

void wait_until(const std::atomic<int>& value, int wanted) {
  while (value.load() < wanted) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

void write_sources(const fs::path& directory, std::int64_t tokens) {
  for (int source = 0; source < kSources; ++source) {
    data::TokenWriter writer(directory / fmt::format("s{}", source), data::TokenType::u16);
    std::vector<std::int32_t> document;
    for (std::int64_t done = 0; done < tokens; done += std::ssize(document)) {
      document.assign(static_cast<std::size_t>(1 + (done + source * 37) * 7919 % (2 * kDocumentTokens)), 0);
      for (std::size_t i = 0; i < document.size(); ++i) {
        document[i] = static_cast<std::int32_t>((done + static_cast<std::int64_t>(i) * 31 + source) % kVocab);
      }
      writer.append(document);
      writer.end_document();
    }
    writer.commit();
  }
}

data::Loader open_sources(const fs::path& directory, bool documents_apart = false) {
  data::DataConfig config{.train = {}, .valid = {}, .valid_fraction = 0, .reset_attention = documents_apart};
  for (int source = 0; source < kSources; ++source) {
    config.train.push_back(
        fmt::format("{} {}", 1 + source % 7 + 0.137 * source, (directory / fmt::format("s{}", source)).string()));
  }
  return {config, {.seq = kSeq, .global_batch = kGlobalBatch}, kVocab, 1};
}

data::LoaderTask task_of(std::vector<int> dp_ranks, int dp, bool has_digests) {
  return {.order = {.end = kSteps + kComputedSteps},
          .dp_ranks = std::move(dp_ranks),
          .division = {.dp = dp},
          .has_digests = has_digests};
}

// What a rank does, in its process.
void be_rank(Board& board, int rank, const Layout& layout, Way way, const fs::path& directory) {
  const int dp_rank = rank / (kRanks / layout.dp);
  data::RingShape shape{.rows = kGlobalBatch / layout.dp, .seq = kSeq};
  std::optional<data::Loader> loader;
  std::unique_ptr<data::LoaderProcess> process;
  std::optional<data::BatchRing> ring;
  std::optional<data::BatchReader> reader;
  std::jthread filling;
  if (way == Way::each_rank) {
    loader.emplace(open_sources(directory));
    ring.emplace(shape);
    filling = std::jthread([&] {
      data::SourceLoaders loaders(*loader, data::LoaderCount(1));
      data::fill_ring(loaders, *ring, task_of({dp_rank}, layout.dp, rank == 0));
    });
    reader.emplace(*ring, 0, 0, 600, [] {});
  } else if (way == Way::node) {
    shape.readers = kRanks, shape.parts = layout.dp;
    if (rank == 0) {
      process = std::make_unique<data::LoaderProcess>(
          [&] { return std::make_unique<data::Loader>(open_sources(directory)); });
      process->open(600, [] {});
      ring.emplace(shape);
      std::vector<int> all(static_cast<std::size_t>(layout.dp));
      for (int i = 0; i < layout.dp; ++i) all[static_cast<std::size_t>(i)] = i;
      process->run(*ring, task_of(all, layout.dp, true));
      ring->address().copy(board.address, sizeof board.address - 1);
      board.ready = 1;
    } else {
      wait_until(board.ready, 1);
      ring.emplace(shape, board.address);
    }
    reader.emplace(*ring, rank, dp_rank, 600, [&] {
      if (process) process->check();
    });
  }
  double begin = 0;
  std::size_t sum = 0;
  for (std::int64_t step = 0; reader && step < kSteps; ++step) {
    if (step == 1) begin = monotonic_s();               // the first waits for files to be opened
    sum += reader->next({.step = step}).starts.size();  // copies that ranks make of it are the same either way
    reader->release();
  }
  board.seconds[rank] = monotonic_s() - begin;
  ++board.read;
  wait_until(board.go_compute, 1);
  begin = monotonic_s();
  for (std::int64_t step = kSteps; reader && step < kSteps + kComputedSteps; ++step) {
    const double before = monotonic_s();
    sum += reader->next({.step = step}).starts.size();
    reader->release();
    if (step > kSteps) board.waited_s[rank] += monotonic_s() - before;
    std::this_thread::sleep_for(std::chrono::duration<double>(kCompute_s));
  }
  ::_exit(sum == 42 ? 1 : 0);
}

struct Memory {
  double anon_kb = 0, shared_kb = 0, file_kb = 0;
  std::int64_t files = 0;                                 // open ones
  double kept_kb() const { return anon_kb + shared_kb; }  // what the kernel cannot drop
};

// Adds a process and those below it. `inherited`: the mappings that it was forked with, whose open files are its
// parent's.
void add_process(pid_t process, Memory& memory, const std::set<std::string>& inherited = {}) {
  std::ifstream rollup(fmt::format("/proc/{}/smaps_rollup", process));
  for (std::string line; std::getline(rollup, line);) {
    std::istringstream words(line);
    std::string key;
    double kb = 0;
    if (!(words >> key >> kb)) continue;
    if (key == "Pss_Anon:") memory.anon_kb += kb;
    if (key == "Pss_Shmem:") memory.shared_kb += kb;
    if (key == "Pss_File:") memory.file_kb += kb;
  }
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  std::set<std::string> mappings;
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with(".idx") || line.ends_with(".bin")) mappings.insert(line);
  }
  memory.files += std::ranges::count_if(mappings, [&](const std::string& line) { return !inherited.contains(line); });
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", process));
  for (pid_t child = 0; children >> child;) add_process(child, memory, mappings);
}

struct Result {
  Memory memory;
  double tokens_per_s = 0, stall = 0;
};

Result run(const Layout& layout, Way way, const fs::path& directory) {
  void* shared = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& board = *new (shared) Board{};
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t process = ::fork();
    if (process == 0) be_rank(board, rank, layout, way, directory);
    ranks.push_back(process);
  }
  while (board.read < kRanks) {
    if (::waitpid(-1, nullptr, WNOHANG) > 0) throw Error("bench.rank", Blame::bug, "a rank has ended");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Result result;
  for (const pid_t rank : ranks) add_process(rank, result.memory);
  board.go_compute = 1;
  for (const pid_t rank : ranks) ::waitpid(rank, nullptr, 0);
  double seconds = 0, waited_s = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    seconds = std::max(seconds, board.seconds[rank]);
    waited_s = std::max(waited_s, board.waited_s[rank]);
  }
  result.tokens_per_s = static_cast<double>((kSteps - 1) * kGlobalBatch * kSeq) / seconds;
  result.stall = waited_s / (waited_s + kCompute_s * static_cast<double>(kComputedSteps - 1));
  ::munmap(shared, sizeof(Board));
  return result;
}

// Drops what the page cache has of the files; they are synced.
void drop_cached(const fs::path& directory) {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const UniqueFd fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

// What all disks have read for this process.
double disk_mb() {
  std::ifstream io("/proc/self/io");
  double bytes = 0;
  for (std::string key; io >> key >> bytes;) {
    if (key == "read_bytes:") break;
  }
  return bytes / 1e6;
}

void read_alone(const data::Loader& loader, const data::BatchOrder& order) {
  data::LoaderTask task = task_of({0, 1}, 2, false);
  task.order = order;
  data::BatchRing ring({.parts = 2, .rows = kGlobalBatch / 2, .seq = kSeq, .has_starts = loader.has_starts()});
  data::SourceLoaders loaders(loader, data::LoaderCount(data::default_workers()));
  const std::jthread filling([&] { data::fill_ring(loaders, ring, task); });
  data::BatchReader reader(ring, 0, 0, 600, [] {});
  for (std::int64_t step = order.begin; step < order.end; ++step) reader.next({.step = step});
}

void bench_cold(const fs::path& directory) {
  write_sources(directory, kColdTokens);
  drop_cached(directory);
  const double begin = monotonic_s();
  const data::Loader loader = open_sources(directory);
  print_out("files that no cache holds: {} sources of {} MB opened in {:.2f} s\n", kSources,
            kColdTokens * 2 / 1'000'000, monotonic_s() - begin);
  const auto measure = [&](const char* name, const std::function<void()>& read) {
    drop_cached(directory);
    const double before_mb = disk_mb(), from = monotonic_s();
    read();
    print_out("{:26} {:8.1f} M tokens/s, the disk gives {:.1f} times the bytes of these tokens\n", name,
              static_cast<double>(kColdSteps * kGlobalBatch * kSeq) / 1e6 / (monotonic_s() - from),
              (disk_mb() - before_mb) * 1e6 / static_cast<double>(kColdSteps * kGlobalBatch * kSeq * 2));
  };
  measure("one sample after another", [&] {
    std::vector<std::int32_t> rows(kGlobalBatch * (kSeq + 1));
    for (std::int64_t step = 0; step < kColdSteps; ++step) loader.fill(step, 0, kGlobalBatch, rows.data());
  });
  measure("the loader", [&] { read_alone(loader, {.begin = kColdSteps, .end = 2 * kColdSteps}); });
}

// Attention within documents, and its work balanced over two dp ranks: both need the index for every sample.
void bench_apart(const fs::path& directory) {
  const data::Loader loader = open_sources(directory, true);
  const double from = monotonic_s();
  read_alone(loader, {.end = kColdSteps});
  print_out("documents apart, balanced: {:8.1f} M tokens/s\n",
            static_cast<double>(kColdSteps * kGlobalBatch * kSeq) / 1e6 / (monotonic_s() - from));
}

pid_t child_of(pid_t process) {
  pid_t child = -1;
  while (child < 1) std::ifstream(fmt::format("/proc/{0}/task/{0}/children", process)) >> child;
  return child;
}

// The loader of eight dp ranks is killed while it fills a slot: how long the ranks wait for the steps that follow.
void bench_takeover(const fs::path& directory, double compute_s) {
  data::LoaderProcess process([&] { return std::make_unique<data::Loader>(open_sources(directory)); });
  const pid_t standby = child_of(::getpid());
  process.open(600, [] {});
  data::BatchRing ring({.readers = kRanks, .parts = kRanks, .rows = kGlobalBatch / kRanks, .seq = kSeq});
  process.run(ring, task_of({0, 1, 2, 3, 4, 5, 6, 7}, kRanks, true));
  std::vector<data::BatchReader> readers;
  for (int rank = 0; rank < kRanks; ++rank) readers.emplace_back(ring, rank, rank, 600, [&] { process.check(); });
  double killed_s = 0, other_s = 0;  // the longest waits
  pid_t killed = -1;
  for (std::int64_t step = 0; step < kComputedSteps; ++step) {
    const double before = monotonic_s();
    for (data::BatchReader& reader : readers) reader.next({.step = step});
    const double waited_s = monotonic_s() - before;
    const std::int64_t phase = step % kStepsPerKill;
    double& longest_s = step > kStepsPerKill && phase >= 1 && phase <= 3 ? killed_s : other_s;
    if (step >= kStepsPerKill) longest_s = std::max(longest_s, waited_s);
    for (data::BatchReader& reader : readers) reader.release();
    if (step > 0 && phase == 0) {
      pid_t loader = child_of(standby);
      while (loader == killed) loader = child_of(standby);
      ::kill(killed = loader, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(compute_s));
  }
  print_out(
      "a loader that is killed, beside {:3.0f} ms of compute: ranks wait {:.2f} ms at most, {:.2f} ms otherwise\n",
      compute_s * 1e3, killed_s * 1e3, other_s * 1e3);
}

// `only`: of one layout, and nothing else; empty: all.
int bench(std::string_view only) {
  const fs::path directory = fs::temp_directory_path() / fmt::format("ms-node-loader-{}", ::getpid());
  fs::create_directories(directory);
  write_sources(directory, kSourceTokens);
  print_out("{} ranks as processes, {} sources, batches of {} x {} tokens\n", kRanks, kSources, kGlobalBatch, kSeq);
  print_out("{:12} {:10} {:>9} {:>9} {:>9} {:>8} {:>10} {:>8}\n", "layout", "loaders", "private", "shared", "files",
            "open", "tokens/s", "stall");
  for (const Layout& layout : kLayouts) {
    if (!only.empty() && only != layout.name) continue;
    const Memory without = run(layout, Way::none, directory).memory;
    const auto measure = [&](Way way, const char* name) {
      Result result = run(layout, way, directory);
      result.memory.anon_kb -= without.anon_kb;
      result.memory.file_kb -= without.file_kb;
      const Memory& memory = result.memory;
      print_out("{:12} {:10} {:6.1f} MB {:6.1f} MB {:6.1f} MB {:>8} {:8.1f} M {:6.2f} %\n", layout.name, name,
                memory.anon_kb / 1024, memory.shared_kb / 1024, memory.file_kb / 1024, memory.files,
                result.tokens_per_s / 1e6, 100 * result.stall);
      return result;
    };
    const Result each = measure(Way::each_rank, "each rank"), node = measure(Way::node, "node");
    print_out("{:12} {:10} memory {:.1f}x less, of loaders alone {:.1f}x, open files {:.1f}x less, tokens/s {:.1f}x\n",
              layout.name, "ratio", each.memory.kept_kb() / node.memory.kept_kb(),
              each.memory.anon_kb / node.memory.anon_kb,
              static_cast<double>(each.memory.files) / static_cast<double>(node.memory.files),
              node.tokens_per_s / each.tokens_per_s);
  }
  if (only.empty()) {
    bench_takeover(directory, kCompute_s);
    bench_takeover(directory, 0);
    bench_cold(directory);
    bench_apart(directory);
  }
  fs::remove_all(directory);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ms::end_on_uncaught("node_loader");
  return bench(argc > 1 ? argv[1] : "");
}
