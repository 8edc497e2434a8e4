// The libFuzzer program of all targets: "ms_fuzz TARGET [libFuzzer's options]", "ms_fuzz --list" names them, and
// "ms_fuzz --seeds DIR" writes the seeds and the dictionary of each.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/error.h"
#include "base/log.h"
#include "target.h"

namespace ms::fuzz {
namespace {

namespace fs = std::filesystem;

const Target* chosen = nullptr;

std::vector<Target> all_targets() {
  std::vector<Target> all;
  for (const auto& targets : {text_targets(), file_targets(), trace_targets(), tokenizer_targets()})
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

int choose(int* argc, char*** argv) {
  const std::vector<Target> all = all_targets();
  const std::string_view name = *argc > 1 ? (*argv)[1] : "";
  if (name == "--list") {
    for (const Target& target : all) std::cout << target.name << "\n";
    std::exit(0);
  }
  if (name == "--seeds" && *argc == 3) {
    write_seeds((*argv)[2]);
    std::exit(0);
  }
  for (const Target& target : all)
    if (target.name == name) chosen = new Target(target);
  if (chosen == nullptr) {
    std::cerr << "usage: ms_fuzz --list | --seeds DIR | TARGET [libFuzzer's options]\n";
    std::exit(2);
  }
  (*argv)[1] = (*argv)[0];
  --*argc, ++*argv;
  log::set_filter("error");
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
  try {
    ms::fuzz::chosen->parse({reinterpret_cast<const char*>(data), size});
  } catch (const ms::Error&) {}  // a refusal
  return 0;
}
