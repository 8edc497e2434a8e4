// SPDX-License-Identifier: GPL-2.0-or-later
#include "printable.h"

namespace ms::spank {

std::string printable(std::string_view text, std::size_t most_bytes) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  std::string out;
  for (const char c : text.substr(0, most_bytes)) {
    if (c == '\n') {
      out += " | ";
    } else {
      out += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  if (text.size() > most_bytes) out += "...";
  return out;
}

}  // namespace ms::spank
