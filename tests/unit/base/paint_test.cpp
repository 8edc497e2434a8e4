#include "base/paint.h"

#include <gtest/gtest.h>

#include <vector>

namespace ms {
namespace {

TEST(Paint, PutsColoursAroundEscapedText) {
  const std::vector<Painted> pieces{{.text = "a\x1b[2J"},
                                    {.text = "9", .ground = Colour{.red = 214, .green = 40, .blue = 40}}};
  EXPECT_EQ(painted_text(pieces, ColourDepth::none), "a\\x1b[2J9");
  EXPECT_EQ(painted_text(pieces, ColourDepth::full), "a\\x1b[2J\x1b[48;2;214;40;40m\x1b[38;2;255;255;255m9\x1b[0m");
  EXPECT_EQ(painted_text(pieces, ColourDepth::palette), "a\\x1b[2J\x1b[48;5;160m\x1b[38;5;231m9\x1b[0m");
}

TEST(Paint, WritesDarkOnLight) {
  const std::vector<Painted> pieces{{.text = "x", .ground = Colour{.red = 228, .green = 231, .blue = 235}}};
  EXPECT_EQ(painted_text(pieces, ColourDepth::palette), "\x1b[48;5;189m\x1b[38;5;16mx\x1b[0m");
}

}  // namespace
}  // namespace ms
