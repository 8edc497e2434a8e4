// Text in colours for a terminal that has them. Colour is an addition: the same text is readable without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ms {

struct Colour {  // sRGB
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Colour&) const = default;
};

// A piece of text on a ground of this colour; without one, as the terminal shows text.
struct Painted {
  std::string text;
  std::optional<Colour> ground = {};
};

enum class ColourDepth : std::uint8_t { none, palette, full };  // palette: the 256 colours of xterm

// How standard output shows text.
struct Screen {
  bool is_terminal = false;
  ColourDepth colours = ColourDepth::none;
  std::size_t columns = 80;
  std::optional<std::size_t> lines = {};  // absent: as many as there are
};
// Reads NO_COLOR (no-color.org), TERM and COLORTERM, and asks the terminal for its size. What is no terminal has no
// colours.
Screen output_screen();

// Returns the pieces one after the other, each with the control sequences of its colour around safe_lines() of its
// text. Pure.
std::string painted_text(std::span<const Painted> pieces, ColourDepth depth);

}  // namespace ms
