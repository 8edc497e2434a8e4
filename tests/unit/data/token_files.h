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

}  // namespace ms::data
