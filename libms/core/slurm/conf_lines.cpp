#include "slurm/conf_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text.h"

namespace ms::slurm {
namespace {

constexpr int kMaxDepth = 8;                // of includes, which may form a circle
constexpr std::size_t kMaxLines = 1 << 20;  // of all files together, for the same reason
constexpr int kMaxFiles = 1024;

bool is_blank(unsigned char c) { return std::isspace(c) != 0; }

// As Slurm does, blanks around '=' and inside quotes end no word, and the quotes around a value are no part of it.
std::vector<std::string> words_in(std::string_view line) {
  std::vector<std::string> words;
  bool is_quoted = false, is_ended = true;
  for (const char c : line) {
    if (c == '"') {
      is_quoted = !is_quoted;
    } else if (!is_quoted && is_blank(static_cast<unsigned char>(c))) {
      is_ended = words.empty() || !words.back().ends_with('=');
    } else {
      if (is_ended && (c != '=' || words.empty())) words.emplace_back();
      words.back() += c;
      is_ended = false;
    }
  }
  return words;
}

void append(std::vector<ConfLine>& lines, std::string_view text, const ReadIncluded& read, int number, int depth,
            int& files) {
  std::string joined;
  int line = 0, first = 0;
  while (!text.empty() && lines.size() < kMaxLines) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(whole.size() + 1, text.size()));
    ++line;
    if (joined.empty()) first = line;
    std::string_view part = trim(whole.substr(0, whole.find('#')));
    const bool goes_on = part.ends_with('\\');
    if (goes_on) part.remove_suffix(1);
    joined += fmt::format("{}{}", part, goes_on ? " " : "");
    if (goes_on && !text.empty()) continue;
    std::vector<std::string> words = words_in(std::exchange(joined, {}));
    const int place = depth == 0 ? first : number;
    if (words.size() == 2 && lower_case(words[0]) == "include") {
      const auto included = read && depth < kMaxDepth && ++files <= kMaxFiles ? read(words[1]) : std::nullopt;
      if (included) append(lines, *included, read, place, depth + 1, files);
    } else if (!words.empty()) {
      lines.push_back({place, std::move(words)});
    }
  }
}

}  // namespace

std::vector<ConfLine> conf_lines(std::string_view text, const ReadIncluded& read) {
  std::vector<ConfLine> lines;
  int files = 0;
  append(lines, text, read, 0, 0, files);
  return lines;
}

std::string included_path(const std::string& path, const std::string& name) {
  return name.starts_with('/') ? name : path.substr(0, path.rfind('/') + 1) + name;
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

}  // namespace ms::slurm
