#include "data/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace ms::data {
namespace {

// Returns the problem with all entries of `train`, or of `valid`, taken together; nullopt if there is none.
std::optional<std::string> entries_problem(const std::vector<std::string>& entries, bool weights_allowed) {
  std::size_t num_weighted = 0;
  for (const std::string& entry : entries) num_weighted += parse_source(entry).weight > 0 ? 1 : 0;
  if (num_weighted > 0 && !weights_allowed) return "validation files take no weights: all of them are read evenly";
  if (num_weighted > 0 && num_weighted < entries.size()) return "either every training file has a weight, or none";
  return std::nullopt;
}

}  // namespace

DataSource parse_source(std::string_view entry) {
  const std::string_view text = trim(entry);
  DataSource source{.prefix = std::string(text)};
  const std::size_t space = text.find(' ');
  if (space != std::string_view::npos) {
    const std::string_view word = text.substr(0, space);
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), source.weight);
    if (error == std::errc() && end == word.data() + word.size()) {
      if (!std::isfinite(source.weight) || source.weight <= 0) {
        throw user_error("data.source", fmt::format("the weight of '{}' is not above 0", text));
      }
      source.prefix = std::string(trim(text.substr(space)));
    } else {
      source.weight = 0;  // a path with a space in it
    }
  }
  if (source.prefix.empty()) throw user_error("data.source", fmt::format("'{}' names no token file", entry));
  if (source.prefix.ends_with(".bin") || source.prefix.ends_with(".idx")) {
    throw user_error("data.source",
                     fmt::format("'{}' is a file, expected the prefix of a pair of files", source.prefix),
                     fmt::format("use '{}'", source.prefix.substr(0, source.prefix.size() - 4)));
  }
  return source;
}

void validate(const DataConfig& config, ConfigSchema& schema) {
  const auto check = [&](std::string_view key, const std::vector<std::string>& entries, bool weights_allowed) {
    try {
      if (const auto problem = entries_problem(entries, weights_allowed)) schema.add_problem(key, *problem);
    } catch (const Error& error) {  // of one entry, reported among all other problems of the configuration
      schema.add_problem(key,
                         error.hint().empty() ? error.message() : fmt::format("{}; {}", error.message(), error.hint()));
    }
  };
  check("data.train", config.train, true);
  check("data.valid", config.valid, false);
}

}  // namespace ms::data
