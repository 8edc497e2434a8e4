#include "tracepp/read/attempts.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number.h"

namespace ms::tracepp {
namespace {

namespace fs = std::filesystem;
using Time = fs::file_time_type;

constexpr std::chrono::seconds kBetween{10};  // the last files of two attempts: copies are made faster

// Returns 3 of "attempt-3.node1.stacks", "attempt_3", "attempt3".
std::optional<int> attempt_in(std::string_view name) {
  constexpr std::string_view kWord = "attempt";
  if (!name.starts_with(kWord)) return std::nullopt;
  name.remove_prefix(kWord.size());
  if (name.starts_with('-') || name.starts_with('_')) name.remove_prefix(1);
  const auto number = take_number<int>(name);
  const bool is_whole = name.empty() || name[0] == '.' || name[0] == '-' || name[0] == '_';
  return number >= 0 && is_whole ? number : std::nullopt;
}

// The numbers in a path, by the directory in which they stand.
std::vector<std::pair<fs::path, int>> attempts_in(const fs::path& path) {
  std::vector<std::pair<fs::path, int>> found;
  fs::path directory;
  for (const fs::path& part : path) {
    if (const std::optional<int> number = attempt_in(part.string())) found.emplace_back(directory, *number);
    directory /= part;
  }
  return found;
}

}  // namespace

std::size_t leave_out_earlier_attempts(std::vector<File>& files) {
  std::map<fs::path, int> newest;
  for (const File& file : files)
    for (const auto& [directory, number] : attempts_in(file.path)) {
      int& most = newest.try_emplace(directory, number).first->second;
      most = std::max(most, number);
    }
  std::set<std::string> earlier;
  std::vector<std::pair<std::string, Time>> unnumbered;
  std::optional<Time> last_earlier, first_newest;
  for (const File& file : files) {
    std::error_code error;
    const Time written = fs::last_write_time(file.path, error);
    const auto attempts = attempts_in(file.path);
    const bool is_earlier =
        std::ranges::any_of(attempts, [&](const auto& it) { return it.second < newest.at(it.first); });
    if (is_earlier) earlier.insert(file.path);
    if (error) continue;
    if (attempts.empty()) {
      unnumbered.emplace_back(file.path, written);
    } else if (is_earlier) {
      last_earlier = std::max(last_earlier.value_or(written), written);
    } else {
      first_newest = std::min(first_newest.value_or(written), written);
    }
  }
  const bool is_told = last_earlier && first_newest && *last_earlier + kBetween <= *first_newest;
  for (const auto& [path, written] : unnumbered)
    if (is_told && written < *last_earlier) earlier.insert(path);
  return std::erase_if(files, [&](const File& file) { return earlier.contains(file.path); });
}

}  // namespace ms::tracepp
