// Tables as traces come: comma-separated lines under a line of names, plain or packed (unpack.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace ms::unpack {

// Numbers without decimals, signs and blanks aside, as C's locale writes them; nullopt: anything else, or not finite.
std::optional<double> parse_number(std::string_view text);

class CsvTable {
 public:
  // Reads the whole file. Error("data.input", user): it is not there, has no line of names, or a line has more or fewer
  // cells than that. Empty lines are passed over.
  explicit CsvTable(std::string path);

  std::size_t rows() const { return lines_.size(); }
  const std::vector<std::string>& columns() const { return names_; }  // as the first line names them
  // The column of the first of these names that the table has.
  std::optional<std::size_t> find(std::initializer_list<std::string_view> names) const;
  // The same, but Error("data.input", user) that names them all.
  std::size_t column(std::initializer_list<std::string_view> names) const;

  std::string_view cell(std::size_t row, std::size_t column) const;
  // Error("data.input", user) with file, line and column where the cell is no number from `min` to `max`.
  double number(std::size_t row, std::size_t column, double min, double max) const;
  // Seconds: a number as it is, or a time of day in UTC, "2017-10-09 07:01:55", since 1970.
  double time_s(std::size_t row, std::size_t column) const;

  // "jobs.csv:17", for messages about a row.
  std::string place(std::size_t row) const;
  [[noreturn]] void refuse(std::size_t row, std::size_t column, std::string_view what) const;

 private:
  struct Line {
    std::size_t begin = 0;    // of its text in text_
    std::size_t cells = 0;    // of its first cell in ends_
    std::int64_t number = 0;  // in the file, from 1
  };
  void add_line(std::size_t begin, std::size_t end, std::int64_t number);

  std::string path_, text_;
  std::vector<std::string> names_;
  std::vector<Line> lines_;
  std::vector<std::size_t> ends_;  // of cells in text_
};

}  // namespace ms::unpack
