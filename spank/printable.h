// SPDX-License-Identifier: GPL-2.0-or-later
// Text from outside, made fit for a log or a terminal.
#pragma once

#include <string>
#include <string_view>

namespace ms::spank {

// Printable ASCII is kept, every other byte becomes '?', line ends become " | ", blanks at the end are dropped.
std::string printable(std::string_view text, std::size_t most_bytes = 400);

}  // namespace ms::spank
