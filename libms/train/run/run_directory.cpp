#include "train/run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"

namespace ms::train {

RunDirectory::RunDirectory(const Loaded& loaded) : dir_(loaded.settings.run.dir), resolved_(loaded.resolved) {
  if (access(dir_.c_str(), F_OK) == 0) take();
}

void RunDirectory::prepare() {
  if (!lock_) {
    make_directories(dir_);
    take();
  }
  write_file_atomic(dir_ + "/config.toml", resolved_);
}

void RunDirectory::take() {
  const std::string path = dir_ + "/lock";
  lock_ = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_) throw Error("file.open", Blame::storage, fmt::format("cannot open {}: {}", path, errno_text(errno)));
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw user_error("run.busy", fmt::format("another run is at work in {}", dir_), "give this one another run.dir");
  }
  watch::clear_verdict(dir_);
}

}  // namespace ms::train
