#include "base/paint.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/escape.h"

namespace ms {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

ColourDepth colours_of_terminal() {
  const std::string_view term = environment("TERM");
  if (!environment("NO_COLOR").empty() || term.empty() || term == "dumb") return ColourDepth::none;
  const std::string_view colours = environment("COLORTERM");
  if (colours == "truecolor" || colours == "24bit") return ColourDepth::full;
  return term.find("256color") != std::string_view::npos ? ColourDepth::palette : ColourDepth::none;
}

// The nearest of the 216 colours of xterm's cube.
int palette_of(const Colour& colour) {
  constexpr int kSteps = 6, kCube = 16;
  const auto step = [](std::uint8_t part) { return part < 48 ? 0 : part < 115 ? 1 : (part - 35) / 40; };
  return kCube + (step(colour.red) * kSteps + step(colour.green)) * kSteps + step(colour.blue);
}

std::string code_of(const Colour& colour, bool is_ground, ColourDepth depth) {
  const int what = is_ground ? 48 : 38;
  if (depth == ColourDepth::palette) return fmt::format("\033[{};5;{}m", what, palette_of(colour));
  return fmt::format("\033[{};2;{};{};{}m", what, colour.red, colour.green, colour.blue);
}

// Black or white, whichever is further from the ground.
Colour ink_on(const Colour& ground) {
  const double light = 0.299 * ground.red + 0.587 * ground.green + 0.114 * ground.blue;
  return light > 140 ? Colour{} : Colour{.red = 255, .green = 255, .blue = 255};
}

}  // namespace

Screen output_screen() {
  Screen screen;
  screen.is_terminal = ::isatty(STDOUT_FILENO) == 1;
  if (!screen.is_terminal) return screen;
  screen.colours = colours_of_terminal();
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    screen.columns = size.ws_col;
    screen.lines = size.ws_row;
  }
  return screen;
}

std::string painted_text(std::span<const Painted> pieces, ColourDepth depth) {
  std::string text;
  for (const Painted& piece : pieces) {
    const bool is_coloured = piece.ground && depth != ColourDepth::none;
    if (is_coloured) text += code_of(*piece.ground, true, depth) + code_of(ink_on(*piece.ground), false, depth);
    text += safe_lines(piece.text);
    if (is_coloured) text += "\033[0m";
  }
  return text;
}

}  // namespace ms
