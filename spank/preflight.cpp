// SPDX-License-Identifier: GPL-2.0-or-later
#include "preflight.h"

namespace ms::spank {

std::string_view preflight_of_variable(const char* value) {
  if (value == nullptr) return {};
  for (std::string_view word : kPreflightWords) {
    if (word == value) return word;
  }
  return {};
}

std::string_view preflight_of_option(const char* argument) {
  if (argument == nullptr || *argument == '\0' || std::string_view(argument) == "(null)") return "on";
  return preflight_of_variable(argument);
}

}  // namespace ms::spank
