// Implements terminal_map of draw.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "tracepp/heat/draw.h"

namespace ms::tracepp {
namespace {

constexpr int kLevels = 9;               // of more, and of less
constexpr std::size_t kWidestSign = 3;   // characters of a cell
constexpr std::size_t kLeastRows = 3;    // however low the terminal
constexpr std::size_t kLeastWidth = 20;  // however narrow it is

int level_at(float part) { return static_cast<int>(std::lround(part * kLevels)); }

char sign_of(int level) {
  if (level == 0) return '.';
  return static_cast<char>(level > 0 ? '0' + level : 'a' - 1 - level);
}

std::string padded_to(std::string_view text, std::size_t width) {
  return fmt::format("{:<{}}", text.substr(0, width), width);
}

// Writes lines of pieces.
class Drawing {
 public:
  Drawing(const HeatLevel& level, std::size_t width, std::size_t name_width)
      : map_(level.map), name_width_(name_width), slot_(slot_width(level.map, width, name_width)) {
    const std::size_t columns = std::max<std::size_t>(1, map_.grids.front().columns.size());
    cell_ = std::clamp<std::size_t>(grid_width(slot_) / columns, 1, kWidestSign);
  }
  // The characters for a grid, with the gap to the next one.
  static std::size_t slot_width(const HeatMap& map, std::size_t width, std::size_t name_width) {
    return (width - name_width) / map.grids.size();
  }
  static std::size_t grid_width(std::size_t slot) { return slot > kGap ? slot - kGap : 1; }

  std::vector<Painted> take() {
    if (!map_.grids.front().title.empty()) {
      header([](const HeatGrid& grid) { return grid.title; });
      header([](const HeatGrid& grid) { return "median " + format_duration(grid.middle); });
      header([](const HeatGrid& grid) { return "9 is " + difference_text(grid.full); });
    }
    add(padded_to(map_.column_name, name_width_));
    for (const HeatGrid& grid : map_.grids) add(padded_to(ticks(grid), slot_));
    add("\n");
    for (std::size_t row = 0; row < map_.grids.front().rows.size(); ++row) {
      add(padded_to(map_.grids.front().rows[row], name_width_ - 1) + " ");
      for (const HeatGrid& grid : map_.grids) {
        for (std::size_t column = 0; column < grid.columns.size(); ++column) cell(grid.part(row, column));
        add(std::string(slot_ - std::min(slot_, cell_ * grid.columns.size()), ' '));
      }
      add("\n");
    }
    return std::move(pieces_);
  }

 private:
  static constexpr std::size_t kGap = 2;

  // Neighbours of the same ground are one piece.
  void add(std::string_view text, std::optional<Colour> ground = {}) {
    if (pieces_.empty() || pieces_.back().ground != ground) pieces_.push_back({.text = "", .ground = ground});
    pieces_.back().text += text;
  }
  void cell(float part) {
    if (std::isnan(part)) return add(std::string(cell_, ' '));
    std::string text(cell_, ' ');
    const int level = level_at(part);
    text[cell_ / 2] = sign_of(level);
    add(text, heat_colour(static_cast<float>(level) / kLevels));
  }
  void header(std::string (*of)(const HeatGrid& grid)) {
    add(padded_to("", name_width_));
    for (const HeatGrid& grid : map_.grids) add(padded_to(of(grid), grid_width(slot_)) + std::string(kGap, ' '));
    add("\n");
  }
  // The numbers of columns, each from above the sign of its cell on.
  std::string ticks(const HeatGrid& grid) const {
    std::string line;
    for (std::size_t column = 0; column < grid.columns.size(); ++column) {
      const std::size_t at = column * cell_ + cell_ / 2;
      const std::string number = std::to_string(grid.columns[column]);
      if (!line.empty() && at < line.size() + kGap) continue;
      if (at + number.size() > grid_width(slot_)) break;
      line.resize(at, ' ');
      line += number;
    }
    return line;
  }

