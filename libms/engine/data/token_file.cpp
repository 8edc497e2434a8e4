#include "data/token_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "data/target_mask.h"
#include "data/token_prefix.h"

namespace ms::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and are mapped as they are");

struct TokenTypeRow {
  TokenType type;
  std::string_view name;
  std::int64_t size_bytes;
};
constexpr std::array<TokenTypeRow, 8> kTokenTypes{{{TokenType::u8, "u8", 1},
                                                   {TokenType::i8, "i8", 1},
                                                   {TokenType::i16, "i16", 2},
                                                   {TokenType::i32, "i32", 4},
                                                   {TokenType::i64, "i64", 8},
                                                   {TokenType::f64, "f64", 8},
                                                   {TokenType::f32, "f32", 4},
                                                   {TokenType::u16, "u16", 2}}};

const TokenTypeRow& row(TokenType type) {
  const auto code = static_cast<std::size_t>(type);
  MS_ASSERT(code >= 1 && code <= kTokenTypes.size(), "token type {}", code);
  return kTokenTypes[code - 1];
}

constexpr std::int64_t kLengthBytes = 4;  // i32
constexpr std::int64_t kOffsetBytes = 8;  // i64, also of a document boundary
constexpr std::int8_t kTargetMode = 0, kIgnoredMode = 1;
constexpr std::int64_t kTypeAt = 17;
constexpr std::int64_t kSequencesAt = 18;
constexpr std::int64_t kBoundariesAt = 26;
constexpr std::size_t kReadBytes = std::size_t{1} << 16;
// Documents that are searched as one, so that a search of a large index touches two places of it: blocks are in memory.
constexpr std::int64_t kBlock = 256;

