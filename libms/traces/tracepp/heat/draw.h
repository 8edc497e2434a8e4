// Draws heat maps as text for a terminal.
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

}  // namespace ms::tracepp