  const HeatMap& map_;
  std::size_t name_width_, slot_, cell_ = 1;
  std::vector<Painted> pieces_;
};

std::string wrapped(const std::vector<std::string>& lines, std::size_t width) {
  std::string text;
  for (const std::string& line : lines) {
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    for (const std::string& part : wrap(line.substr(indent), width - indent))
      text += std::string(indent, ' ') + part.substr(0, width - indent) + "\n";
  }
  return text;
}

std::size_t lines_in(std::string_view text) { return static_cast<std::size_t>(std::ranges::count(text, '\n')); }

// On one line where that is wide enough, else one below the other.
std::vector<Painted> legend(const HeatMap& map, std::size_t width) {
  struct Meaning {
    std::string_view sign;
    float ground;
    std::string text;
  };
  std::string more = "more";
  if (map.grids.size() == 1)
    more += ", 9 is " + (map.full.empty() ? difference_text(map.grids.front().full) : map.full);
  const Meaning signs[] = {{"1-9", 1, more}, {"a-i", -1, "less"}};
  const std::string rest = fmt::format(". like {}, blank: no trace", map.middle);
  std::string line;
  for (const Meaning& meaning : signs) line += fmt::format("{} {}; ", meaning.sign, meaning.text);
  const bool is_wide = line.size() + rest.size() <= width;
  std::vector<Painted> pieces;
  for (const Meaning& meaning : signs) {
    pieces.push_back({.text = std::string(meaning.sign), .ground = heat_colour(meaning.ground)});
    const std::string text = fmt::format("{} {}", meaning.sign, meaning.text);
    pieces.push_back(
        {.text = is_wide ? " " + meaning.text + "; " : wrapped({text}, width).substr(meaning.sign.size())});
  }
  pieces.push_back({.text = wrapped({rest}, is_wide ? rest.size() : width)});
  return pieces;
}

}  // namespace

Colour heat_colour(float part) {
  constexpr Colour kNone{.red = 228, .green = 231, .blue = 235};
  constexpr Colour kMore{.red = 214, .green = 40, .blue = 40};
  constexpr Colour kLess{.red = 37, .green = 99, .blue = 235};
  const Colour& full = part > 0 ? kMore : kLess;
  const float size = std::min(1.0F, std::abs(part));
  const auto mix = [&](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(std::lround(from + (to - from) * size));
  };
  return {.red = mix(kNone.red, full.red), .green = mix(kNone.green, full.green), .blue = mix(kNone.blue, full.blue)};
}

std::vector<Painted> terminal_map(const HeatMap& map, const Screen& screen) {
  const std::size_t width = std::max(screen.columns, kLeastWidth);
  std::size_t name_width = map.column_name.size();
  for (const std::string& name : map.grids.front().rows) name_width = std::max(name_width, name.size());
  name_width = std::min(name_width, width / 3) + 1;
  const std::size_t most_columns = Drawing::grid_width(Drawing::slot_width(map, width, name_width));

  const std::string title = wrapped({map.title}, width);
  const auto draw = [&](std::size_t most_rows) {
    const HeatLevel level = level_of(map, most_rows, most_columns);
    std::vector<Painted> pieces{{.text = title}};
    for (auto&& part : {Drawing(level, width, name_width).take(), legend(map, width)})
      pieces.insert(pieces.end(), part.begin(), part.end());
    pieces.push_back({.text = wrapped(notes_of(level), width)});
    return pieces;
  };
  std::size_t rows = map.grids.front().rows.size();
  std::vector<Painted> pieces = draw(rows);
  const auto excess = [&] {
    std::size_t lines = 1;  // for the prompt
    for (const Painted& piece : pieces) lines += lines_in(piece.text);
    return screen.lines && lines > *screen.lines ? lines - *screen.lines : 0;
  };
  // Fewer rows take another line to say so, and may be joined to fewer than asked for: it takes a few rounds.
  for (std::size_t more = excess(); more > 0 && rows > kLeastRows; more = excess()) {
    rows = std::max(kLeastRows, rows - std::min(rows, more));
    pieces = draw(rows);
  }
  return pieces;
}

}  // namespace ms::tracepp
