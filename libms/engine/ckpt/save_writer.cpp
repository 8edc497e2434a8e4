#include "ckpt/save_writer.h"

#include <pthread.h>

#include <filesystem>
#include <utility>

#include "base/log.h"
#include "base/unexpected.h"
#include "ckpt/blocks.h"
#include "ckpt/directory.h"

namespace ms::ckpt {
namespace {

// The trampoline: what a job throws becomes a value.
std::optional<Error> failure_of(const std::function<void()>& function) {
  try {
    function();
    return std::nullopt;
  } catch (const Error& error) { return error; } catch (const std::exception& error) {
    return error_of(error, "ckpt.save");
  }
}

// The kernel hands out a page when it is first written, and that takes longer than copying into it: better now than
// during the first save. The image is still empty.
void touch_pages(std::span<std::byte> image, const std::stop_token& stop) {
  for (std::size_t at = 0; at < image.size(); at += kPageBytes) {
    if (at % kBlockBytes == 0 && stop.stop_requested()) return;
    image[at] = std::byte{0};
  }
}

}  // namespace

SaveWriter::SaveWriter(Options options, std::vector<Piece> pieces, std::span<std::byte> image)
    : options_(std::move(options)),
      dir_(options_.dir),
      pieces_(std::move(pieces)),
      image_(image),
      thread_([this](const std::stop_token& stop) { run(stop); }) {
  if (pieces_.empty()) return;
  post([this](const std::stop_token& stop) {
    touch_pages(image_, stop);
    if (!stop.stop_requested()) make_skeleton();
  });
}

void SaveWriter::run(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "ms-ckpt");
  const log::RankScope scope(options_.rank);
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return job_ != nullptr; }) || stop.stop_requested()) return;
      job = std::exchange(job_, nullptr);
    }
    job(stop);
    result_.ended = std::chrono::steady_clock::now();
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
    }
    changed_.notify_all();
  }
}

void SaveWriter::post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    MS_ASSERT(!busy_, "a job for a writer that has one");
    job_ = std::move(job);
    busy_ = true;
  }
  changed_.notify_all();
}

bool SaveWriter::busy() const {
  const std::lock_guard lock(mutex_);
  return busy_;
}

void SaveWriter::wait_for(std::chrono::milliseconds at_most) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] { return !busy_; });
}

const SaveWriter::Result& SaveWriter::result() const {
  MS_ASSERT(!busy(), "the result of a job that is not done");
  return result_;
}

std::string SaveWriter::directory(std::int64_t step) const {
  return fmt::format("{}/saving-{}", options_.dir, step_name(step));
}

// ---- the skeleton ---------------------------------------------------------------------------------------------------

void SaveWriter::make_skeleton() {
  skeleton_failure_ = failure_of([&] { file_.emplace(pieces_, image_, options_.dir); });
}

const FileWriter* SaveWriter::file() {
  if (pieces_.empty()) return nullptr;
  for (int attempt = 0; attempt < 2; ++attempt) {
    while (busy()) wait_for(std::chrono::seconds(1));
    if (file_) return &*file_;
    if (attempt == 0) post([this](const std::stop_token&) { make_skeleton(); });
  }
  return nullptr;
}

// ---- a save ---------------------------------------------------------------------------------------------------------

void SaveWriter::fail(const Error& error) {
  result_.failed = true;
  result_.problem = error.hint().empty() ? error.message() : fmt::format("{}; {}", error.message(), error.hint());
}

void SaveWriter::write(std::int64_t step, std::function<void()> await_copied) {
  post([this, step, await_copied = std::move(await_copied)](const std::stop_token& stop) {
    result_ = {};
    if (const auto error = failure_of(await_copied)) return fail(*error);
    if (const auto error = failure_of([&] { write_file(step, stop); })) fail(*error);
  });
}

// The directory is made by whoever comes first. Nobody deletes it while a rank may be on its way into it: rank 0 does
// that only when all have written or given up, and the save is not over before.
void SaveWriter::write_file(std::int64_t step, const std::stop_token& stop) {
  if (pieces_.empty() && options_.rank != 0) return;
  if (skeleton_failure_) throw *skeleton_failure_;
  // Not the directories above it: where those are gone, so is the file system.
  const Directory to = open_save(dir_, step);
  if (pieces_.empty()) return;
  WriteReport report;
  const FileEntry entry = file_->write(to, rank_file_name(options_.rank), stop, &report);
  result_.entry = {entry_to_json(entry), entry.size_bytes};
  result_.write_s = report.seconds;
  result_.cpu_s = report.cpu_seconds;
}

void SaveWriter::commit(Manifest manifest, std::function<std::vector<RankEntry>()> entries) {
  post([this, manifest = std::move(manifest), entries = std::move(entries)](const std::stop_token& stop) {
    std::vector<RankEntry> gathered;
    if (const auto error = failure_of([&] { gathered = entries(); })) return fail(*error);
    if (stop.stop_requested()) return;
    if (const auto error = failure_of([&] { check_and_commit(manifest, gathered); })) {
      fail(*error);
      return ckpt::abandon(dir_, manifest.step);
    }
    // The save has succeeded, whatever becomes of the old ones.
    if (const auto error = failure_of([&] { prune(); })) {
      log::warn("ckpt", "old checkpoints in {} are not deleted: {}", options_.dir, error->message());
    }
  });
}

void SaveWriter::check_and_commit(const Manifest& manifest, const std::vector<RankEntry>& entries) {
  std::vector<std::string> files;
  for (std::size_t rank = 0; rank < entries.size(); ++rank) {
    if (entries[rank].json.empty()) continue;
    // Seen from here: what another node wrote may be on a disk of its own.
    const std::string path = directory(manifest.step) + "/" + rank_file_name(static_cast<int>(rank));
    std::error_code code;
    const std::uintmax_t size = std::filesystem::file_size(path, code);
    if (code) {
      throw Error("ckpt.write", Blame::storage,
                  fmt::format("rank {} has written {}, but rank 0 finds: {}", rank, path, code.message()),
                  "the directory must be on a file system that all nodes share");
    }
    if (size != static_cast<std::uintmax_t>(entries[rank].size_bytes)) {
      throw Error("ckpt.write", Blame::storage,
                  fmt::format("{} has {} of {} bytes", path, size, entries[rank].size_bytes));
    }
    files.push_back(entries[rank].json);
  }
  result_.set_aside = ckpt::commit(dir_, manifest.step, to_json(manifest, files));
  if (!first_committed_) first_committed_ = manifest.step;
}

void SaveWriter::prune() {
  if (options_.keep_last <= 0) return;
  PrunePolicy policy{.keep_last = options_.keep_last, .keep_every = options_.keep_every};
  if (options_.resumed_from >= 0) {
    policy.passed_over_after = options_.resumed_from;
    policy.passed_over_before = *first_committed_;
  }
  for (const Found& old : to_prune(list_names(options_.dir), policy)) {
    if (remove_checkpoint(dir_, old.step)) result_.pruned.push_back(old.path);
  }
}

void SaveWriter::abandon(std::int64_t step) {
  post([this, step](const std::stop_token&) { ckpt::abandon(dir_, step); });
}

}  // namespace ms::ckpt
