// The libFuzzer program of all targets: "ms_fuzz TARGET [libFuzzer's options]", "ms_fuzz --list" names them, "ms_fuzz
// --seeds DIR" writes the seeds and the dictionary of each, and "ms_fuzz --time TARGET DIR..." says which of the inputs
// in these directories takes longest for its size.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "target.h"

namespace ms::fuzz {
namespace {

namespace fs = std::filesystem;

const Target* chosen = nullptr;

std::vector<Target> all_targets() {
  std::vector<Target> all;
  for (const auto& targets : {text_targets(), file_targets(), trace_targets(), tokenizer_targets(), run_targets()})
    all.insert(all.end(), targets.begin(), targets.end());
  return all;
}

class MemoryDirectory {
 public:
  MemoryDirectory() { fs::create_directories(path_); }
  ~MemoryDirectory() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_ = "/dev/shm/ms-fuzz-" + std::to_string(::getpid());
};

void write(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void write_seeds(const fs::path& to) {
  for (const Target& target : all_targets()) {
    fs::create_directories(to / target.name);
    int number = 0;
    for (const std::string& seed : target.seeds()) write(to / target.name / ("seed-" + std::to_string(number++)), seed);
    std::string words;
    for (const std::string_view word : target.words) {
      std::string hex;
      for (const char c : word) hex += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      words += '"' + hex + "\"\n";
    }
    write(to / (std::string(target.name) + ".dict"), words);
  }
}

void parse(std::string_view bytes) {
  try {
    chosen->parse(bytes);
  } catch (const ms::Error&) {}  // a refusal
}

// Input of a few bytes costs what every call costs, so it counts as one of kTimedBytes.
constexpr std::size_t kTimedBytes = 10'000;

// The shortest of three calls: a busy machine makes calls longer, and none shorter.
double shortest_ms(std::string_view bytes) {
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    parse(bytes);
    shortest =
        std::min(shortest, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return shortest;
}

void time_inputs(std::span<char*> directories) {
  double worst_ms = 0;
  fs::path worst;
  for (const char* directory : directories) {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(file)), {});
      const double per_input = std::max(1.0, static_cast<double>(bytes.size()) / kTimedBytes);
      const double ms = shortest_ms(bytes) / per_input;
      if (ms > worst_ms) worst_ms = ms, worst = entry.path();
    }
  }
  std::cout << fmt::format("{:.3f} {}\n", worst_ms, worst.string());
}

const Target* find_target(std::string_view name) {
  for (const Target& target : all_targets()) {
    if (target.name == name) return new Target(target);  // until the process ends
  }
  std::cerr << "usage: ms_fuzz --list | --seeds DIR | --time TARGET DIR... | TARGET [libFuzzer's options]\n";
  std::exit(2);
}

int choose(int* argc, char*** argv) {
  const std::string_view name = *argc > 1 ? (*argv)[1] : "";
  log::set_filter("error");
  if (name == "--list") {
    for (const Target& target : all_targets()) std::cout << target.name << "\n";
    std::exit(0);
  }
  if (name == "--seeds" && *argc == 3) {
    write_seeds((*argv)[2]);
    std::exit(0);
  }
  if (name == "--time" && *argc > 3) {
    chosen = find_target((*argv)[2]);
    time_inputs(std::span(*argv + 3, static_cast<std::size_t>(*argc - 3)));
    std::exit(0);
  }
  // A merge begins processes of this program with libFuzzer's options alone.
  const char* parent = ::getenv("MS_FUZZ_TARGET");
  if (name.starts_with('-') && parent != nullptr) {
    chosen = find_target(parent);
    return 0;
  }
  chosen = find_target(name);
  ::setenv("MS_FUZZ_TARGET", std::string(name).c_str(), 1);
  (*argv)[1] = (*argv)[0];
  --*argc, ++*argv;
  return 0;
}

}  // namespace

std::string put(const std::string& name, std::string_view bytes) {
  static const MemoryDirectory directory;
  const fs::path path = directory.path() / name;
  write(path, bytes);
  return path;
}

}  // namespace ms::fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) { return ms::fuzz::choose(argc, argv); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ms::fuzz::parse({reinterpret_cast<const char*>(data), size});
  return 0;
}
