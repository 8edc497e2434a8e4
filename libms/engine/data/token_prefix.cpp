#include "data/token_prefix.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "data/cached_object.h"

namespace ms::data {
namespace {

namespace fs = std::filesystem;

// The names of the token files in a directory, the first few.
std::string prefixes_in(const std::string& directory) {
  constexpr std::size_t kNamed = 5;
  std::vector<std::string> names;
  std::error_code failed;
  for (auto entry = fs::directory_iterator(directory, failed); !failed && entry != fs::directory_iterator();
       entry.increment(failed)) {
    if (entry->path().extension() == ".idx") names.push_back((entry->path().parent_path() / entry->path().stem()));
  }
  std::ranges::sort(names);
  std::string text;
  for (std::size_t i = 0; i < names.size() && i <= kNamed; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", i == kNamed ? "..." : names[i]);
  return text;
}

// Says how to make the token file that was named. What is there under that name may be the text itself.
std::string encode_hint(const std::string& prefix) {
  std::error_code failed;
  if (fs::is_regular_file(prefix, failed)) {
    return fmt::format(
        "'{0}' is not a token file: 'ms-data encode --output tokens {0}' encodes a text, and its prefix is then tokens",
        prefix);
  }
  return fmt::format(
      "'ms-data encode --output {} TEXT...' makes it; a token file is named by its prefix, the path "
      "without .bin and .idx",
      prefix);
}

bool is_file_name(std::string_view prefix) { return prefix.ends_with(".bin") || prefix.ends_with(".idx"); }

std::string prefix_hint(const std::string& prefix) {
  const std::string use = is_file_name(prefix) ? fmt::format("use '{}': ", prefix.substr(0, prefix.size() - 4)) : "";
  return use + "a token file is named by its prefix, the path without .bin and .idx";
}

}  // namespace

std::string checked_token_prefix(std::string prefix) {
  if (is_object(prefix)) return prefix;
  std::error_code failed;
  const bool is_directory = fs::is_directory(prefix, failed);
  if (!is_directory || ::access((prefix + ".idx").c_str(), F_OK) == 0) return prefix;
  const std::string names = prefixes_in(prefix);
  throw user_error("file.open", fmt::format("'{}' is a directory, expected the prefix of a token file", prefix),
                   names.empty() ? encode_hint(prefix + "/text") : fmt::format("there are: {}", names));
}

MappedFile map_token_file(const std::string& path) {
  if (is_object(path)) {
    const std::optional<std::string> copy = object_copy(path);
    if (copy) return MappedFile(*copy);
    throw user_error("data.object", fmt::format("{} does not exist", path),
                     prefix_hint(path.substr(0, path.rfind('.'))));
  }
  try {
    return MappedFile(path, Blame::user);
  } catch (const Error& error) {  // to add what a prefix is
    if (error.blame() != Blame::user) throw;
    const std::string prefix = path.substr(0, path.rfind('.'));
    std::string hint = encode_hint(prefix);
    if (is_file_name(prefix)) hint = prefix_hint(prefix);
    if (prefix.find_first_of("~$*") != std::string::npos)
      hint = "~, $ and * are not expanded in the name of a token file";
    if (::access((prefix + ".bin.part").c_str(), F_OK) == 0)
      hint = "its encoding was interrupted: repeat the same ms-data encode to resume it";
    throw Error(error.kind(), error.blame(), error.message(), hint);
  }
}

}  // namespace ms::data
