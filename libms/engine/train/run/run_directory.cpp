#include "train/run/run_directory.h"

#include <sys/stat.h>

#include <filesystem>

#include <utility>

#include "base/lock_file.h"
#include "base/log.h"
#include "base/safe_file.h"
#include "base/user_path.h"
#include "train/run/tracing.h"

namespace ms::train {
namespace {

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

UniqueFd lock_of(const std::string& dir, std::string_view name, std::string_view key) {
  FileLock lock = lock_file(fmt::format("{}/{}", dir, name), Blame::user);
  if (!lock.holder.empty()) {
    throw user_error("run.busy", fmt::format("another run is at work in {}: {}", dir, lock.holder),
                     fmt::format("give this one another {}, or wait until that has ended", key));
  }
  if (lock.error != 0) {
    log::warn("train", "cannot lock {}, so nothing keeps a second run out of it: {}", dir, errno_text(lock.error));
  }
  return std::move(lock.fd);
}

}  // namespace

RunDirectory::RunDirectory(const Loaded& loaded, std::string nonce)
    : dir_(loaded.settings.run.dir),
      trace_dir_(trace_directory(loaded.settings)),
      resolved_(loaded.resolved),
      nonce_(std::move(nonce)) {
  if (is_there(dir_)) take();
  if (!trace_dir_.empty() && is_there(trace_dir_)) take_trace();
}

void RunDirectory::prepare() {
  // Without this, a umask of 0 would make directories that are refused.
  const mode_t before = ::umask(0);
  ::umask(before | S_IWOTH);
  if (!has_dir_) {
    make_user_directories(dir_);
    take();
  }
  if (!trace_dir_.empty() && !has_trace_dir_) {
    make_user_directories(trace_dir_);
    take_trace();
  }
  ::umask(before);
  write_user_file(dir_ + "/config.toml", resolved_);
  watch::reserve_verdict(dir_);
}

void RunDirectory::take() {
  open_run_directory(dir_, {.kind = "run.dir", .blame = Blame::user});
  lock_ = lock_of(dir_, "lock", "run.dir");
  has_dir_ = true;
  watch::begin_start(dir_, nonce_);
}

void RunDirectory::take_trace() {
  open_run_directory(trace_dir_, {.kind = "run.dir", .blame = Blame::user});
  trace_lock_ = lock_of(trace_dir_, ".lock", "trace.dir");  // hidden: ms-tracepp reads what is not
  has_trace_dir_ = true;
}

}  // namespace ms::train
