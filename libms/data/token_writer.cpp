#include "data/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/user_path.h"

namespace ms::data {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::uint32_t kContinues = std::uint32_t{1} << 31;
constexpr std::int64_t kMaxSequenceTokens = std::numeric_limits<std::int32_t>::max();

std::string checked_prefix(std::string prefix) {
  if (prefix.empty() || prefix.ends_with('/')) {
    throw user_error("data.output", fmt::format("'{}' is not the prefix of a file", prefix));
  }
  if (prefix.ends_with(".bin") || prefix.ends_with(".idx")) {
    throw user_error("data.output", fmt::format("'{}' is a file, expected the prefix of a pair of files", prefix),
                     fmt::format("use '{}'", prefix.substr(0, prefix.size() - 4)));
  }
  return prefix;
}

}  // namespace

PendingFile::PendingFile(std::string path)
    : path_(std::move(path)),
      temporary_path_(fmt::format("{}.tmp-{}", path_, ::getpid())),
      fd_(::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!fd_) {
    const int err = errno;
    throw Error("file.write", is_wrong_path(err) ? Blame::user : Blame::storage,
                fmt::format("cannot create {}: {}", path_, errno_text(err)),
                err == ENOENT ? "the directory must exist" : "");
  }
  buffer_.reserve(kBufferBytes);
}

PendingFile::~PendingFile() {
  if (!published_) ::unlink(temporary_path_.c_str());
}

void PendingFile::failed(const char* operation) const {
  const int err = errno;
  throw Error("file.write", Blame::storage, fmt::format("cannot {} {}: {}", operation, path_, errno_text(err)));
}

void PendingFile::write(const void* data, std::size_t size_bytes) {
  const char* from = static_cast<const char*>(data);
  while (size_bytes > 0) {
    if (buffer_.size() == kBufferBytes) flush();
    const std::size_t part = std::min(size_bytes, kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), from, from + part);
    from += part;
    size_bytes -= part;
  }
}

void PendingFile::flush() {
  for (std::size_t done = 0; done < buffer_.size();) {
    const ssize_t n = ::write(fd_.get(), buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno != EINTR) failed("write");
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  buffer_.clear();
}

void PendingFile::truncate(std::int64_t size_bytes) {
  flush();
  if (::ftruncate(fd_.get(), size_bytes) != 0) failed("truncate");
  if (::lseek(fd_.get(), size_bytes, SEEK_SET) < 0) failed("seek in");
}

void PendingFile::sync() {
  flush();
  if (::fsync(fd_.get()) != 0) failed("sync");
  fd_.close();
}

void PendingFile::publish() {
  rename_synced(temporary_path_, path_);
  published_ = true;
}

TokenWriter::TokenWriter(std::string prefix, TokenType type)
    : prefix_(checked_prefix(std::move(prefix))), type_(type), bin_(prefix_ + ".bin"), idx_(prefix_ + ".idx") {
  MS_ASSERT(type == TokenType::u16 || type == TokenType::i32, "token files are written as u16 or i32, not {}",
            to_string(type));
}

void TokenWriter::append(std::span<const std::int32_t> tokens) {
  const std::int32_t last_id =
      type_ == TokenType::u16 ? std::numeric_limits<std::uint16_t>::max() : std::numeric_limits<std::int32_t>::max();
  for (const std::int32_t id : tokens)
    MS_ASSERT(id >= 0 && id <= last_id, "token {} does not fit {}", id, to_string(type_));
  if (type_ == TokenType::u16) {
    std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
    bin_.write(narrow.data(), narrow.size() * sizeof narrow[0]);
  } else {
    bin_.write(tokens.data(), tokens.size_bytes());
  }
  num_tokens_ += static_cast<std::int64_t>(tokens.size());
}

void TokenWriter::end_document() {
  MS_ASSERT(num_tokens_ > document_begin_, "document {} is empty", num_documents_);
  std::uint32_t flag = 0;
  for (std::int64_t rest = num_tokens_ - document_begin_; rest > 0; flag = kContinues) {
    const std::int64_t part = std::min(rest, kMaxSequenceTokens);
    sequences_.push_back(static_cast<std::uint32_t>(part) | flag);
    rest -= part;
  }
  document_begin_ = num_tokens_;
  ++num_documents_;
}

TokenWriter::Mark TokenWriter::mark() const {
  MS_ASSERT(num_tokens_ == document_begin_, "a mark inside document {}", num_documents_);
  return {sequences_.size(), num_tokens_, num_documents_};
}

void TokenWriter::rollback(const Mark& mark) {
  bin_.truncate(mark.num_tokens * data::size_bytes(type_));
  sequences_.resize(mark.num_sequences);
  num_tokens_ = document_begin_ = mark.num_tokens;
  num_documents_ = mark.num_documents;
}

void TokenWriter::write_index() {
  const auto put = [&](auto value) { idx_.write(&value, sizeof value); };
  idx_.write(kIndexMagic.data(), kIndexMagic.size());
  put(kIndexVersion);
  put(static_cast<std::uint8_t>(type_));
  put(static_cast<std::uint64_t>(sequences_.size()));
  put(static_cast<std::uint64_t>(num_documents_) + 1);
  for (const std::uint32_t sequence : sequences_) put(static_cast<std::int32_t>(sequence & ~kContinues));
  std::int64_t offset = 0;
  for (const std::uint32_t sequence : sequences_) {
    put(offset);
    offset += std::int64_t{sequence & ~kContinues} * data::size_bytes(type_);
  }
  std::int64_t index = 0;
  for (const std::uint32_t sequence : sequences_) {
    if ((sequence & kContinues) == 0) put(index);
    ++index;
  }
  put(index);
}

void TokenWriter::commit() {
  MS_ASSERT(num_tokens_ == document_begin_, "document {} was not ended", num_documents_);
  if (num_documents_ == 0) throw user_error("data.empty", fmt::format("there is no document to write to {}", prefix_));
  write_index();
  bin_.sync();
  idx_.sync();
  const std::string old_idx = prefix_ + ".idx";
  if (::unlink(old_idx.c_str()) != 0 && errno != ENOENT) {
    const int err = errno;
    throw Error("file.write", Blame::storage, fmt::format("cannot replace {}: {}", old_idx, errno_text(err)));
  }
  bin_.publish();
  try {
    idx_.publish();
  } catch (const Error&) {  // a .bin without its .idx is half a result: take it back, then fail
    ::unlink((prefix_ + ".bin").c_str());
    throw;
  }
}

}  // namespace ms::data
