#include "ckpt/bench.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/hash.h"
#include "ckpt/blocks.h"

namespace ms::ckpt {
namespace {

constexpr int kRounds = 3;
enum Measured : std::uint8_t { copy, hash, plain_write, image_write, plain_read, load_all, kMeasured };

struct Measure {
  Measured id;
  std::string_view name, doc;
  Measured against;  // itself: nothing
};
constexpr std::array<Measure, kMeasured> kMeasures{{
    {copy, "copy", "memory to memory, one thread", copy},
    {hash, "hash", "xxh64 of the blocks, one thread", hash},
    {plain_write, "plain write", "write and fsync through the page cache", plain_write},
    {image_write, "checkpoint write", "as a rank writes its file, hashes included", plain_write},
    {plain_read, "plain read", "read of the file from the page cache, one thread", plain_read},
    {load_all, "checkpoint load", "as a rank reads its file, every block verified", plain_read},
}};

struct Sample {
  double seconds = 0, cpu_seconds = 0;
};

double cpu_now_s() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Work>
Sample timed(const Work& work) {
  const SystemClock clock;
  const double begin_s = clock.now_s(), cpu_begin_s = cpu_now_s();
  work();
  return {.seconds = clock.now_s() - begin_s, .cpu_seconds = cpu_now_s() - cpu_begin_s};
}

Error system_error(std::string_view doing, const std::string& path) {
  return Error("ckpt.bench", Blame::storage, fmt::format("cannot {} {}: {}", doing, path, errno_text(errno)));
}

// A directory of its own, gone with all that is in it however the benchmark ends.
class Scratch {
 public:
  explicit Scratch(const std::string& dir) : path_(dir + "/ms-ckpt-bench-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw system_error("make a directory in", dir);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

 private:
  std::string path_;
};

struct Free {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

// Page-aligned, and every page touched: filled with what no file system compresses.
class Buffer {
 public:
  Buffer(std::int64_t size_bytes, std::uint64_t seed) : size_(static_cast<std::size_t>(image_bytes(size_bytes))) {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(static_cast<std::size_t>(kPageBytes), size_)));
    if (!memory_)
      throw user_error("ckpt.bench", fmt::format("cannot allocate {} bytes", size_), "give a smaller --size");
    for (std::size_t i = 0; i < size_; i += sizeof seed) {
      seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;  // Knuth's linear congruential generator
      std::memcpy(memory_.get() + i, &seed, sizeof seed);
    }
  }
  std::span<std::byte> bytes() const { return {memory_.get(), size_}; }

 private:
  std::size_t size_;
  std::unique_ptr<std::byte, Free> memory_;
};

UniqueFd open_file(const std::string& path, int flags) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (!fd) throw system_error("open", path);
  return fd;
}

// One block after another through a plain system call; `call` returns what read(2) or write(2) does.
template <class Call>
void by_blocks(std::span<std::byte> bytes, std::string_view doing, const std::string& path, const Call& call) {
  while (!bytes.empty()) {
    const ssize_t n = call(bytes.data(), std::min(bytes.size(), static_cast<std::size_t>(kBlockBytes)));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw system_error(doing, path);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void write_plainly(const std::string& path, std::span<std::byte> bytes) {
  UniqueFd fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  by_blocks(bytes, "write", path, [&](const std::byte* from, std::size_t n) { return ::write(fd.get(), from, n); });
  if (::fsync(fd.get()) != 0) throw system_error("fsync", path);
  fd.close();
}

void read_plainly(const std::string& path, std::span<std::byte> bytes) {
  const UniqueFd fd = open_file(path, O_RDONLY);
  by_blocks(bytes, "read", path, [&](std::byte* to, std::size_t n) { return ::read(fd.get(), to, n); });
}

std::uint64_t hash_blocks(std::span<const std::byte> bytes) {
  std::uint64_t all = 0;
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), static_cast<std::size_t>(kBlockBytes));
    all ^= xxh64(bytes.first(n));
    bytes = bytes.subspan(n);
  }
  return all;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

std::int64_t bench_bytes(const BenchOptions& options) { return options.size_bytes * kRounds * kMeasured; }

BenchReport bench(const std::string& dir, const BenchOptions& options) {
  const Scratch scratch(dir);
  const Buffer image(options.size_bytes, 1), other(options.size_bytes, 2);
  const auto size = static_cast<std::size_t>(options.size_bytes);
  const std::span<std::byte> from = image.bytes().first(size), to = other.bytes().first(size);
  const std::string plain_file = scratch.file("plain"), image_file = scratch.file("image");
  BenchReport report{.dir = dir, .size_bytes = options.size_bytes, .rounds = kRounds, .threads = options.threads};
  std::array<std::vector<Sample>, kMeasured> samples;
  std::int64_t moved_bytes = 0;
  const auto measure = [&](Measured what, const auto& work) {
    samples[what].push_back(timed(work));
    moved_bytes += options.size_bytes;
    if (options.progress) options.progress(moved_bytes);
  };

  std::vector<std::uint64_t> hashes;
  std::uint64_t seen = 0;
  for (int round = 0; round < kRounds; ++round) {
    measure(copy, [&] { std::memcpy(to.data(), from.data(), size); });
    measure(hash, [&] { seen ^= hash_blocks(from); });
    if (round > 0) ::unlink(image_file.c_str());  // the space of one file at a time
    measure(plain_write, [&] { write_plainly(plain_file, from); });
    ::unlink(plain_file.c_str());
    measure(image_write, [&] {
      WriteReport written = write_image(image_file, open_file(image_file, O_WRONLY | O_CREAT | O_EXCL), image.bytes(),
                                        options.size_bytes, {});
      hashes = std::move(written.hashes);
      report.direct = written.direct;
    });
  }
  MS_ASSERT(seen == hash_blocks(from), "the hashes of {} rounds differ", kRounds);  // an odd number leaves one
  read_plainly(image_file, to);                                                     // warm, for both
  const Transfer everything{.file_offset = 0,
                            .row_bytes = options.size_bytes,
                            .rows = 1,
                            .file_stride = 0,
                            .memory_stride = 0,
                            .to = to.data()};
  for (int round = 0; round < kRounds; ++round) {
    measure(plain_read, [&] { read_plainly(image_file, to); });
    measure(load_all, [&] {
      read_blocks({.path = image_file, .size_bytes = options.size_bytes, .hashes = hashes}, {&everything, 1}, true,
                  options.threads);
    });
  }

  const auto bytes = static_cast<double>(options.size_bytes);
  for (const Measure& row : kMeasures) {
    std::vector<double> rates, ratios, cpu;
    for (std::size_t round = 0; round < kRounds; ++round) {
      const Sample& sample = samples[row.id][round];
      rates.push_back(bytes / sample.seconds);
      ratios.push_back(samples[row.against][round].seconds / sample.seconds);
      cpu.push_back(sample.cpu_seconds / sample.seconds);
    }
    const std::string_view against =
        row.against == row.id ? std::string_view{} : kMeasures[static_cast<std::size_t>(row.against)].name;
    report.rows.push_back({.name = row.name,
                           .doc = row.doc,
                           .bytes_per_s = median(rates),
                           .cpu_per_s = median(cpu),
                           .against = against,
                           .ratio = median(ratios)});
  }
  return report;
}

}  // namespace ms::ckpt
