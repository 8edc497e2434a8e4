// Verifies checkpoints and repairs a directory of them: it deletes the remains of killed saves and deletions, and sets
// aside committed checkpoints that do not verify as damaged, so that no run tries them. ms-ckpt repair calls it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/directory.h"

namespace ms::ckpt {

// The result of reading all of a checkpoint.
struct Verified {
  std::string path;
  std::int64_t step = 0;
  std::int64_t size_bytes = 0;
  std::vector<std::string> problems = {};  // none: sound; proofs of damage come first
  bool unreadable = false;  // all problems only say that the system refused to read: nobody knows whether it is damaged
};
// Runs verify() and adds the problems that names and sizes show: an uncommitted checkpoint is not sound either. One
// that was set to damaged is judged by its data.
Verified examine(const Found& found, int threads, const std::function<void(std::int64_t)>& progress = {});

struct RepairOptions {
  bool dry_run = false;  // only say what would be done
  bool verify = false;   // read all data of complete checkpoints; otherwise only names, manifests and sizes count
  int threads = 2;
  std::function<void(std::int64_t)> progress = {};  // bytes read so far, over all checkpoints; from several threads
};

enum class Remedy : std::uint8_t { removed, set_to_damaged, committed };
std::string_view to_string(Remedy remedy);

struct Repair {
  std::string path;
  Remedy remedy = Remedy::removed;
  std::vector<std::string> reasons;
  std::string now = {};  // its path afterwards, where it has one and this was no dry run
};

// Left as it is: nobody knows what is in it.
struct Unreadable {
  std::string path;
  std::vector<std::string> reasons;
};

struct RepairReport {
  bool dry_run = false;
  std::vector<Repair> repairs = {};
  std::vector<Unreadable> unreadable = {};
  std::int64_t verified = 0;              // complete checkpoints whose data was read and is sound
  std::optional<Found> resume_from = {};  // what a run will resume from, after the repairs
};

// Takes the directory's lock, and with that is refused while a run works there; a dry run looks without it.
// Error("ckpt.version", user), and nothing is changed, where one is of a newer format than this program knows.
RepairReport repair(const std::string& dir, const RepairOptions& options);

}  // namespace ms::ckpt
