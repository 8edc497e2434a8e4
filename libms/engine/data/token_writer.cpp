#include "data/token_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/note.h"
#include "data/object_store.h"
#include "data/target_mask.h"

namespace ms::data {
namespace {

constexpr std::uint32_t kContinues = std::uint32_t{1} << 31;
constexpr std::uint32_t kIgnored = std::uint32_t{1} << 30;
constexpr std::uint32_t kLength = kIgnored - 1;
constexpr std::int64_t kSavedBytes = sizeof(std::uint32_t);  // of a sequence
constexpr std::int64_t kMaxSequenceTokens = kLength;

std::string checked_prefix(std::string prefix) {
  check_prefix(prefix);
  return prefix;
}

std::string saved_path(const std::string& prefix) { return prefix + ".sequences"; }

}  // namespace

void check_prefix(const std::string& prefix) {
  if (is_object(prefix)) {
    throw user_error("data.output", fmt::format("'{}' is in an object store, which is only read", prefix),
                     "name a local --output, and copy its files there");
  }
  if (prefix.empty() || prefix.ends_with('/')) {
    throw user_error("data.output", fmt::format("'{}' is not the prefix of a file", prefix),
                     fmt::format("add a name: {}NAME makes {}NAME.bin and {}NAME.idx", prefix, prefix, prefix));
  }
  if (prefix.ends_with(".bin") || prefix.ends_with(".idx")) {
    throw user_error("data.output", fmt::format("'{}' is a file, expected the prefix of a pair of files", prefix),
                     fmt::format("use '{}'", prefix.substr(0, prefix.size() - 4)));
  }
}

void refuse_existing(const std::string& prefix) {
  for (const char* suffix : {".bin", ".idx"}) {
    if (::access((prefix + suffix).c_str(), F_OK) != 0) continue;
    throw user_error("data.output", fmt::format("{}{} already exists", prefix, suffix),
                     "name another --output, or replace it with --force");
  }
}

TokenWriter::TokenWriter(std::string prefix, TokenType type, bool goes_on)
    : prefix_(checked_prefix(std::move(prefix))), type_(type), bin_(prefix_ + ".bin") {
  MS_ASSERT(type == TokenType::u16 || type == TokenType::i32, "token files are written as u16 or i32, not {}",
            to_string(type));
  if (!goes_on) restart();
}

TokenWriter::~TokenWriter() = default;

void TokenWriter::append(std::span<const std::int32_t> tokens) {
  std::vector<std::int32_t> ids;
  while (!tokens.empty()) {
    const bool is_ignored = tokens.front() < 0;
    const auto end = std::ranges::find_if(tokens, [&](std::int32_t token) { return (token < 0) != is_ignored; });
    const auto run = tokens.first(static_cast<std::size_t>(end - tokens.begin()));
    tokens = tokens.subspan(run.size());
    if (is_ignored) {
      ids.assign(run.begin(), run.end());
      remove_marks(ids);
    }
    append_run(is_ignored ? ids : run, is_ignored);
  }
}

void TokenWriter::append_run(std::span<const std::int32_t> tokens, bool is_ignored) {
  if (is_ignored != is_ignored_) end_sequence();
  is_ignored_ = is_ignored;
  // The largest id of either type has all its bits set.
  const std::uint32_t last_id =
      type_ == TokenType::u16 ? std::numeric_limits<std::uint16_t>::max() : std::numeric_limits<std::int32_t>::max();
  std::uint32_t bits = 0;
  for (const std::int32_t id : tokens) bits |= static_cast<std::uint32_t>(id);
  MS_ASSERT((bits & ~last_id) == 0, "tokens do not fit {}", to_string(type_));
  if (type_ == TokenType::u16) {
    narrow_.assign(tokens.begin(), tokens.end());
    bin_.write(narrow_.data(), narrow_.size() * sizeof narrow_[0]);
  } else {
    bin_.write(tokens.data(), tokens.size_bytes());
  }
  num_tokens_ += static_cast<std::int64_t>(tokens.size());
}

void TokenWriter::end_sequence() {
  while (sequence_begin_ < num_tokens_) {
    const std::int64_t part = std::min(num_tokens_ - sequence_begin_, kMaxSequenceTokens);
    sequences_.push_back(static_cast<std::uint32_t>(part) | (is_ignored_ ? kIgnored : 0) |
                         (sequence_begin_ > document_begin_ ? kContinues : 0));
    sequence_begin_ += part;
  }
}

void TokenWriter::end_document() {
  MS_ASSERT(num_tokens_ > document_begin_, "document {} is empty", num_documents_);
  end_sequence();
  document_begin_ = num_tokens_;
  ++num_documents_;
}

TokenWriter::Mark TokenWriter::mark() const { return {std::ssize(sequences_), num_tokens_, num_documents_}; }

void TokenWriter::rollback(const Mark& mark) {
  bin_.truncate(mark.num_tokens * data::size_bytes(type_));
  sequences_.resize(static_cast<std::size_t>(mark.num_sequences));
  const std::int64_t saved_bytes = mark.num_sequences * kSavedBytes;
  if (saved_ && saved_->size_bytes() > saved_bytes) saved_->truncate(saved_bytes);
  num_tokens_ = document_begin_ = sequence_begin_ = mark.num_tokens;
  num_documents_ = mark.num_documents;
}

void TokenWriter::save() {
  if (!saved_) {
    saved_.emplace(saved_path(prefix_));
    saved_->truncate(0);
  }
  const auto done = static_cast<std::size_t>(saved_->size_bytes() / kSavedBytes);
  saved_->write(sequences_.data() + done, (sequences_.size() - done) * sizeof sequences_[0]);
  bin_.sync();
  saved_->sync();
  bin_.keep(true);
  saved_->keep(true);
}

bool TokenWriter::resume(const Mark& mark) {
  saved_.emplace(saved_path(prefix_));
  const std::int64_t saved_bytes = mark.num_sequences * kSavedBytes, bin_bytes = mark.num_tokens * size_bytes(type_);
  if (mark.num_sequences < 0 || mark.num_tokens < 0 || saved_->size_bytes() < saved_bytes ||
      bin_.size_bytes() < bin_bytes) {
    restart();
    return false;
  }
  saved_->truncate(saved_bytes);
  bin_.truncate(bin_bytes);
  sequences_.resize(static_cast<std::size_t>(mark.num_sequences));
  const std::string saved = saved_->read();
  if (!saved.empty()) std::memcpy(sequences_.data(), saved.data(), saved.size());
  for (const std::uint32_t sequence : sequences_) {
    document_begin_ += sequence & kLength;
    num_documents_ += (sequence & kContinues) == 0 ? 1 : 0;
  }
  sequence_begin_ = document_begin_;
  num_tokens_ = mark.num_tokens;
  if (num_documents_ != mark.num_documents || document_begin_ > num_tokens_) {
    restart();
    return false;
  }
  bin_.keep(true);
  saved_->keep(true);
  return true;
}

void TokenWriter::restart() {
  bin_.truncate(0);
  bin_.keep(false);
  if (saved_) saved_->keep(false);
  saved_.reset();
  sequences_.clear();
  num_tokens_ = num_documents_ = document_begin_ = sequence_begin_ = 0;
  is_ignored_ = false;
}

std::int64_t TokenWriter::num_targets() const {
  std::int64_t count = 0;
  for (const std::uint32_t sequence : sequences_) count += (sequence & kIgnored) == 0 ? sequence & kLength : 0;
  return count;
}

// Returns the mode of each sequence; empty: the file has no mask.
std::vector<std::int8_t> TokenWriter::modes() const {
  std::vector<std::int8_t> modes;
  for (const std::uint32_t sequence : sequences_) modes.push_back((sequence & kIgnored) != 0 ? 1 : 0);
  if (std::ranges::find(modes, 1) == modes.end()) modes.clear();
  return modes;
}

void TokenWriter::write_index(std::span<const std::int8_t> modes) {
  idx_.emplace(prefix_ + ".idx");
  idx_->truncate(0);
  const auto put = [&](auto value) { idx_->write(&value, sizeof value); };
  idx_->write(kIndexMagic.data(), kIndexMagic.size());
  put(modes.empty() ? kIndexVersion : kMaskedIndexVersion);
  put(static_cast<std::uint8_t>(type_));
  put(static_cast<std::uint64_t>(sequences_.size()));
  put(static_cast<std::uint64_t>(num_documents_) + 1);
  for (const std::uint32_t sequence : sequences_) put(static_cast<std::int32_t>(sequence & kLength));
  std::int64_t offset = 0;
  for (const std::uint32_t sequence : sequences_) {
    put(offset);
    offset += std::int64_t{sequence & kLength} * data::size_bytes(type_);
  }
  std::int64_t index = 0;
  for (const std::uint32_t sequence : sequences_) {
    if ((sequence & kContinues) == 0) put(index);
    ++index;
  }
  put(index);
  idx_->write(modes.data(), modes.size());
}

void TokenWriter::finish(Json note) {
  MS_ASSERT(!inside_document(), "document {} was not ended", num_documents_);
  if (num_documents_ == 0) {
    throw user_error(
        "data.empty", fmt::format("no document to write to {}", prefix_),
        "the files are empty, no text, or all of their lines were skipped: give plain text in UTF-8, or JSON Lines");
  }
  const std::vector<std::int8_t> modes = this->modes();
  write_index(modes);
  if (!note.is_null()) {
    note["targets"] = num_targets();
    note["mask_hash"] = hash_hex(xxh64(std::as_bytes(std::span(modes))));
    const std::string text = note.dump(2) + "\n";
    note_.emplace(note_path(prefix_));
    note_->truncate(0);
    note_->write(text.data(), text.size());
    note_->sync();
  }
  bin_.sync();
  idx_->sync();
}

void TokenWriter::publish() {
  for (const std::string& old : {prefix_ + ".idx", note_path(prefix_)}) {
    if (::unlink(old.c_str()) == 0 || errno == ENOENT) continue;
    const int err = errno;
    throw Error("file.write", Blame::storage, fmt::format("cannot replace {}: {}", old, errno_text(err)));
  }
  try {
    bin_.publish();
    if (note_) note_->publish();
    idx_->publish();
  } catch (const Error&) {  // a .bin without its .idx is half a result: take it back, then fail
    if (note_) note_->withdraw();
    bin_.withdraw();
    throw;
  }
  if (saved_) saved_->keep(false);
  saved_.reset();
}

}  // namespace ms::data
