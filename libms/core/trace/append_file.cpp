#include "trace/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/safe_file.h"
#include "base/system_error.h"

namespace ms::trace {
namespace {

[[noreturn]] void append_failed(const std::string& path, const char* what) {
  const int err = errno;
  throw system_error("file.write", Blame::storage, fmt::format("{} {}: {}", what, path, errno_text(err)), err);
}

}  // namespace

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  ToWrite file = open_to_write(AT_FDCWD, path_, O_APPEND, 0644);
  if (!file.fd) {
    throw system_error("file.write", Blame::storage, fmt::format("cannot create {}: {}", path_, file.why), file.error);
  }
  file_ = std::move(file.fd);
}

void AppendFile::write(std::string_view record) {
  const off_t before = lseek(file_.get(), 0, SEEK_END);
  while (!record.empty()) {
    const ssize_t count = ::write(file_.get(), record.data(), record.size());
    if (count < 0 && errno != EINTR) {
      const int err = errno;
      // So that the next record, when there is room again, follows a whole one.
      if (before >= 0) static_cast<void>(ftruncate(file_.get(), before) == 0);
      errno = err;
      append_failed(path_, "cannot write to");
    }
    if (count > 0) record.remove_prefix(static_cast<std::size_t>(count));
  }
}

void AppendFile::close() {
  if (fsync(file_.get()) != 0 && errno != EINVAL) append_failed(path_, "cannot sync");
  file_.close();
}

}  // namespace ms::trace
