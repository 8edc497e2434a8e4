// Draws heat maps: as text for a terminal, and as a PNG. Both show the same cells in the same colours.
#pragma once

#include <string>
#include <vector>

#include "base/paint.h"
#include "tracepp/heat/map.h"

namespace ms::tracepp {

// Returns the colour of a part from -1 to 1: less is blue, more is red, as in the page.
Colour heat_colour(float part);

// A cell is a character, a wider one where there is room, on a ground of its colour: 1 to 9 is more, a to i is less,
// so that it is readable without colours. The text has at most the screen's columns and, from about 16 on, its lines.
std::vector<Painted> terminal_map(const HeatMap& map, const Screen& screen);

// Returns the bytes of a PNG. GD draws it (libgd), which this looks for when it is called. Throws Error("heatmap.gd",
// user) where it is not installed.
std::string png_map(const HeatMap& map);

}  // namespace ms::tracepp
