// Implements png_map of draw.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "tracepp/heat/draw.h"
#include "tracepp/heat/gd.h"

namespace ms::tracepp {
namespace {

// Pixels.
constexpr int kPictureWide = 1500;  // of the picture
constexpr int kMargin = 12;         // around it
constexpr int kGap = 24;            // between grids
constexpr int kTallestCell = 22;
constexpr int kWidestCell = 100;
constexpr int kMostTall = 900;  // of the grids: rows become lower, then are joined
constexpr Colour kInk{.red = 27, .green = 31, .blue = 36};
constexpr Colour kPage{.red = 255, .green = 255, .blue = 255};

int value_of(const Colour& colour) { return colour.red << 16 | colour.green << 8 | colour.blue; }

const gd::Api& gd_api() {
  std::string why;
  const gd::Api* const api = gd::api(why);
  if (api == nullptr) {
    throw user_error("heatmap.gd", fmt::format("a PNG needs the GD library: {}", why),
                     "install libgd3 (Debian) or gd (Fedora), or leave --output out for a map in the terminal");
  }
  return *api;
}

// A picture under way.
class Picture {
 public:
  Picture(const gd::Api& api, int width, int height)
      : api_(api), image_(api.create(width, height), api.destroy), font_(api.font()) {
    if (image_ == nullptr) throw Error("heatmap.gd", ms::Blame::node, "GD has no memory for a picture");
    fill(0, 0, width, height, kPage);
  }
  void fill(int x, int y, int width, int height, const Colour& colour) {
    api_.fill(image_.get(), x, y, x + width - 1, y + height - 1, value_of(colour));
  }
  void text(int x, int y, const std::string& line) {
    // A byte beyond ASCII would be a character of ISO 8859-2 there.
    const std::string shown = printable(line, line.size());
    api_.text(image_.get(), font_, x, y, reinterpret_cast<const unsigned char*>(shown.c_str()), value_of(kInk));
  }
  void text_to_the_left(int x, int y, const std::string& line) {
    text(x - static_cast<int>(line.size()) * font_->width, y, line);
  }
  std::string png() const {
    int bytes = 0;
    const std::unique_ptr<void, void (*)(void*)> data(api_.png(image_.get(), &bytes), api_.free);
    if (data == nullptr) throw Error("heatmap.gd", ms::Blame::node, "GD could not write a PNG");
    return {static_cast<const char*>(data.get()), static_cast<std::size_t>(bytes)};
  }

