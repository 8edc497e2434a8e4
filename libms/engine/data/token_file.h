// Token files: PREFIX.bin holds raw tokens, PREFIX.idx says where sequences and documents are, both in the
// little-endian layout of Megatron-LM's indexed datasets. TokenFile maps both and checks every number of the index
// before it is used, so that a damaged file is an error and never a wild read. Loaders and ms-data read through it; any
// thread may. PREFIX may be an object's, "s3://BUCKET/KEY": then the index is copied into the cache of objects, and
// tokens are fetched as they are read (cached_object.h).
//
//   .idx  9 bytes "MMIDIDX\0\0", u64 version = 1, u8 token type, u64 sequences S, u64 boundaries D (documents + 1),
//         i32[S] tokens of each sequence, i64[S] byte offset of each in .bin, i64[D] first sequence of each document,
//         the first 0 and the last S, and optionally i8[S] modes, which are accepted and not used.
//
// Version 2 is ours, for files with a loss mask: it always has the modes, 0 for a sequence whose tokens are targets and
// 1 for one that the loss ignores. Readers that know no masks refuse the version.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/token_bytes.h"

namespace ms::data {

// As the .idx codes them.
enum class TokenType : std::uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, f64 = 6, f32 = 7, u16 = 8 };

std::string_view to_string(TokenType type);
std::int64_t size_bytes(TokenType type);
// Returns the type that a file of this vocabulary is written in: u16 below 65,500 ids, else i32.
TokenType token_type_for_vocab(std::int64_t vocab_size);

inline constexpr std::array<char, 9> kIndexMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr std::uint64_t kIndexVersion = 1, kMaskedIndexVersion = 2;
inline constexpr std::int64_t kIndexHeaderBytes = 34;

// A half-open range of token positions in the concatenated stream of a file.
struct TokenRange {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t size() const { return end - begin; }
};

class TokenFile {
 public:
  // Opens PREFIX.idx and PREFIX.bin and checks the index against itself and against the size of .bin, in O(sequences).
  // A file that is not there is Error("file.*", user); one of another magic, version or token type is
  // Error("data.index", user), anything damaged or cut Error("data.index", storage). Sequences must follow one another
  // in .bin without gaps, as every known writer leaves them: that makes nearly any flipped bit in an index visible. Of
  // objects also the errors of CachedObject, as of read().
  explicit TokenFile(std::string prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  std::int64_t num_tokens() const { return num_tokens_; }
  std::int64_t num_sequences() const { return num_sequences_; }
  std::int64_t num_documents() const { return num_documents_; }
  std::int64_t size_bytes() const { return num_tokens_ * data::size_bytes(type_); }

  // Whether the loss ignores tokens as targets.
  bool has_mask() const { return has_mask_; }
  // The ranges within `tokens` that the loss ignores, in order.
  std::vector<TokenRange> ignored(const TokenRange& tokens) const;
  std::int64_t count_targets(const TokenRange& tokens) const;
  std::int64_t num_targets() const { return num_targets_; }
  // A hash of the modes of all sequences, of nothing without a mask. Reads them.
  std::string mask_hash() const;

  // Where sequence or document i lies in the token stream.
  TokenRange sequence(std::int64_t i) const;
  TokenRange document(std::int64_t i) const;
  // The document that a token belongs to.
  std::int64_t document_of(std::int64_t token) const;
  // Where the documents of tokens [begin, end) begin, in order: the first where `begin`'s does. Two reads of the index,
  // as a rule: quick enough for every sample of a step.
  std::vector<std::int64_t> document_begins(const TokenRange& tokens) const;

  // Copies tokens [begin, begin + out.size()) of the stream; the range must lie in the file. A token that is no integer
  // of 32 bits (a float file can hold one) is Error("data.token", storage); a file that was cut since it was opened is
  // Error("file.cut", storage), here and wherever the index is asked.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;
  // Marks tokens that were read from `begin` on, as target_mask.h says.
  void mark_ignored(std::int64_t begin, std::span<std::int32_t> tokens) const;
  // Asks the storage for `count` tokens that read() will want, and does not wait for them.
  void will_need(std::int64_t begin, std::int64_t count) const;

 private:
  void check_header();
  void check_sequences();
  void check_documents();
  std::int64_t sequence_of(std::int64_t token) const;
  std::int64_t block_of(std::int64_t token) const;
  std::vector<std::int64_t> begins_of(std::int64_t block) const;
  std::int64_t lengths_at() const;     // bytes into .idx, as are the next two
  std::int64_t offsets_at() const;     // of sequences
  std::int64_t boundaries_at() const;  // of documents
  std::int64_t modes_at() const;       // of sequences, where there are any
  [[noreturn]] void damaged(std::string what) const;
  [[noreturn]] void changed() const;

  std::string prefix_;
  MappedFile idx_;
  TokenBytes bin_;
  TokenType type_ = TokenType::u16;
  bool has_mask_ = false;
  std::int64_t num_sequences_ = 0;
  std::int64_t num_documents_ = 0;
  std::int64_t num_tokens_ = 0, num_targets_ = 0;
  std::vector<std::int64_t> blocks_;  // where the first document of each block begins
};

}  // namespace ms::data
