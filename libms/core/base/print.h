// Standard output and standard error of the programs. All that they write there but the log and the progress bar goes
// through here, with safe_lines() of escape.h: no text from outside steers a terminal. run_tool() checks that standard
// output took everything.
#pragma once

#include <fmt/core.h>

#include <span>
#include <string_view>
#include <utility>

#include "base/paint.h"

namespace ms {

void write_out(std::string_view text);  // results
void write_err(std::string_view text);  // what is no result and no event of the log
// Writes a result of any bytes as it is to a file or pipe; a terminal gets safe_lines() of it.
void write_bytes(std::string_view bytes);

// Writes results in colours.
void write_painted(std::span<const Painted> pieces, ColourDepth depth);

// Writes results in place of what the terminal shows.
void write_screen(std::string_view text);

template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_out(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  write_err(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ms
