#include "tracepp/export/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <limits>

#include "base/error.h"
#include "base/file.h"

namespace ms::tracepp {

struct ExportFile::Gzip {
  // Level 1: a trace has the same words again and again, which even that finds.
  explicit Gzip(int level = 1) {
    MS_ASSERT(::deflateInit2(&stream, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK,
              "zlib is not the one that was compiled for");
  }
  ~Gzip() { ::deflateEnd(&stream); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  ::z_stream stream{};
  std::string packed;
};

ExportFile::ExportFile(const std::string& path) : path_(path) {
  text_.reserve(kTextBytes + (kTextBytes >> 2));
  if (path == "-") {
    fd_ = ::dup(STDOUT_FILENO);
    if (fd_ < 0) throw user_error("file.create", fmt::format("cannot write standard output: {}", errno_text(errno)));
    return;
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    // A device, or a pipe that somebody reads: no file may take its place.
    fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) throw user_error("file.create", fmt::format("cannot write {}: {}", path, errno_text(errno)));
  }
  for (int attempt = 0; fd_ < 0; ++attempt) {  // others may write the same file
    temporary_ = fmt::format("{}.tmp.{}.{}", path, ::getpid(), attempt);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) {
      throw user_error("file.create", fmt::format("cannot write {}: {}", path, errno_text(errno)));
    }
  }
  if (path.ends_with(".gz")) gzip_ = std::make_unique<Gzip>();
}

ExportFile::~ExportFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void ExportFile::write_bytes(std::string_view bytes) {
  while (!bytes.empty()) {
    const ::ssize_t count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error("file.write", Blame::storage,
                  fmt::format("cannot write {}: {}", path_ == "-" ? "standard output" : path_, errno_text(errno)));
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void ExportFile::write() {
  if (gzip_ == nullptr) {
    write_bytes(text_);
  } else {
    ::z_stream& stream = gzip_->stream;
    gzip_->packed.resize(::deflateBound(&stream, static_cast<uLong>(text_.size())));
    stream.next_in = reinterpret_cast<Bytef*>(text_.data());
    stream.avail_in = static_cast<uInt>(text_.size());
    stream.next_out = reinterpret_cast<Bytef*>(gzip_->packed.data());
    stream.avail_out = static_cast<uInt>(gzip_->packed.size());
    ::deflate(&stream, Z_NO_FLUSH);
    write_bytes({gzip_->packed.data(), gzip_->packed.size() - stream.avail_out});
  }
  text_.clear();
}

void ExportFile::commit() {
  write();
  if (gzip_ != nullptr) {
    ::z_stream& stream = gzip_->stream;
    gzip_->packed.resize(1 << 16);
    int code = Z_OK;
    while (code == Z_OK || code == Z_BUF_ERROR) {
      stream.next_out = reinterpret_cast<Bytef*>(gzip_->packed.data());
      stream.avail_out = static_cast<uInt>(gzip_->packed.size());
      code = ::deflate(&stream, Z_FINISH);
      write_bytes({gzip_->packed.data(), gzip_->packed.size() - stream.avail_out});
    }
  }
  if (!temporary_.empty()) {
    if (::fsync(fd_) != 0) {
      throw Error("file.sync", Blame::storage, fmt::format("cannot write {}: {}", temporary_, errno_text(errno)));
    }
    rename_synced(temporary_, path_);
  }
  ::close(fd_);
  fd_ = -1;
}

std::string gzip(std::string_view bytes) {
  constexpr int kSmall = 6;  // a file that people keep and send
  ExportFile::Gzip gzip(kSmall);
  MS_ASSERT(bytes.size() <= std::numeric_limits<uInt>::max(), "{} bytes are too many at once", bytes.size());
  gzip.packed.resize(::deflateBound(&gzip.stream, static_cast<uLong>(bytes.size())));
  gzip.stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
  gzip.stream.avail_in = static_cast<uInt>(bytes.size());
  gzip.stream.next_out = reinterpret_cast<Bytef*>(gzip.packed.data());
  gzip.stream.avail_out = static_cast<uInt>(gzip.packed.size());
  MS_ASSERT(::deflate(&gzip.stream, Z_FINISH) == Z_STREAM_END, "deflateBound is enough for all");
  return gzip.packed.substr(0, gzip.stream.total_out);
}

}  // namespace ms::tracepp
