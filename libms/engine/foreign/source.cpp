#include "foreign/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace ms::foreign {
namespace {

Error cannot_read(const std::string& path, const std::string& why) {
  return Error("ckpt.read", Blame::storage, fmt::format("cannot read '{}': {}", path, why));
}

}  // namespace

Source::Source(std::string path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (!fd_ || ::fstat(fd_.get(), &status) != 0) throw cannot_read(path_, errno_text(errno));
  if (!S_ISREG(status.st_mode)) throw cannot_read(path_, "it is not a regular file");
  size_bytes_ = status.st_size;
}

void Source::read(std::int64_t at, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t n = ::pread(fd_.get(), to.data(), to.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw cannot_read(path_, errno_text(errno));
    if (n == 0) throw Error("file.cut", Blame::storage, fmt::format("'{}' ends at byte {}", path_, at));
    to = to.subspan(static_cast<std::size_t>(n));
    at += n;
  }
}

std::string Source::text(std::int64_t at, std::int64_t size_bytes) const {
  std::string bytes(static_cast<std::size_t>(size_bytes), '\0');
  read(at, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace ms::foreign
