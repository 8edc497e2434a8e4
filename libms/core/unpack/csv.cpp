#include "unpack/csv.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/number.h"
#include "base/text.h"
#include "base/utc.h"
#include "unpack/input_file.h"

namespace ms::unpack {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;  // of text
constexpr double kMaxTime_s = 1e11;                      // to the year 5138; milliseconds are no times
constexpr std::size_t kMaxShownChars = 60;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string read_text(const std::string& path) {
  unpack::InputFile file(path);
  std::string text;
  for (std::string_view piece = file.next(); !piece.empty(); piece = file.next()) {
    text += piece;
    if (text.size() > kMaxBytes) throw user_error("data.input", fmt::format("{} holds more than 1 GiB", path));
  }
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  const auto value = whole_number<double>(trim(text));
  return value && std::isfinite(*value) ? value : std::nullopt;
}

CsvTable::CsvTable(std::string path) : path_(std::move(path)), text_(read_text(path_)) {
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text_.size();) {
    const std::size_t end = std::min(text_.find('\n', begin), text_.size());
    ++number;
    if (!trim(std::string_view(text_).substr(begin, end - begin)).empty()) add_line(begin, end, number);
    begin = end + 1;
  }
  if (names_.empty()) {
    throw user_error("data.input", fmt::format("{} is empty", path_), "its first line must name its columns");
  }
}

void CsvTable::add_line(std::size_t begin, std::size_t end, std::int64_t number) {
  if (text_[end - 1] == '\r') --end;
  if (names_.empty()) {
    names_ = split(std::string_view(text_).substr(begin, end - begin), ',');
    return;
  }
  const Line line{.begin = begin, .cells = ends_.size(), .number = number};
  for (std::size_t i = begin; i <= end; ++i) {
    if (i < end && text_[i] == '"') {
      throw user_error("data.input", fmt::format("{}:{} has a quoted cell, and those are not read", path_, number),
                       "write cells without quotes and commas");
    }
    if (i == end || text_[i] == ',') ends_.push_back(i);
  }
  lines_.push_back(line);
  const std::size_t cells = ends_.size() - line.cells;
  if (cells != names_.size()) {
    throw user_error("data.input", fmt::format("{}:{} has {}, but the first line names {}", path_, number,
                                               plural(cells, "cell"), names_.size()));
  }
}

std::optional<std::size_t> CsvTable::find(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return i;
    }
  }
  return std::nullopt;
}

std::size_t CsvTable::column(std::initializer_list<std::string_view> names) const {
  if (const auto found = find(names)) return *found;
  throw user_error("data.input", fmt::format("{} has no column {}", path_, fmt::join(names, " or ")),
                   fmt::format("its first line names {}", fmt::join(names_, ", ")));
}

std::string_view CsvTable::cell(std::size_t row, std::size_t column) const {
  const Line& line = lines_[row];
  const std::size_t begin = column == 0 ? line.begin : ends_[line.cells + column - 1] + 1;
  return trim(std::string_view(text_).substr(begin, ends_[line.cells + column] - begin));
}

void CsvTable::refuse(std::size_t row, std::size_t column, std::string_view what) const {
  throw user_error("data.input", fmt::format("{}: {} '{}' {}", place(row), names_[column],
                                             plain_text(cell(row, column), kMaxShownChars), what));
}

double CsvTable::number(std::size_t row, std::size_t column, double min, double max) const {
  const std::optional<double> value = parse_number(cell(row, column));
  if (!value) refuse(row, column, "is not a number");
  if (*value < min || *value > max) refuse(row, column, fmt::format("is not from {:.10g} to {:.10g}", min, max));
  return *value;
}

double CsvTable::time_s(std::size_t row, std::size_t column) const {
  const std::string_view text = cell(row, column);
  if (const auto value = parse_number(text)) {
    if (std::abs(*value) > kMaxTime_s) refuse(row, column, "is no time");
    return *value;
  }
  std::string day(text);
  const std::size_t space = day.find(' ');
  if (space != std::string::npos) day[space] = 'T';
  if (!day.ends_with('Z')) day += 'Z';
  const std::optional<double> value = utc_seconds(day);
  if (!value) refuse(row, column, "is neither seconds nor a time such as 2017-10-09 07:01:55");
  return *value;
}

std::string CsvTable::place(std::size_t row) const { return fmt::format("{}:{}", path_, lines_[row].number); }

}  // namespace ms::unpack
