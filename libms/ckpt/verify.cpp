// Implements the verification of load.h.
// Looks for everything about a checkpoint that can be wrong, file by file.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "ckpt/directory.h"
#include "ckpt/file_pool.h"
#include "ckpt/load.h"
#include "ckpt/skeleton.h"

namespace ms::ckpt {

namespace {

namespace fs = std::filesystem;

// Returns the message of a storage error from `check`; empty: no problem. Any other error is rethrown.
template <class Check>
std::string problem_of(std::atomic<bool>& unreadable, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.blame() != Blame::storage) throw;
    if (error.kind() == "ckpt.read" || error.kind() == "ckpt.write" || error.kind().starts_with("file."))
      unreadable = true;
    return error.message();
  }
  return {};
}

void add(std::vector<std::string>& problems, std::string problem) {
  if (!problem.empty()) problems.push_back(std::move(problem));
}

// Every damaged block of a file in which there is one.
std::vector<std::string> damaged_blocks(const BlockFile& file, std::atomic<bool>& unreadable) {
  std::vector<std::string> problems;
  std::byte first{};
  for (std::int64_t block = 0; block < block_count(file.size_bytes); ++block) {
    const Transfer touch{.file_offset = block * kBlockBytes, .row_bytes = 1, .to = &first};
    add(problems, problem_of(unreadable, [&] { read_blocks(file, std::span(&touch, 1), false, 1); }));
  }
  return problems;
}

std::vector<std::string> problems_of_file(const FileEntry& entry, const std::string& path, int threads,
                                          const std::function<void(std::int64_t)>& progress,
                                          std::atomic<bool>& unreadable) {
  const BlockFile file{.path = path, .size_bytes = entry.size_bytes, .hashes = entry.hashes};
  std::vector<std::string> problems;
  std::atomic<bool> missing = false;  // a file that is not there is damage: nothing refuses to read it
  std::error_code status_error;
  std::atomic<bool>& refused = fs::exists(path, status_error) || status_error ? unreadable : missing;
  add(problems, problem_of(refused, [&] { read_blocks(file, {}, true, threads, progress); }));
  if (problems.empty()) {
    add(problems, problem_of(unreadable, [&] { add(problems, structure_problem(entry, path)); }));
    return problems;
  }
  if (progress) progress(entry.size_bytes);
  std::error_code error;
  const bool whole_file = fs::is_regular_file(path, error) && !error &&
                          fs::file_size(path, error) == static_cast<std::uintmax_t>(entry.size_bytes) && !error &&
                          std::ssize(entry.hashes) == block_count(entry.size_bytes);
  if (!whole_file) return problems;
  std::vector<std::string> blocks = damaged_blocks(file, unreadable);
  return blocks.empty() ? problems : blocks;
}

// Reports entries of the directory that are neither the manifest nor listed in it.
void check_directory(const std::string& checkpoint, const Manifest& manifest, std::vector<std::string>& problems,
                     std::atomic<bool>& unreadable) {
  std::set<std::string, std::less<>> known{std::string(kManifestName)};
  for (const FileEntry& entry : manifest.files) known.insert(entry.name);
  std::set<std::string> strangers;
  std::error_code error;
  for (fs::directory_iterator at(checkpoint, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (!known.contains(name)) strangers.insert(std::move(name));
  }
  if (error) {
    problems.push_back(fmt::format("cannot list '{}': {}", checkpoint, error.message()));
    unreadable = true;
  }
  for (const std::string& name : strangers) {
    problems.push_back(fmt::format("'{}/{}' is no file of this checkpoint", checkpoint, name));
  }
}

// Every state of every parameter that is there, is there whole.
void check_parameters(const Manifest& manifest, std::vector<std::string>& problems, std::atomic<bool>& unreadable) {
  add(problems, problem_of(unreadable, [&] {
        const PieceIndex index(manifest);
        std::vector<Piece> all;
        for (const std::string& name : index.parameters()) {
          for (int state = 0; state < kStates; ++state) {
            const Piece* stored = index.find(static_cast<State>(state), name);
            if (stored == nullptr) continue;
            all.push_back({.state = stored->state,
                           .dtype = stored->dtype,
                           .slice = whole(name, stored->slice.global_rows, stored->slice.global_cols)});
          }
        }
        index.plan(all);
      }));
}

}  // namespace

std::vector<std::string> verify(const std::string& checkpoint, int threads,
                                const std::function<void(std::int64_t)>& progress, bool* unreadable_out) {
  std::error_code error;
  if (!fs::is_directory(checkpoint, error)) {
    throw user_error("ckpt.path", fmt::format("{} is not a directory; a checkpoint is one", checkpoint));
  }
  const Found found = look(checkpoint);
  if (unreadable_out != nullptr) *unreadable_out = found.unreadable;
  if (!found.manifest) return {found.problem};
  std::atomic<bool> unreadable = false;
  const Manifest& manifest = *found.manifest;
  std::vector<std::string> problems;
  check_directory(checkpoint, manifest, problems, unreadable);
  check_parameters(manifest, problems, unreadable);

  std::vector<std::int64_t> blocks;
  for (const FileEntry& entry : manifest.files)
    blocks.push_back(std::max<std::int64_t>(1, block_count(entry.size_bytes)));
  std::vector<std::vector<std::string>> of_files(manifest.files.size());
  const ProgressSum sum(progress);
  for_each_file(blocks, threads, [&](std::size_t i, int file_threads) {
    const FileEntry& entry = manifest.files[i];
    of_files[i] = problems_of_file(entry, checkpoint + "/" + entry.name, file_threads, sum.of_file(), unreadable);
  });
  for (auto& of_file : of_files) std::move(of_file.begin(), of_file.end(), std::back_inserter(problems));
  if (unreadable && unreadable_out != nullptr) *unreadable_out = true;
  return problems;
}

}  // namespace ms::ckpt