// The number of type T at that byte of the file.
template <class T>
T load(const MappedFile& file, std::int64_t at) {
  T value;
  file.read(static_cast<std::size_t>(at), std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

// Calls f(i, value) for `n` values of type T that lie one after the other from byte `at` on.
template <class T, class File, class F>
void for_each_value(const File& file, std::int64_t at, std::int64_t n, F&& f) {
  std::array<T, kReadBytes / sizeof(T)> values;
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t some = std::min(std::ssize(values), n - i);
    const std::span<T> now = std::span(values).first(static_cast<std::size_t>(some));
    file.read(static_cast<std::size_t>(at + i * static_cast<std::int64_t>(sizeof(T))), std::as_writable_bytes(now));
    for (const T value : now) f(i++, value);
  }
}

// Converts tokens from byte `at` on; the index of the first one that is no int32, or out.size().
template <class T>
std::int64_t convert(const TokenBytes& file, std::int64_t at, std::span<std::int32_t> out) {
  std::int64_t first_bad = std::ssize(out);
  for_each_value<T>(file, at, std::ssize(out), [&](std::int64_t i, T value) {
    bool fits = true;
    if constexpr (std::is_floating_point_v<T>) {
      // Also refuses NaN; 2^31 is exact in both types.
      fits = value >= T{-2147483648.0} && value < T{2147483648.0} && value == std::trunc(value);
    } else if constexpr (sizeof(T) > sizeof(std::int32_t)) {
      fits = value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max();
    }
    if (fits) {
      out[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(value);
    } else {
      first_bad = std::min(first_bad, i);
    }
  });
  return first_bad;
}

// The file is not damaged, but of another kind: no retry helps.
[[noreturn]] void foreign(const std::string& prefix, const std::string& what) {
  throw user_error("data.index", fmt::format("{}.idx: {}", prefix, what),
                   "ms-data encode writes token files, and so does Megatron-LM's preprocess_data.py");
}

using Convert = std::int64_t (*)(const TokenBytes&, std::int64_t, std::span<std::int32_t>);
// In the order of the codes.
constexpr std::array<Convert, 8> kConvert{convert<std::uint8_t>, convert<std::int8_t>,  convert<std::int16_t>,
                                          convert<std::int32_t>, convert<std::int64_t>, convert<double>,
                                          convert<float>,        convert<std::uint16_t>};

}  // namespace

std::string_view to_string(TokenType type) { return row(type).name; }
std::int64_t size_bytes(TokenType type) { return row(type).size_bytes; }

TokenType token_type_for_vocab(std::int64_t vocab_size) {
  constexpr std::int64_t kFirstWideVocab = 65'500;  // Megatron-LM's rule
  return vocab_size < kFirstWideVocab ? TokenType::u16 : TokenType::i32;
}

TokenFile::TokenFile(std::string prefix)
    : prefix_(checked_token_prefix(std::move(prefix))), idx_(map_token_file(prefix_ + ".idx")), bin_(prefix_ + ".bin") {
  check_header();
  check_sequences();
  num_tokens_ = static_cast<std::int64_t>(bin_.size_bytes()) / data::size_bytes(type_);
  check_documents();
}

void TokenFile::damaged(std::string what) const {
  throw Error("data.index", Blame::storage, fmt::format("{}.idx: {}", prefix_, what));
}

void TokenFile::changed() const { damaged("its documents are not those that it had when it was opened"); }

void TokenFile::check_header() {
  const auto size = static_cast<std::int64_t>(idx_.size_bytes());
  if (size < kIndexHeaderBytes)
    damaged(fmt::format("expected a header of {} bytes, found {} bytes", kIndexHeaderBytes, size));
  if (load<std::array<char, kIndexMagic.size()>>(idx_, 0) != kIndexMagic) {
    foreign(prefix_,
            "expected the magic MMIDIDX at the beginning, found something else: this is not the index of a token file");
  }
  const auto version = load<std::uint64_t>(idx_, kIndexMagic.size());
  if (version != kIndexVersion && version != kMaskedIndexVersion) {
    foreign(prefix_, fmt::format("expected version {} or {}, found {}", kIndexVersion, kMaskedIndexVersion, version));
  }
  has_mask_ = version == kMaskedIndexVersion;
  const auto code = load<std::uint8_t>(idx_, kTypeAt);
  if (code < 1 || code > kTokenTypes.size())
    foreign(prefix_, fmt::format("expected a token type of 1 to 8, found {}", code));
  type_ = static_cast<TokenType>(code);

  // Divided, not multiplied: the counts are whatever 64 bits the file holds.
  const auto sequences = load<std::uint64_t>(idx_, kSequencesAt);
  const auto boundaries = load<std::uint64_t>(idx_, kBoundariesAt);
  const auto body = static_cast<std::uint64_t>(size - kIndexHeaderBytes);
  constexpr std::uint64_t kSequenceBytes = kLengthBytes + kOffsetBytes;
  if (sequences > body / kSequenceBytes || boundaries > (body - sequences * kSequenceBytes) / kOffsetBytes) {
    damaged(fmt::format(
        "{} sequences and {} document boundaries do not fit the {} bytes of the file: it was cut or damaged", sequences,
        boundaries, size));
  }
  const std::uint64_t rest = body - sequences * kSequenceBytes - boundaries * kOffsetBytes;
  if ((rest != 0 || has_mask_) && rest != sequences) {
    damaged(fmt::format("{} sequences and {} document boundaries leave {} of its {} bytes unexplained", sequences,
                        boundaries, rest, size));
  }
  if (sequences == 0 || boundaries < 2) {
    damaged(fmt::format("expected at least one document, found {} sequences and {} document boundaries", sequences,
                        boundaries));
  }
  num_sequences_ = static_cast<std::int64_t>(sequences);
  num_documents_ = static_cast<std::int64_t>(boundaries) - 1;
}

void TokenFile::check_sequences() {
  const auto bin_bytes = static_cast<std::int64_t>(bin_.size_bytes());
  const std::int64_t token_bytes = data::size_bytes(type_);
  std::int64_t expected = 0;  // at most bin_bytes, so the sum below cannot overflow
  constexpr std::int64_t kSome = kReadBytes / kOffsetBytes;
  std::vector<std::int32_t> lengths(kSome);
  for_each_value<std::int64_t>(idx_, offsets_at(), num_sequences_, [&](std::int64_t i, std::int64_t offset) {
    if (i % kSome == 0) {
      lengths.resize(static_cast<std::size_t>(std::min(kSome, num_sequences_ - i)));
      idx_.read(static_cast<std::size_t>(lengths_at() + i * kLengthBytes), std::as_writable_bytes(std::span(lengths)));
    }
    const std::int32_t length = lengths[static_cast<std::size_t>(i % kSome)];
    if (length < 0) damaged(fmt::format("sequence {} has {} tokens", i, length));
    if (offset != expected) {
      damaged(fmt::format("sequence {} begins at byte {} of the .bin, expected {}, where the one before it ends", i,
                          offset, expected));
    }
    expected += length * token_bytes;
    if (expected > bin_bytes) {
      damaged(
          fmt::format("sequence {} ends at byte {}, but {}.bin has {} bytes: it was cut, or belongs to another index",
                      i, expected, prefix_, bin_bytes));
    }
  });
  if (expected != bin_bytes) {
    damaged(fmt::format("its sequences end at byte {}, but {}.bin has {} bytes: it belongs to another index", expected,
                        prefix_, bin_bytes));
  }
  if (expected == 0) damaged("expected tokens, found only empty sequences");
  num_targets_ = expected / token_bytes;
  if (!has_mask_) return;
  for_each_value<std::int8_t>(idx_, modes_at(), num_sequences_, [&](std::int64_t i, std::int8_t mode) {
    if (mode != kTargetMode && mode != kIgnoredMode)
      damaged(fmt::format("sequence {} has the mode {}, expected {} or {}", i, mode, kTargetMode, kIgnoredMode));
    if (mode == kIgnoredMode) num_targets_ -= load<std::int32_t>(idx_, lengths_at() + i * kLengthBytes);
  });
}

void TokenFile::check_documents() {
  std::int64_t last = 0;
  for_each_value<std::int64_t>(idx_, boundaries_at(), num_documents_ + 1, [&](std::int64_t i, std::int64_t boundary) {
    if (boundary < last || boundary > num_sequences_ || (i == 0 && boundary != 0)) {
      damaged(fmt::format("document {} begins at sequence {}, expected {} to {}", i, boundary, last,
                          i == 0 ? 0 : num_sequences_));
    }
    last = boundary;
    if (i % kBlock == 0 && i < num_documents_)
      blocks_.push_back(boundary == num_sequences_ ? num_tokens_ : sequence(boundary).begin);
  });
  if (last != num_sequences_)
    damaged(fmt::format("the documents end at sequence {}, expected {}", last, num_sequences_));
}

std::int64_t TokenFile::lengths_at() const { return kIndexHeaderBytes; }
std::int64_t TokenFile::offsets_at() const { return lengths_at() + num_sequences_ * kLengthBytes; }
std::int64_t TokenFile::boundaries_at() const { return offsets_at() + num_sequences_ * kOffsetBytes; }
std::int64_t TokenFile::modes_at() const { return boundaries_at() + (num_documents_ + 1) * kOffsetBytes; }

TokenRange TokenFile::sequence(std::int64_t i) const {
  MS_ASSERT(i >= 0 && i < num_sequences_, "sequence {} of {}", i, num_sequences_);
  const std::int64_t begin = load<std::int64_t>(idx_, offsets_at() + i * kOffsetBytes) / data::size_bytes(type_);
  return {begin, begin + load<std::int32_t>(idx_, lengths_at() + i * kLengthBytes)};
}

TokenRange TokenFile::document(std::int64_t i) const {
  MS_ASSERT(i >= 0 && i < num_documents_, "document {} of {}", i, num_documents_);
  const auto start_token = [&](std::int64_t boundary) {
    const auto first = load<std::int64_t>(idx_, boundaries_at() + boundary * kOffsetBytes);
    return first == num_sequences_ ? num_tokens_ : sequence(first).begin;
  };
  return {start_token(i), start_token(i + 1)};
}

std::int64_t TokenFile::document_of(std::int64_t token) const {
  MS_ASSERT(token >= 0 && token < num_tokens_, "token {} of {}", token, num_tokens_);
  const std::int64_t block = block_of(token);
  const std::vector<std::int64_t> begins = begins_of(block);
  return block * kBlock + (std::ranges::upper_bound(begins, token) - begins.begin()) - 1;
}

// Returns the last sequence that begins no later.
std::int64_t TokenFile::sequence_of(std::int64_t token) const {
  std::int64_t first = 0, last = num_sequences_ - 1;
  while (first < last) {
    const std::int64_t middle = last - (last - first) / 2;
    if (sequence(middle).begin <= token) {
      first = middle;
    } else {
      last = middle - 1;
    }
  }
  return first;
}

std::vector<TokenRange> TokenFile::ignored(const TokenRange& tokens) const {
  std::vector<TokenRange> found;
  if (!has_mask_ || tokens.size() <= 0) return found;
  for (std::int64_t i = sequence_of(tokens.begin); i < num_sequences_; ++i) {
    const TokenRange all = sequence(i);
    if (all.begin >= tokens.end) break;
    const TokenRange within{std::max(all.begin, tokens.begin), std::min(all.end, tokens.end)};
    if (within.size() > 0 && load<std::int8_t>(idx_, modes_at() + i) == kIgnoredMode) found.push_back(within);
  }
  return found;
}

std::int64_t TokenFile::count_targets(const TokenRange& tokens) const {
  std::int64_t count = tokens.size();
  for (const TokenRange& range : ignored(tokens)) count -= range.size();
  return count;
}

std::string TokenFile::mask_hash() const {
  Hasher hasher;
  for_each_value<std::int8_t>(idx_, modes_at(), has_mask_ ? num_sequences_ : 0, [&](std::int64_t, std::int8_t mode) {
    hasher.update(std::as_bytes(std::span(&mode, 1)));
  });
  return hash_hex(hasher.digest());
}

void TokenFile::mark_ignored(std::int64_t begin, std::span<std::int32_t> tokens) const {
  for (const TokenRange& range : ignored({begin, begin + std::ssize(tokens)})) {
    ignore_targets(
        tokens.subspan(static_cast<std::size_t>(range.begin - begin), static_cast<std::size_t>(range.size())));
  }
}

// Returns the last block whose first document begins no later.
std::int64_t TokenFile::block_of(std::int64_t token) const {
  return std::ranges::upper_bound(blocks_, token) - blocks_.begin() - 1;
}

// Returns where each document of a block begins.
std::vector<std::int64_t> TokenFile::begins_of(std::int64_t block) const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(std::min(kBlock, num_documents_ - block * kBlock)));
  idx_.read(static_cast<std::size_t>(boundaries_at() + block * kBlock * kOffsetBytes),
            std::as_writable_bytes(std::span(values)));
  const std::int64_t first = std::clamp<std::int64_t>(values.front(), 0, num_sequences_ - 1);
  const std::int64_t last = std::clamp(values.back(), first, num_sequences_ - 1);
  constexpr std::int64_t kMost = kReadBytes / kOffsetBytes;
  // Where documents have dozens of sequences each, theirs are read one by one.
  std::vector<std::int64_t> offsets(last - first < kMost ? static_cast<std::size_t>(last - first + 1) : 0);
  if (!offsets.empty()) {
    idx_.read(static_cast<std::size_t>(offsets_at() + first * kOffsetBytes),
              std::as_writable_bytes(std::span(offsets)));
  }
  for (std::int64_t& value : values) {
    if (value == num_sequences_) {
      value = num_tokens_;
    } else if (value < first || value > last) {
      changed();
    } else if (offsets.empty()) {
      value = load<std::int64_t>(idx_, offsets_at() + value * kOffsetBytes) / data::size_bytes(type_);
    } else {
      value = offsets[static_cast<std::size_t>(value - first)] / data::size_bytes(type_);
    }
  }
  const std::int64_t most =
      block + 1 < std::ssize(blocks_) ? blocks_[static_cast<std::size_t>(block) + 1] : num_tokens_;
  const bool are_sound = values.front() == blocks_[static_cast<std::size_t>(block)] && values.back() <= most &&
                         std::ranges::is_sorted(values);
  if (!are_sound) changed();
  return values;
}

