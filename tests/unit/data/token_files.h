// Token files for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/token_writer.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::data {

using test::slurp;
using test::spill;
using test::TempDir;
using test::thrown_by;

inline void write_tokens(const std::string& prefix, const std::vector<std::vector<std::int32_t>>& documents,
                         TokenType type = TokenType::u16) {
  TokenWriter writer(prefix, type);
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.commit();
}

// Bytes of a little-endian integer, written out here so that a test does not share code with what it tests.
inline std::string le(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
  return text;
}

// An .idx of sequences of these lengths, and of documents that begin with these.
inline std::string index_of(const std::vector<std::int32_t>& lengths, const std::vector<std::int64_t>& documents,
                            int code, int token_bytes) {
  std::string idx =
      std::string("MMIDIDX\0\0", 9) + le(1, 8) + le(code, 1) + le(lengths.size(), 8) + le(documents.size(), 8);
  for (const std::int32_t length : lengths) idx += le(static_cast<std::uint32_t>(length), 4);
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths) {
    idx += le(static_cast<std::uint64_t>(offset), 8);
    offset += std::int64_t{length} * token_bytes;
  }
  for (const std::int64_t document : documents) idx += le(static_cast<std::uint64_t>(document), 8);
  return idx;
}

}  // namespace ms::data
