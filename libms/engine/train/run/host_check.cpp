#include "train/run/host_check.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/text.h"
#include "train/engine/rank_tensors.h"
#include "train/engine/state.h"

namespace ms::train {

std::int64_t host_bytes(const Plan& plan) {
  std::int64_t bytes = 0;
  for (int stage = 0; stage < plan.mesh.pp; ++stage) {
    const mesh::Coord at{.dp = 0, .pp = stage, .tp = 0};  // its ranks differ in the vocabulary's padding at most
    const std::int64_t of_saving = plan.settings.checkpoint.dir.empty() ? 0 : copy_bytes(plan, at);
    bytes += plan.mesh.dp * plan.mesh.tp * (rank_memory(plan, at).total_bytes + of_saving);
  }
  return bytes;
}

namespace {

// Libraries crash where they get no memory, so a process that is this near to its limit does not start its ranks.
void check_address_space(const Plan& plan, std::int64_t needed, const HostMemory& memory) {
  constexpr std::int64_t kOfLibraries = 64 << 20;
  constexpr int kThreadsOfProcess = 6;  // main, signals, trace, two of the pool, and one to spare
  const CheckpointConfig& saving = plan.settings.checkpoint;
  const int threads_of_rank = 2 + (saving.dir.empty() ? 0 : 1) + (saving.memory_dir.empty() ? 0 : 1);
  const std::int64_t threads = kThreadsOfProcess + std::int64_t{plan.mesh.size()} * threads_of_rank;
  const std::int64_t space = needed + threads * memory.stack_bytes + kOfLibraries;
  if (!memory.address_bytes || space <= *memory.address_bytes) return;
  throw user_error(
      "train.memory",
      fmt::format("{} with {} threads take {} of address space, and 'ulimit -v' leaves this process {}",
                  plural(static_cast<std::size_t>(plan.mesh.size()), "rank"), threads,
                  format_size(static_cast<double>(space)), format_size(static_cast<double>(*memory.address_bytes))),
      "raise the limit ('ulimit -v unlimited'), or lower 'ulimit -s', the stack of a thread");
}

}  // namespace

void check_host_memory(const Plan& plan, const HostMemory& memory) {
  const std::int64_t needed = host_bytes(plan);
  check_address_space(plan, needed, memory);
  if (memory.total_bytes == 0 || needed <= memory.free_bytes) return;
  const auto size = [](std::int64_t bytes) { return format_size(static_cast<double>(bytes)); };
  const std::string what =
      fmt::format("{} take {} of memory, and this process may have {}",
                  plan.mesh.size() == 1 ? "a rank would" : fmt::format("{} ranks as threads would", plan.mesh.size()),
                  size(needed), size(memory.total_bytes));
  if (needed > memory.total_bytes) {
    throw user_error(
        "train.memory", what,
        "'ms-train plan' shows what takes it; a smaller train.microbatch and train.recompute take less, and "
        "mpirun or srun spread the ranks over nodes");
  }
  log::warn("train", "{}; {} are free now", what, size(memory.free_bytes));
}

void check_threads(int asked, int cores) {
  if (asked <= cores) return;
  log::warn("train",
            "{} compute threads (run.cpu_threads, or OMP_NUM_THREADS), but this process may use only {}: they will "
            "wait for each other",
            asked, plural(static_cast<std::size_t>(cores), "core"));
}

void check_memory_dir(const std::string& dir) {
  std::filesystem::path at = dir;  // or the directory above it that is there
  std::error_code ignored;
  while (!std::filesystem::exists(at, ignored) && at.has_relative_path()) at = at.parent_path();
  struct statfs status {};
  if (::statfs(at.empty() ? "." : at.c_str(), &status) != 0) return;  // making copies will say so
  constexpr unsigned kInMemory[] = {TMPFS_MAGIC, RAMFS_MAGIC, HUGETLBFS_MAGIC};
  if (std::ranges::count(kInMemory, static_cast<unsigned>(status.f_type)) > 0) return;
  log::warn("train",
            "checkpoint.memory_dir = '{}' is not in memory but on a disk: copies there take as long as checkpoints do; "
            "use a directory in /dev/shm",
            dir);
}

}  // namespace ms::train
