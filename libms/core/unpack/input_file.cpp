#include "unpack/input_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace ms::unpack {
namespace {

constexpr std::size_t kPackedBytes = 1 << 18;
constexpr std::size_t kPieceBytes = 1 << 20;

}  // namespace

InputFile::InputFile(std::string path)
    : path_(std::move(path)),
      fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)),
      packed_(kPackedBytes),
      text_(kPieceBytes) {
  if (!fd_) throw user_error("data.input", fmt::format("cannot open {}: {}", path_, errno_text(errno)));
  while (packed_end_ < kPackedMagicBytes) {  // a pipe may give a byte at a time
    const std::size_t count = read_packed();
    if (count == 0) break;
    packed_end_ += count;
  }
  unpacker_ = unpacker_of({packed_.data(), packed_end_});
}

void InputFile::failed(Blame blame, std::string_view why) const {
  throw Error("data.input", blame, fmt::format("cannot read {}: {}", path_, why));
}

std::size_t InputFile::read_packed() {
  for (;;) {
    const ssize_t count = ::read(fd_.get(), packed_.data() + packed_end_, packed_.size() - packed_end_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) failed(Blame::storage, errno_text(errno));
    position_bytes_ += count;
    return static_cast<std::size_t>(count);
  }
}

std::size_t InputFile::fill(std::span<char> to) {
  if (packed_at_ == packed_end_) {
    packed_at_ = packed_end_ = 0;
    packed_end_ = read_packed();
  }
  const bool at_end = packed_end_ == 0;
  const std::span<const char> from(packed_.data() + packed_at_, packed_end_ - packed_at_);
  Unpacker::Step step;
  if (unpacker_) {
    step = unpacker_->unpack(from, to);
    if (!unpacker_->problem().empty()) failed(Blame::user, unpacker_->problem());
    const bool stuck = step.taken == 0 && step.made == 0;
    if (stuck && !at_end) failed(Blame::user, "compressed data is damaged");
    if (stuck && !unpacker_->complete()) failed(Blame::user, "compressed data is cut off");
    ended_ = stuck;
  } else {
    step.taken = step.made = std::min(from.size(), to.size());
    std::copy_n(from.data(), step.made, to.data());
    ended_ = at_end;
  }
  packed_at_ += step.taken;
  return step.made;
}

std::string_view InputFile::next() {
  std::size_t size = 0;
  while (size < text_.size() && !ended_) size += fill(std::span(text_).subspan(size));
  return {text_.data(), size};
}

void InputFile::skip(std::int64_t text_bytes) {
  if (!unpacker_) {
    // The rest of what was read comes first.
    const std::int64_t here = std::min(text_bytes, static_cast<std::int64_t>(packed_end_ - packed_at_));
    packed_at_ += static_cast<std::size_t>(here);
    text_bytes -= here;
    if (text_bytes > 0 && ::lseek(fd_.get(), text_bytes, SEEK_CUR) >= 0) {
      position_bytes_ += text_bytes;
      return;
    }
  }
  while (text_bytes > 0 && !ended_) {
    text_bytes -= static_cast<std::int64_t>(
        fill(std::span(text_).first(static_cast<std::size_t>(std::min<std::int64_t>(text_bytes, std::ssize(text_))))));
  }
}

}  // namespace ms::unpack
