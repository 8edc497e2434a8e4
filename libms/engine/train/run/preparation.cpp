#include "train/run/preparation.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/user_path.h"
#include "train/engine/rank_tensors.h"
#include "train/simulate/step_operations.h"

namespace ms::train {
namespace {

constexpr std::string_view kKey = "matmul choices";

using tensor::MatmulChoices;

// Those of a library; without algorithms where there are none.
MatmulChoices of_library(const std::vector<MatmulChoices>& all, const std::string& library) {
  const auto at = std::ranges::find(all, library, &MatmulChoices::library);
  return at == all.end() ? MatmulChoices{.library = library, .algorithms = {}} : *at;
}
std::vector<MatmulChoices> choices_in(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return {};
  return MatmulChoices::parse(read_file(path), path);
}
// Puts choices in place of those of the same library.
void add_to(const std::string& path, const MatmulChoices& choices) {
  std::string text = choices.to_text();
  for (const MatmulChoices& other : choices_in(path))
    if (other.library != choices.library) text += other.to_text();
  write_user_file(path, text);
}

// A value of the store has a limit, and a file grows with every layout.
void publish(comm::Store& store, const std::string& text) {
  constexpr std::size_t kPart = comm::kMaxStoreValueBytes / 2;
  const std::size_t parts = (text.size() + kPart - 1) / kPart;
  store.put(kKey, std::to_string(parts));
  for (std::size_t i = 0; i < parts; ++i) store.put(fmt::format("{} {}", kKey, i), text.substr(i * kPart, kPart));
  store.commit();
}
std::string published(comm::Store& store, int rank, std::chrono::milliseconds deadline) {
  std::string text;
  const auto parts = std::stoul(store.get(rank, kKey, deadline));
  for (std::size_t i = 0; i < parts; ++i) text += store.get(rank, fmt::format("{} {}", kKey, i), deadline);
  return text;
}

}  // namespace

Preparation::Preparation(const Plan& plan, comm::World& world, tensor::Device& device,
                         std::chrono::milliseconds deadline)
    : device_(device) {
  if (device.kind() != "cuda") return;
  ops_ = operations_of_step(plan, world.ranks_on_node(), world.rank());
  check_memory(plan, world, device_.prepare(ops_, choices_, false));  // before anybody waits for what is timed
  if (plan.settings.run.matmul_choices.empty()) return;
  choose(plan, world, deadline);
  device_.prepare(ops_, choices_, false);
}

// Ranks of a pipeline stage compute the same forms, but for those of the matrices that Muon gives each. The first rank
// of each times what those of the stages before have not; all take what the last one knows.
void Preparation::choose(const Plan& plan, comm::World& world, std::chrono::milliseconds deadline) {
  const std::string& path = plan.settings.run.matmul_choices;
  const std::string library = choices_.library;  // as the device has said
  const auto leader = [&](int stage) { return plan.mesh.rank({.dp = 0, .pp = stage, .tp = 0}); };
  const auto told_by = [&](int stage) {  // each stage has its time
    const std::string text = published(world.store(), leader(stage), deadline * (stage + 1));
    return of_library(MatmulChoices::parse(text, "another rank's message"), library);
  };
  const int stage = plan.mesh.coord(world.rank()).pp, last = plan.mesh.pp - 1;
  MatmulChoices known;
  if (world.rank() == leader(stage)) {
    choices_ = known = stage == 0 ? of_library(choices_in(path), library) : told_by(stage - 1);
    device_.prepare(ops_, choices_, true);
    if (choices_ != known) {
      log::info("train", "{} of GEMMs timed", plural(choices_.algorithms.size() - known.algorithms.size(), "form"));
    }
    publish(world.store(), choices_.to_text());
  }
  choices_ = told_by(last);
  if (world.rank() == 0 && choices_ != known) add_to(path, choices_);
}

void Preparation::check_memory(const Plan& plan, comm::World& world, std::int64_t scratch_bytes) const {
  const tensor::DeviceMemory memory = device_.memory();
  const std::int64_t tensors = rank_memory(plan, plan.mesh.coord(world.rank())).total_bytes;
  const auto size = [](std::int64_t bytes) { return format_size(static_cast<double>(bytes)); };
  if (world.rank() == 0) {
    log::info("train", "a rank takes {} of its GPU, and operations up to another {}; {} of {} are free", size(tensors),
              size(scratch_bytes), size(memory.free_bytes), size(memory.total_bytes));
  }
  if (memory.free_bytes >= tensors + scratch_bytes) return;
  throw user_error(
      "tensor.memory",
      fmt::format("out of memory: {} of the GPU's {} are free, and this rank takes {} for its tensors and up to {} for "
                  "operations",
                  size(memory.free_bytes), size(memory.total_bytes), size(tensors), size(scratch_bytes)),
      "'ms-train plan' lists its tensors; more ranks, a smaller train.microbatch or train.recompute reduce them");
}

void Preparation::take(const std::string& choices) {
  if (ops_.empty() || choices.empty()) return;
  std::vector<MatmulChoices> saved = MatmulChoices::parse(choices, "the checkpoint");
  if (saved.empty() || saved.front().library != choices_.library) {
    log::warn("train", "the checkpoint's GEMM algorithms are for {}, and this is {}: they are not used",
              saved.empty() ? "nothing" : saved.front().library, choices_.library);
    return;
  }
  saved.front().algorithms.insert(choices_.algorithms.begin(), choices_.algorithms.end());
  choices_ = saved.front();
  device_.prepare(ops_, choices_, false);
}

}  // namespace ms::train
