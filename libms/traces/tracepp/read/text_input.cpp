#include "tracepp/read/text_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

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
  while (packed_end_ < unpack::kPackedMagicBytes) {
    const std::size_t count = read_file(std::span(packed_).subspan(packed_end_));
    if (count == 0) break;
    packed_end_ += count;
  }
  unpacker_ = unpack::unpacker_of({packed_.data(), packed_end_});
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
  const auto end = [&](std::string_view why) {
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
      const unpack::Unpacker::Step step =
          unpacker_->unpack({packed_.data() + packed_at_, packed_end_ - packed_at_}, room);
      packed_at_ += step.taken;
      count = step.made;
      unpacked_bytes_ += static_cast<std::int64_t>(count);
      const bool stuck = step.taken == 0 && step.made == 0;
      if (unpacked_bytes_ > kAlwaysBytes && unpacked_bytes_ / kMostRatio > position_bytes_) {
        end("compressed data that grows beyond all measure");
      } else if (!unpacker_->problem().empty()) {
        end(unpacker_->problem());
      } else if (stuck && !at_end) {
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
