// Implements a part of config.h.
// The way out of the configuration: values as TOML that reads back to exactly the same, dumps, rows for documentation;
// and what was wrong with it.
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/config.h"
#include "base/error.h"
#include "base/text.h"

namespace ms {
namespace {

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\u{:04X}", byte);
    } else {
      result += c;
    }
  }
  return result + '"';
}

// The shortest digits that do, without an exponent, which durations do not have.
std::string fixed_digits(double value) {
  constexpr std::size_t kMostDigits = 400;
  std::array<char, kMostDigits> digits{};
  const auto [end, error] =
      std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  MS_ASSERT(error == std::errc(), "{} does not fit {} digits", value, kMostDigits);
  return {digits.data(), end};
}

std::string format_value(double value, Unit unit) {
  if (unit == Unit::seconds) {
    if (const auto text = exact_duration(value)) return toml_string(*text);
    constexpr double kMicroseconds = 1e6;
    const std::string small = fmt::format("{}us", value * kMicroseconds);
    if (value < 1e-3 && parse_duration_s(small) == value) return toml_string(small);
    if (value > 0 && value <= kMaxDuration_s) return toml_string(fixed_digits(value) + "s");
  }
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);  // the shortest digits that do
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string format_value(std::int64_t value, Unit unit) {
  std::optional<std::string> text;
  if (unit == Unit::seconds) text = exact_duration(static_cast<double>(value));
  if (unit == Unit::bytes) text = exact_size(value);
  return text ? toml_string(*text) : fmt::format("{}", value);
}

std::string format_value(bool value, Unit) { return value ? "true" : "false"; }

std::string format_value(const std::string& value, Unit) { return toml_string(value); }

std::string format_value(const std::vector<std::string>& list, Unit) {
  std::string text = "[";
  for (const std::string& item : list) text += (text.size() > 1 ? ", " : "") + toml_string(item);
  return text + "]";
}

// The names of the types, in the order of the alternatives of a slot.
std::string type_name(std::size_t index, Unit unit) {
  constexpr std::array<std::string_view, 5> kNames{"integer", "number", "boolean", "string", "list"};
  if (unit == Unit::seconds) return "duration";
  if (unit == Unit::bytes) return "size";
  return std::string(kNames.at(index));
}

}  // namespace

std::string_view to_string(Unit unit) {
  switch (unit) {
    case Unit::none: return "";
    case Unit::seconds: return "seconds";
    case Unit::bytes: return "bytes";
  }
  return "";
}

std::string_view to_string(Provenance provenance) {
  switch (provenance) {
    case Provenance::by_default: return "default";
    case Provenance::site: return "site";
    case Provenance::checkpoint: return "checkpoint";
    case Provenance::file: return "file";
    case Provenance::set: return "--set";
  }
  return "";
}

std::string ConfigSchema::range(const Entry& entry) {
  const double min = entry.min;
  const double max = entry.max;
  if (std::isfinite(min) && std::isfinite(max)) return fmt::format("{} to {}", min, max);
  if (std::isfinite(min)) return fmt::format("at least {}", min);
  if (std::isfinite(max)) return fmt::format("at most {}", max);
  return {};
}

std::string ConfigSchema::format(const Entry& entry) {
  const auto* const whole = std::get_if<std::int64_t*>(&entry.slot);
  const auto* const number = std::get_if<double*>(&entry.slot);
  const bool is_word = (whole != nullptr && **whole == kWord) || (number != nullptr && **number == kNumberWord);
  if (is_word && !entry.choices.empty()) return toml_string(entry.choices.front());
  return std::visit([&](const auto* value) { return format_value(*value, entry.unit); }, entry.slot);
}

std::string ConfigSchema::dump(bool provenance) const {
  std::string text;
  for (const Section& section : sections_) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
    for (const Entry& entry : entries_) {
      if (entry.section != section.name) continue;
      text += fmt::format("{} = {}", entry.key, format(entry));
      if (provenance) text += fmt::format("  # set by {}", to_string(entry.provenance));
      text += "\n";
    }
  }
  return text;
}

std::vector<ConfigRow> ConfigSchema::reference() const {
  std::vector<ConfigRow> rows;
  for (const Section& section : sections_) {
    for (const Entry& entry : entries_) {
      if (entry.section != section.name) continue;
      rows.push_back({.section = section.name,
                      .section_doc = section.doc,
                      .key = entry.key,
                      .type = type_name(entry.slot.index(), entry.unit),
                      .default_value = entry.required ? "" : entry.default_value,
                      .range = range(entry),
                      .unit = std::string(to_string(entry.unit)),
                      .doc = entry.doc,
                      .choices = entry.choices,
                      .required = entry.required});
    }
  }
  return rows;
}

std::vector<ConfigProblem> ConfigSchema::problems() const {
  std::vector<ConfigProblem> all = problems_;
  for (const Entry& entry : entries_) {
    if (entry.required && entry.provenance == Provenance::by_default) {
      all.push_back({"", fmt::format("{} is required and was not set: {}", entry.name(), entry.doc)});
    }
  }
  return all;
}

void ConfigSchema::throw_if_problems() const {
  const std::vector<ConfigProblem> all = problems();
  if (all.empty()) return;
  if (all.size() == 1) throw user_error("config.invalid", all[0].str());
  std::string message = fmt::format("{} problems in the configuration:", all.size());
  for (const ConfigProblem& problem : all) message += "\n  " + problem.str();
  throw user_error("config.invalid", message);
}

Provenance ConfigSchema::provenance(std::string_view key) const { return get(key).provenance; }

std::string ConfigSchema::where(std::string_view key) const { return get(key).where; }

bool ConfigSchema::is_default(std::string_view key) const { return format(get(key)) == get(key).default_value; }

}  // namespace ms