std::vector<std::int64_t> TokenFile::document_begins(const TokenRange& tokens) const {
  MS_ASSERT(tokens.begin >= 0 && tokens.begin < tokens.end && tokens.end <= num_tokens_, "tokens {} to {} of {}",
            tokens.begin, tokens.end, num_tokens_);
  std::vector<std::int64_t> found;
  for (std::int64_t block = block_of(tokens.begin);
       block < std::ssize(blocks_) && blocks_[static_cast<std::size_t>(block)] < tokens.end; ++block) {
    const std::vector<std::int64_t> begins = begins_of(block);
    const auto from = found.empty() ? std::ranges::upper_bound(begins, tokens.begin) - 1 : begins.begin();
    found.insert(found.end(), from, std::ranges::lower_bound(begins, tokens.end));
  }
  return found;
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto n = static_cast<std::int64_t>(out.size());
  MS_ASSERT(begin >= 0 && begin <= num_tokens_ && n <= num_tokens_ - begin, "tokens {} + {} of {}", begin, n,
            num_tokens_);
  const Convert convert_tokens = kConvert[static_cast<std::size_t>(type_) - 1];
  const std::int64_t done = convert_tokens(bin_, begin * data::size_bytes(type_), out);
  if (done != n) {
    throw Error("data.token", Blame::storage,
                fmt::format("{}.bin: the {} at token position {} is not a 32-bit integer", prefix_, to_string(type_),
                            begin + done));
  }
}

void TokenFile::will_need(std::int64_t begin, std::int64_t count) const {
  const std::int64_t token_bytes = data::size_bytes(type_);
  bin_.will_need(static_cast<std::size_t>(begin * token_bytes), static_cast<std::size_t>(count * token_bytes));
}

}  // namespace ms::data
