#include "base/print.h"

#include <unistd.h>

#include <cstdio>

#include "base/escape.h"

namespace ms {
namespace {

void write_text(std::string_view text, std::FILE* to) { std::fwrite(text.data(), 1, text.size(), to); }

}  // namespace

void write_out(std::string_view text) { write_text(safe_lines(text), stdout); }
void write_err(std::string_view text) { write_text(safe_lines(text), stderr); }
void write_painted(std::span<const Painted> pieces, ColourDepth depth) {
  write_text(painted_text(pieces, depth), stdout);
}
void write_screen(std::string_view text) {
  write_text("\033[H\033[2J", stdout);
  write_out(text);
}
void write_bytes(std::string_view bytes) {
  ::isatty(STDOUT_FILENO) == 1 ? write_out(bytes) : write_text(bytes, stdout);
}

}  // namespace ms
