// The layouts of parity_test.cpp over eight MPI processes: the same bits as over eight threads. Each process keeps the
// elements that its rank owns; rank 0 also runs the eight threads and writes their outcome to a file, which every
// process compares with.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>

#include "comm/mpi_world.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr int kSteps = 20;

struct Case {
  const char* family;
  Layout layout;
  bool tied;
  enum { plain, waiting, everything, muon } technique = plain;  // no overlap; every technique at once; the optimizer
};

// Every factorisation of 8, and among them: chunks, both kinds of tp, each ZeRO stage, tied embeddings, both families.
// The first kByDay of them cut along every axis; all of them run by night.
const Case kCases[] = {{"gpt", {2, 2, 2, 2, true, 1}, false},
                       {"gpt", {2, 2, 2, 1, false, 2}, false},
                       {"llama", {2, 2, 2, 1, true, 0}, true},
                       {"llama", {1, 2, 4, 2, false, 1}, true},
                       {"llama", {2, 1, 4, 2, true, 1}, true, Case::waiting},
                       {"gpt", {2, 2, 2, 1, true, 1}, false, Case::everything},
                       {"llama", {4, 2, 1, 1, true, 2}, false, Case::muon},
                       {"gpt", {8, 1, 1, 1, true, 1}, false},
                       {"gpt", {1, 8, 1, 1, true, 1}, false},
                       {"gpt", {1, 1, 8, 1, true, 1}, false},
                       {"gpt", {2, 2, 2, 1, true, 0}, false},
                       {"llama", {2, 2, 2, 1, true, 1}, true},
                       {"llama", {4, 1, 2, 2, true, 2}, false},
                       {"llama", {1, 4, 2, 1, true, 1}, false},
                       {"gpt", {2, 1, 4, 2, true, 1}, false},
                       {"llama", {2, 4, 1, 1, true, 0}, false},
                       {"gpt", {4, 2, 1, 1, false, 1}, true}};
constexpr std::size_t kByDay = 7;

void save(const Outcome& outcome, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  auto put = [&](const auto* values, std::size_t count) {
    file.write(reinterpret_cast<const char*>(values), static_cast<std::streamsize>(count * sizeof *values));
  };
  put(outcome.losses.data(), outcome.losses.size());
  put(outcome.norms.data(), outcome.norms.size());
  put(&outcome.valid_loss, 1);
  for (const Matrices* matrices : {&outcome.gradients, &outcome.parameters}) {
    for (const auto& [name, matrix] : *matrices) {
      file << name << '\n' << matrix.values.size() << '\n';
      put(matrix.values.data(), matrix.values.size());
    }
    file << '\n';
  }
}

Outcome restore(const std::string& path) {
  Outcome outcome;
  std::ifstream file(path, std::ios::binary);
  auto get = [&](auto* values, std::size_t count) {
    file.read(reinterpret_cast<char*>(values), static_cast<std::streamsize>(count * sizeof *values));
  };
  outcome.losses.resize(kSteps);
  outcome.norms.resize(kSteps);
  get(outcome.losses.data(), kSteps);
  get(outcome.norms.data(), kSteps);
  get(&outcome.valid_loss, 1);
  for (Matrices* matrices : {&outcome.gradients, &outcome.parameters}) {
    for (std::string name, size; std::getline(file, name) && !name.empty();) {
      std::getline(file, size);
      Matrix& matrix = (*matrices)[name];
      matrix.values.resize(std::stoul(size));
      get(matrix.values.data(), matrix.values.size());
    }
  }
  return outcome;
}

// A process holds some elements of some parameters; the rest are zero. Every element it holds must be equal.
bool contained(const Matrices& part, const Matrices& whole) {
  for (const auto& [name, x] : part) {
    const auto it = whole.find(name);
    if (it == whole.end() || it->second.values.size() != x.values.size()) return false;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      if (x.values[i] != 0 && x.values[i] != it->second.values[i]) return false;
    }
  }
  return !part.empty();
}

int run(comm::World& world, const std::string& directory, std::size_t num_cases) {
  int failures = 0;
  int case_number = 0;
  for (const Case& run : std::span(kCases, num_cases)) {
    train::Settings settings = with(tiny_settings(run.family), run.layout);
    settings.model.tied_embeddings = run.tied;
    if (run.technique == Case::waiting) settings.overlap = {.tp = false, .pp = false, .dp = false};
    if (run.technique == Case::everything) {
      settings.overlap = {.tp = true, .pp = true, .dp = true};
      settings.model.parallel_block = true;
      settings.model.window = 5;
      settings.mesh.schedule = "zb-h1";
      settings.optim.name = "lamb";
    }
    if (run.technique == Case::muon) settings.optim.name = "muon";
    const train::Plan plan = train::make_plan(settings, world.size());
    tensor::MatmulCache matmuls;
    tensor::CpuPool pool(tensor::CpuPool::size_for(2, 1, world.size()));
    tensor::CpuDevice device(pool, matmuls);
    Outcome mine;
    run_rank(plan, world, device, kSteps, mine);
    const std::string key = "layout " + std::to_string(case_number);
    if (world.rank() == 0) {
      const std::string path = directory + "/" + std::to_string(case_number);
      save(run_threads(settings, kSteps), path);
      world.store().put(key, path);
    }
    world.store().commit();
    const Outcome threads = restore(world.store().get(0, key, std::chrono::minutes(5)));
    const bool same = mine.losses == threads.losses && mine.norms == threads.norms &&
                      mine.valid_loss == threads.valid_loss && contained(mine.gradients, threads.gradients) &&
                      contained(mine.parameters, threads.parameters);
    if (!same) {
      std::printf("rank %d: layout %d (%s %s) differs from threads\n", world.rank(), case_number, run.family,
                  run.layout.name().c_str());
      ++failures;
    }
    ++case_number;
  }
  if (world.rank() == 0) std::printf("%d layouts, the same bits over MPI as in threads\n", case_number - failures);
  return failures;
}

}  // namespace
}  // namespace ms::testing_case

// usage: ranks_parity_mpi [all]
int main(int argc, char** argv) {
  using namespace ms;  // NOLINT: a main
  char directory[] = "/tmp/ms-parity-XXXXXX";
  try {
    const std::unique_ptr<comm::World> world = comm::make_mpi_world(std::chrono::seconds(300));
    if (world->rank() == 0 && mkdtemp(directory) == nullptr) return 1;
    const bool all = argc > 1 && std::string_view(argv[1]) == "all";
    const int failures =
        testing_case::run(*world, directory, all ? std::size(testing_case::kCases) : testing_case::kByDay);
    world->close();
    if (world->rank() == 0) std::filesystem::remove_all(directory);
    return failures == 0 ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::fflush(nullptr);
    _exit(1);
  }
}