 private:
  const gd::Api& api_;
  std::unique_ptr<void, void (*)(gd::Image)> image_;
  const gd::Font* font_;
};

// Where the parts of a picture are.
struct Layout {
  int left = 0;  // of the first grid
  int slot = 0;  // from a grid to the next one
  int cell_wide = 1, cell_tall = 1;
};

void draw_grid(Picture& picture, const HeatGrid& grid, const Layout& layout, int left, int top, const gd::Font& font) {
  const int line = font.height + 2;
  if (!grid.title.empty())
    picture.text(left, top - 2 * line,
                 fmt::format("{}: median {}, full red is {}", grid.title, format_duration(grid.middle),
                             difference_text(grid.full)));
  int free_from = left;
  for (std::size_t column = 0; column < grid.columns.size(); ++column) {
    const int x = left + static_cast<int>(column) * layout.cell_wide;
    const std::string number = std::to_string(grid.columns[column]);
    const int end = x + static_cast<int>(number.size() + 2) * font.width;
    if (x < free_from || (column > 0 && end > left + layout.slot)) continue;
    picture.fill(x, top - 4, 1, 4, kInk);
    picture.text(x, top - line - 2, number);
    free_from = end;
  }
  const int gap = layout.cell_wide > 4 ? 1 : 0;
  for (std::size_t row = 0; row < grid.rows.size(); ++row) {
    const int y = top + static_cast<int>(row) * layout.cell_tall;
    for (std::size_t column = 0; column < grid.columns.size(); ++column) {
      const float part = grid.part(row, column);
      if (std::isnan(part)) continue;
      picture.fill(left + static_cast<int>(column) * layout.cell_wide, y, layout.cell_wide - gap,
                   layout.cell_tall - (layout.cell_tall > 4 ? 1 : 0), heat_colour(part));
    }
  }
}

// A bar from least to most, with the numbers of a single grid.
void draw_legend(Picture& picture, const HeatMap& map, int x, int y, const gd::Font& font) {
  constexpr int kBar = 201;
  const bool is_one = map.grids.size() == 1;
  const std::string less = is_one ? difference_text(-map.grids.front().full) : "less";
  const std::string more = is_one ? difference_text(map.grids.front().full) : "more";
  picture.text(x, y, less);
  const int bar = x + static_cast<int>(less.size() + 1) * font.width;
  for (int i = 0; i < kBar; ++i)
    picture.fill(bar + i, y, 1, font.height, heat_colour(static_cast<float>(2 * i - kBar + 1) / (kBar - 1)));
  picture.text(bar + kBar + font.width, y, more + " against the median; white: no trace");
}

}  // namespace

std::string png_map(const HeatMap& map) {
  const gd::Api& api = gd_api();
  const gd::Font& font = *api.font();
  const int line = font.height + 2;
  std::size_t name_size = map.column_name.size();
  for (const std::string& name : map.grids.front().rows) name_size = std::max(name_size, name.size());

  Layout layout;
  layout.left = kMargin + static_cast<int>(name_size + 1) * font.width;
  layout.slot = (kPictureWide - kMargin - layout.left + kGap) / static_cast<int>(map.grids.size());
  const int grid_wide = layout.slot - kGap;
  const std::size_t all_rows = map.grids.front().rows.size();
  const HeatLevel level =
      level_of(map, map.may_join_rows ? kMostTall : all_rows, static_cast<std::size_t>(std::max(1, grid_wide)));
  const HeatGrid& first = level.map.grids.front();
  const auto rows = static_cast<int>(first.rows.size()), columns = static_cast<int>(first.columns.size());
  layout.cell_wide = std::clamp(grid_wide / std::max(columns, 1), 1, kWidestCell);
  layout.cell_tall = map.may_join_rows ? std::clamp(kMostTall / std::max(rows, 1), 1, kTallestCell) : kTallestCell;

  std::vector<std::string> lines;
  for (const std::string& note : notes_of(level)) {
    const std::size_t indent = std::min(note.find_first_not_of(' '), note.size());
    for (const std::string& part :
         wrap(note.substr(indent), static_cast<std::size_t>((kPictureWide - 2 * kMargin) / font.width)))
      lines.push_back(std::string(indent, ' ') + part);
  }
  const int top = kMargin + line * (first.title.empty() ? 3 : 4);
  const int beneath = top + rows * layout.cell_tall + line;
  const int height = beneath + (static_cast<int>(lines.size()) + 2) * line + kMargin;

  Picture picture(api, kPictureWide, height);
  picture.text(kMargin, kMargin, map.title);
  picture.text_to_the_left(layout.left - font.width, top - line - 2, map.column_name);
  int labelled_to = 0;
  for (int row = 0; row < rows; ++row) {
    const int y = top + row * layout.cell_tall + (layout.cell_tall - font.height) / 2;
    if (y < labelled_to) continue;
    picture.text_to_the_left(layout.left - font.width, y, first.rows[static_cast<std::size_t>(row)]);
    labelled_to = y + font.height;
  }
  int left = layout.left;
  for (const HeatGrid& grid : level.map.grids) {
    draw_grid(picture, grid, layout, left, top, font);
    left += layout.slot;
  }
  draw_legend(picture, level.map, kMargin, beneath, font);
  for (std::size_t i = 0; i < lines.size(); ++i)
    picture.text(kMargin, beneath + (static_cast<int>(i) + 2) * line - line / 2, lines[i]);
  return picture.png();
}

}  // namespace ms::tracepp
