// The facts that the ranks of a run know of its data without opening it: the loader of rank 0 tells them to all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/loader.h"

namespace ms::data {

struct DataFacts {
  static constexpr std::int64_t kPromptTokens = 32;

  std::string fingerprint;  // Loader::fingerprint()
  std::int64_t num_validation_samples = 0;
  bool has_mask = false;             // Loader::has_mask()
  std::vector<std::int32_t> prompt;  // the first tokens of a sample, of the validation where there is one

  bool operator==(const DataFacts&) const = default;
  std::string text() const;
  static DataFacts parse(std::string_view text);  // what text() returned
};
DataFacts facts_of(const Loader& loader);

}  // namespace ms::data
