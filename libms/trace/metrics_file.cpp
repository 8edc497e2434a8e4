#include "trace/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.h"

namespace ms::trace {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw Error("file.write", Blame::storage, fmt::format("{} {}: {}", what, path, errno_text(errno)));
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path) : path_(path) {
  if (std::rename(path.c_str(), (path + ".previous").c_str()) != 0 && errno != ENOENT) fail(path, "cannot set aside");
  file_ = UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!file_) fail(path, "cannot create");
}

void MetricsFile::write(std::string_view line) {
  std::string text(line);
  text += '\n';
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t count = ::write(file_.get(), rest.data(), rest.size());
    if (count < 0 && errno != EINTR) fail(path_, "cannot write to");
    if (count > 0) rest.remove_prefix(static_cast<std::size_t>(count));
  }
}

void MetricsFile::close() {
  if (fsync(file_.get()) != 0 && errno != EINVAL) fail(path_, "cannot sync");
  file_.close();
}

}  // namespace ms::trace
