#include "tracepp/read/text_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kPackedBytes = 1 << 18;
constexpr std::size_t kFirstBytes = 1 << 12;  // enough to see what it is
// Text beyond this size and this ratio to its packed size was made to exhaust the memory. Traces that repeat themselves
// all the time reach a ratio of 75.
constexpr std::int64_t kAlwaysBytes = 64 << 20, kMostRatio = 100;

class Gunzip final : public TextInput::Unpacker {
 public:
  Gunzip() { MS_ASSERT(::inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK, "zlib is not the one that was compiled for"); }
  ~Gunzip() override { ::inflateEnd(&stream_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  Step unpack(std::span<const char> from, std::span<char> to) override {
    // A gzip member is followed by another one or by padding with zeros, which is skipped.
    if (between_ && !from.empty()) {
      if (from[0] == 0) {
        const auto* const first =
            std::ranges::find_if(from.data(), from.data() + from.size(), [](char c) { return c; });
        return {.taken = static_cast<std::size_t>(first - from.data()), .made = 0};
      }
      ::inflateReset(&stream_);
      between_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));  // zlib's interface; it only reads
    stream_.avail_in = static_cast<uInt>(from.size());
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(to.size(), 1 << 30));
    const uInt room = stream_.avail_out;
    const int code = ::inflate(&stream_, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      between_ = true;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      failed_ = true;
    }
    return {.taken = from.size() - stream_.avail_in, .made = room - stream_.avail_out};
  }
  bool failed() const override { return failed_; }
  bool complete() const override { return between_; }

 private:
  ::z_stream stream_{};
  bool between_ = false, failed_ = false;
};

struct ZstdTraits {
  using Type = ::ZSTD_DStream*;
  static constexpr Type null() { return nullptr; }
  static void destroy(Type stream) noexcept { ::ZSTD_freeDStream(stream); }
};

class Unzstd final : public TextInput::Unpacker {
 public:
  Step unpack(std::span<const char> from, std::span<char> to) override {
    ::ZSTD_inBuffer in{from.data(), from.size(), 0};
    ::ZSTD_outBuffer out{to.data(), to.size(), 0};
    const std::size_t left = ::ZSTD_decompressStream(stream_.get(), &out, &in);
    failed_ = ::ZSTD_isError(left) != 0;
    if (in.pos > 0 || out.pos > 0) complete_ = left == 0;  // without either it hints at a next frame
    return {.taken = in.pos, .made = out.pos};
  }
  bool failed() const override { return failed_; }
  bool complete() const override { return complete_; }

 private:
  Handle<ZstdTraits> stream_{::ZSTD_createDStream()};
  bool complete_ = false, failed_ = false;
};

std::unique_ptr<TextInput::Unpacker> unpacker_of(std::string_view beginning) {
  if (beginning.starts_with("\x1f\x8b")) return std::make_unique<Gunzip>();
  if (beginning.starts_with("\x28\xb5\x2f\xfd")) return std::make_unique<Unzstd>();
  return nullptr;
}

}  // namespace

TextInput::TextInput(const std::string& path, std::int64_t max_bytes) : path_(path), left_bytes_(max_bytes) {
  fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd_) throw user_error("file.open", fmt::format("cannot open {}: {}", path, errno_text(errno)));
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) {
    throw Error("file.read", Blame::storage, fmt::format("cannot read {}: {}", path, errno_text(errno)));
  }
  size_bytes_ = status.st_size;
  modified_ns_ = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  packed_.resize(kFirstBytes);
  while (packed_end_ < 4) {
    const std::size_t count = read_file(std::span(packed_).subspan(packed_end_));
    if (count == 0) break;
    packed_end_ += count;
  }
  unpacker_ = unpacker_of({packed_.data(), packed_end_});
  if (unpacker_) packed_.resize(kPackedBytes);
}

TextInput::TextInput(const TextInput& file, std::string text)
    : path_(file.path_), modified_ns_(file.modified_ns_), ahead_(std::move(text)), ended_(true) {
  size_bytes_ = position_bytes_ = static_cast<std::int64_t>(ahead_.size());
}

TextInput::~TextInput() = default;

std::string_view TextInput::peek(std::size_t bytes) {
  const std::size_t had = ahead_.size() - ahead_at_;
  if (had < bytes) {
    ahead_.erase(0, ahead_at_);
    ahead_at_ = 0;
    ahead_.resize(bytes);
    ahead_.resize(had + read_text(std::span(ahead_).subspan(had)));
  }
  return std::string_view(ahead_).substr(ahead_at_, bytes);
}

std::size_t TextInput::read(std::span<char> to) {
  const std::size_t count = ahead_.copy(to.data(), to.size(), ahead_at_);
  ahead_at_ += count;
  return count == to.size() ? count : count + read_text(to.subspan(count));
}

std::size_t TextInput::read_text(std::span<char> to) {
  std::size_t made = 0;
  const auto end = [&](const char* why) {
    ended_ = true;
    trouble_ = why;
  };
  while (made < to.size() && !ended_) {
    if (left_bytes_ <= 0) {
      end("file is larger than the limit");
      break;
    }
    const auto room = to.subspan(made, std::min(to.size() - made, static_cast<std::size_t>(left_bytes_)));
    std::size_t count = 0;
    if (unpacker_ == nullptr && packed_at_ == packed_end_) {
      count = read_file(room);  // straight to where it is wanted
      if (count == 0) end("");
    } else if (unpacker_ == nullptr) {
      count = std::min(room.size(), packed_end_ - packed_at_);
      std::memcpy(room.data(), packed_.data() + packed_at_, count);
      packed_at_ += count;
    } else {
      if (packed_at_ == packed_end_) {
        packed_at_ = 0;
        packed_end_ = read_file(packed_);
      }
      const bool at_end = packed_at_ == packed_end_;
      const Unpacker::Step step = unpacker_->unpack({packed_.data() + packed_at_, packed_end_ - packed_at_}, room);
      packed_at_ += step.taken;
      count = step.made;
      unpacked_bytes_ += static_cast<std::int64_t>(count);
      const bool stuck = step.taken == 0 && step.made == 0;
      if (unpacked_bytes_ > kAlwaysBytes && unpacked_bytes_ / kMostRatio > position_bytes_) {
        end("compressed data that grows beyond all measure");
      } else if (unpacker_->failed() || (stuck && !at_end)) {
        end("compressed data is damaged");
      } else if (stuck) {
        end(unpacker_->complete() ? "" : "compressed data is cut off");
      }
    }
    made += count;
    left_bytes_ -= static_cast<std::int64_t>(count);
  }
  return made;
}

std::size_t TextInput::read_file(std::span<char> to) {
  for (;;) {
    const ::ssize_t count = ::read(fd_.get(), to.data(), to.size());
    if (count >= 0) {
      position_bytes_ += count;
      return static_cast<std::size_t>(count);
    }
    if (errno == EINTR) continue;
    throw Error("file.read", errno == EISDIR ? Blame::user : Blame::storage,
                fmt::format("cannot read {}: {}", path_, errno_text(errno)));
  }
}

}  // namespace ms::tracepp
