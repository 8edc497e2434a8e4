#include "base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/escape.h"
#include "base/number.h"

namespace ms {
namespace {

// value * multiply / divide: division by a whole number is correctly rounded, so "3ms" is exactly 0.003.
struct UnitRow {
  std::string_view name;
  double multiply;
  double divide;
};

constexpr std::array<UnitRow, 7> kDurations{
    {{"d", 86400, 1}, {"h", 3600, 1}, {"m", 60, 1}, {"s", 1, 1}, {"ms", 1, 1e3}, {"us", 1, 1e6}, {"ns", 1, 1e9}}};

struct SizeRow {
  std::string_view name;
  double bytes;
};

constexpr std::array<SizeRow, 12> kSizes{{{"PiB", 0x1p50},
                                          {"TiB", 0x1p40},
                                          {"GiB", 0x1p30},
                                          {"MiB", 0x1p20},
                                          {"KiB", 0x1p10},
                                          {"PB", 1e15},
                                          {"TB", 1e12},
                                          {"GB", 1e9},
                                          {"MB", 1e6},
                                          {"kB", 1e3},
                                          {"KB", 1e3},
                                          {"B", 1}}};

// Takes a number without sign or exponent from the front of `text`.
std::optional<double> take_number(std::string_view& text) {
  const auto end = std::find_if(text.begin(), text.end(), [](char c) { return !(c >= '0' && c <= '9') && c != '.'; });
  const std::string_view digits = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  double value = 0;
  const auto [ptr, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  if (digits.empty() || ec != std::errc() || ptr != digits.data() + digits.size()) return std::nullopt;
  text.remove_prefix(digits.size());
  return value;
}

std::string_view take_word(std::string_view& text) {
  const auto end =
      std::find_if(text.begin(), text.end(), [](char c) { return !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z'); });
  const std::string_view word = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace

std::optional<double> parse_duration_s(std::string_view text) {
  text = trim(text);
  if (text.empty()) return std::nullopt;
  double seconds = 0;
  std::size_t next = 0;  // units must shrink: "30m1h" is a slip of the hand
  while (!text.empty()) {
    const auto number = take_number(text);
    if (!number) return std::nullopt;
    const std::string_view unit = take_word(text);
    while (next < kDurations.size() && kDurations[next].name != unit) ++next;
    if (next == kDurations.size()) return std::nullopt;
    seconds += *number * kDurations[next].multiply / kDurations[next].divide;
    ++next;
  }
  if (seconds > kMaxDuration_s) return std::nullopt;
  return seconds;
}

std::optional<std::int64_t> parse_size_bytes(std::string_view text) {
  text = trim(text);
  const auto number = take_number(text);
  if (!number) return std::nullopt;
  text = trim(text);
  for (const SizeRow& row : kSizes) {
    if (row.name != text) continue;
    const double bytes = *number * row.bytes;
    if (bytes != std::floor(bytes)) return std::nullopt;
    return to_integer<std::int64_t>(bytes);
  }
  return std::nullopt;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{}", seconds);
  if (seconds < 0) return "-" + format_duration(-seconds);
  if (seconds == 0) return "0s";
  if (seconds < 999.5e-9) return fmt::format("{:.0f}ns", seconds * 1e9);
  if (seconds < 999.5e-6) return fmt::format("{:.3g}us", seconds * 1e6);
  if (seconds < 999.5e-3) return fmt::format("{:.3g}ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole % 86400 / 3600);
}

std::string format_size(double size_bytes) {
  for (std::size_t i = 0; i < 5; ++i) {
    // 1023.95 KiB would print as 1024.0 KiB, so the next unit starts a little early.
    if (std::abs(size_bytes) >= kSizes[i].bytes * (1 - 0.05 / 1024)) {
      return fmt::format("{:.1f} {}", size_bytes / kSizes[i].bytes, kSizes[i].name);
    }
  }
  return fmt::format("{:.0f} B", size_bytes);
}

std::string format_count(double count) {
  constexpr std::array<std::pair<double, char>, 5> kScales{
      {{1e15, 'P'}, {1e12, 'T'}, {1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}}};
  for (const auto& [scale, letter] : kScales) {
    if (std::abs(count) < scale * 0.9995) continue;
    const double value = count / scale;
    const int decimals = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f}{}", value, decimals, letter);
  }
  return fmt::format("{:.4g}", count);
}

std::optional<std::string> exact_duration(double seconds) {
  if (!(seconds >= 0) || seconds > kMaxDuration_s) return std::nullopt;
  const auto total_ms = static_cast<std::int64_t>(std::llround(seconds * 1e3));
  std::string text;
  std::int64_t rest = total_ms;
  for (const auto& [name, unit_ms] : {std::pair<std::string_view, std::int64_t>{"d", 86'400'000},
                                      {"h", 3'600'000},
                                      {"m", 60'000},
                                      {"s", 1'000},
                                      {"ms", 1}}) {
    if (rest / unit_ms > 0) text += fmt::format("{}{}", rest / unit_ms, name);
    rest %= unit_ms;
  }
  if (text.empty()) text = "0s";
  if (parse_duration_s(text) != seconds) return std::nullopt;
  return text;
}

std::optional<std::string> exact_size(std::int64_t size_bytes) {
  for (std::size_t i = 0; i < 5 && size_bytes > 0; ++i) {
    const auto unit = static_cast<std::int64_t>(kSizes[i].bytes);
    if (size_bytes % unit == 0) return fmt::format("{}{}", size_bytes / unit, kSizes[i].name);
  }
  return std::nullopt;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);  // the row of a[i-2], for swaps
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

constexpr std::size_t kShortestStem = 3;

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::size_t best = std::max<std::size_t>(1, name.size() / 3) + 1;
  std::optional<std::string> result;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best && distance < candidate.size()) {
      best = distance;
      result = candidate;
    }
  }
  if (result || name.size() < kShortestStem) return result;
  std::size_t longest = 0;
  for (const std::string& candidate : candidates) {  // "optimizer" for "optim", or the other way round
    const std::size_t shared = std::min(candidate.size(), name.size());
    if (shared < std::max(kShortestStem, longest + 1) || candidate.compare(0, shared, name, 0, shared) != 0) continue;
    longest = shared;
    result = candidate;
  }
  return result;
}

std::string plural(std::size_t number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : what.ends_with('s') ? "es" : "s");
}

std::string printable(std::string_view text, std::size_t max) {
  std::string result(text.substr(0, max));
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return result;
}

std::string_view without_colours(std::string_view line, std::string& kept) {
  if (line.find('\x1b') == std::string_view::npos) return line;
  kept.clear();
  for (std::size_t at = 0; at < line.size();) {
    if (line.substr(at).starts_with("\x1b[")) {
      at = line.find_first_not_of("0123456789;", at + 2);
      at = at == std::string_view::npos ? line.size() : at + 1;
    } else {
      kept += line[at++];
    }
  }
  return kept;
}

std::string plain_text(std::string_view text, std::size_t max) {
  constexpr std::string_view kCut = "...";
  std::string line;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (blank && (line.empty() || line.back() == ' ')) continue;
    line += blank ? ' ' : c;
  }
  if (line.ends_with(' ')) line.pop_back();
  if (line.size() <= max) return printable(line, max);
  line.resize(max > kCut.size() ? max - kCut.size() : 0);
  while (line.ends_with(' ')) line.pop_back();
  return printable(line, max) + std::string(kCut.substr(0, max));
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  if (trim(text).empty()) return parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.emplace_back(trim(text.substr(begin, end == std::string_view::npos ? end : end - begin)));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  for (const std::string& word : split(text, ' ')) {
    if (word.empty()) continue;
    if (!lines.empty() && lines.back().size() + 1 + word.size() <= width) {
      lines.back() += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

std::vector<Column> columns(std::string_view titles) {
  std::vector<Column> columns;
  for (std::string& title : split(titles, '|')) {
    const bool is_right = title.ends_with('>');
    if (is_right) title.pop_back();
    columns.push_back({std::move(title), is_right ? Align::right : Align::left});
  }
  return columns;
}

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (Column& column : columns_) column.title = safe_line(column.title);
}

void TextTable::row(std::vector<std::string> cells) {
  MS_ASSERT(cells.size() == columns_.size(), "a table of {} columns got a row of {} cells", columns_.size(),
            cells.size());
  for (std::string& cell : cells) cell = safe_line(cell);
  rows_.push_back(std::move(cells));
}

std::string TextTable::str() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = columns_[c].title.size();
    for (const auto& cells : rows_) width = std::max(width, cells[c].size());
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](auto cell) {
    std::string line;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string& value = cell(c);
      const std::string pad(widths[c] - value.size(), ' ');
      if (c > 0) line += "  ";
      line += columns_[c].align == Align::left ? value + pad : pad + value;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](std::size_t c) -> const std::string& { return columns_[c].title; });
  for (const auto& cells : rows_) add_line([&](std::size_t c) -> const std::string& { return cells[c]; });
  return text;
}

}  // namespace ms
