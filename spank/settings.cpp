// SPDX-License-Identifier: GPL-2.0-or-later
#include "settings.h"

#include <charconv>
#include <string_view>

#include "printable.h"

namespace ms::spank {
namespace {

bool is_path(std::string_view value) { return value.starts_with('/'); }

bool read_deadline(std::string_view value, int& deadline_s) {
  int seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc{} || end != value.data() + value.size()) return false;
  if (seconds < 1 || seconds > kLongestDeadlineS) return false;
  deadline_s = seconds;
  return true;
}

// Empty: understood. Otherwise the problem.
std::string read_one(std::string_view argument, Settings& settings) {
  const std::size_t equals = argument.find('=');
  const std::string_view key = argument.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : argument.substr(equals + 1);
  std::string* path = nullptr;
  if (key == "config") path = &settings.config;
  if (key == "program") path = &settings.program;
  if (key == "notes") path = &settings.notes;
  if (path != nullptr) {
    if (!is_path(value)) return printable(key) + " wants an absolute path, not '" + printable(value) + "'";
    *path = value;
    return {};
  }
  if (key == "deadline") {
    if (read_deadline(value, settings.deadline_s)) return {};
    return "deadline wants whole seconds from 1 to " + std::to_string(kLongestDeadlineS) + ", not '" +
           printable(value) + "'";
  }
  return "unknown argument '" + printable(argument) + "'; there are config, program, notes and deadline";
}

}  // namespace

Settings read_settings(int count, char** arguments) {
  Settings settings;
  for (int i = 0; i < count && settings.problem.empty(); ++i) settings.problem = read_one(arguments[i], settings);
  if (settings.problem.empty() && settings.config.empty()) settings.problem = "config=FILE is missing";
  return settings;
}

}  // namespace ms::spank
