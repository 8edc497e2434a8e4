// The kinds of errors that can end a run, as verdict.json and the driver's ledger name them, each with what it means
// and what to do. ms-train explain and ms-exit(7) print the table; tests/lint/error_kinds.py compares it with the
// sources.
#pragma once

#include <span>
#include <string_view>

namespace ms {

struct ErrorKindRow {
  std::string_view kind;     // as Error::kind()
  std::string_view meaning;  // sentences: what happened, then what to do
};

std::span<const ErrorKindRow> error_kinds();  // sorted by kind

}  // namespace ms
