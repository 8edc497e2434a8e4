// Binding and loading; with config_value, all that knows toml11. A Loader walks one parsed document and assigns what it
// finds to the bound fields, or says why not. What goes out again (dumps, documentation) is config_dump.cpp.
#include "base/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/config_value.h"
#include "base/error.h"
#include "base/meant_name.h"
#include "base/number.h"
#include "base/text.h"
#include "base/toml_syntax.h"
#include "base/user_path.h"

namespace ms {
namespace {

// toml11 says "[error] toml::parse_table: missing ..." and then draws the line; the first line, without its
// function's name, is the observation.
std::string syntax_message(std::string_view what) {
  what = what.substr(0, what.find('\n'));
  if (what.starts_with("[error] ")) what.remove_prefix(8);
  if (what.starts_with("toml::")) {
    const std::size_t colon = what.find(": ");
    if (colon != std::string_view::npos) what.remove_prefix(colon + 2);
  }
  return std::string(trim(what));
}

// A string with a unit, as seconds or bytes.
std::optional<double> parse_with_unit(const toml::value& value, Unit unit) {
  if (!value.is_string()) return std::nullopt;
  if (unit == Unit::seconds) return parse_duration_s(toml::get<std::string>(value));
  if (unit == Unit::bytes) {
    if (const auto size_bytes = parse_size_bytes(toml::get<std::string>(value)))
      return static_cast<double>(*size_bytes);
  }
  return std::nullopt;
}

std::optional<toml::value> parse_value(std::string_view text) {
  const std::string document_text = "v = " + std::string(text) + "\n";
  if (unfit_for_toml(document_text)) return std::nullopt;
  std::istringstream stream(document_text);
  try {
    toml::value document = toml::parse(stream, "--set");
    if (document.as_table().size() != 1) return std::nullopt;  // a line break smuggled in another key
    return document.as_table().at("v");
  } catch (const std::exception&) {  // "is this TOML?" is the question, and no is an answer
    return std::nullopt;
  }
}

std::string did_you_mean(const std::optional<std::string>& name) {
  return name ? fmt::format(", did you mean '{}'?", *name) : std::string();
}

}  // namespace

class ConfigSchema::Loader {
 public:
  Loader(ConfigSchema& schema, std::string name, Provenance provenance)
      : schema_(schema), name_(std::move(name)), provenance_(provenance) {}

  void document(std::string_view text) {
    std::istringstream stream{std::string(text)};
    try {
      const toml::value root = toml::parse(stream, name_);
      if (const std::string foreign = other_file(root); !foreign.empty()) {
        found_.push_back({1, 1, foreign});
      } else {
        table(root, "");
      }
    } catch (const toml::exception& error) {
      const TomlPlace at = place_of(error);
      const SyntaxProblem problem =
          common_toml_mistake(text).value_or(SyntaxProblem{at.line, at.column, syntax_message(error.what())});
      found_.push_back({problem.line, problem.column, "not valid TOML: " + problem.message});
    } catch (const std::exception& error) {  // toml11 lets standard ones through, for numbers out of range
      found_.push_back({1, 1, "not valid TOML: " + syntax_message(error.what())});
    }
    // toml11 keeps tables unordered; people read from the top.
    std::sort(found_.begin(), found_.end());
    for (const auto& [line, column, message] : found_) {
      schema_.problems_.push_back({fmt::format("{}:{}:{}", name_, line, column), message});
    }
  }

  void assignment(std::string_view text) {
    const std::string where = fmt::format("{} {}", name_, text);
    const std::size_t equals = text.find('=');
    const auto problem = [&](std::string message) { schema_.problems_.push_back({where, std::move(message)}); };
    if (equals == std::string_view::npos) return problem("expected SECTION.KEY=VALUE");
    const std::string key(trim(text.substr(0, equals)));
    Entry* entry = schema_.find(key);
    if (entry == nullptr) return problem(unknown_key(key));
    if (auto message = assign(*entry, typed_value(*entry, trim(text.substr(equals + 1))), where)) {
      problem(std::move(*message));
    }
  }

  std::optional<std::string> default_value(Entry& entry) {
    const auto value = parse_value(entry.default_value);
    if (!value) return fmt::format("{}: {} is not TOML", entry.name(), entry.default_value);
    return assign(entry, *value, "");
  }

 private:
  using Found = std::tuple<std::size_t, std::size_t, std::string>;  // line, column, message

  void table(const toml::value& value, const std::string& path) {
    for (const auto& [key, child] : value.as_table()) {
      const std::string name = path.empty() ? key : path + "." + key;
      const TomlPlace at = place_of(child);
      const auto problem = [&](std::string message) { found_.emplace_back(at.line, at.column, std::move(message)); };
      if (Entry* entry = schema_.find(name)) {
        const std::string where = fmt::format("{}:{}:{}", name_, at.line, at.column);
        if (!set_.insert(entry).second) {  // TOML refuses a key twice, but not a key and its old name
          problem(fmt::format("'{}' and '{}' are the same key, set one", entry->old_name(), entry->name()));
        } else if (auto message = assign(*entry, child, where)) {
          problem(std::move(*message));
        }
      } else if (is_section_or_above(name)) {
        if (child.is_table()) {
          table(child, name);
        } else {
          problem(fmt::format("'{}' is a section, a table [{}] was expected, got {}", name, name, describe(child)));
        }
      } else if (child.is_table()) {
        std::vector<std::string> names;
        for (const Section& section : schema_.sections_) names.push_back(section.name);
        problem(fmt::format("unknown section '{}'{}", name, did_you_mean(meant_section(name, names))));
      } else {
        problem(unknown_key(name));
      }
    }
  }

  // The file of another program has several sections, and none that is known here. Empty: this is none.
  std::string other_file(const toml::value& root) const {
    std::vector<std::string> theirs, ours;
    for (const Section& section : schema_.sections_) ours.push_back(section.name);
    for (const auto& [name, child] : root.as_table()) {
      if (!child.is_table() || is_section_or_above(name) || meant_section(name, ours)) return "";
      theirs.push_back(name);
    }
    if (theirs.size() < 2) return "";
    std::ranges::sort(theirs);
    return fmt::format("this file is for something else: it has [{}], expected [{}]", fmt::join(theirs, "], ["),
                       fmt::join(ours, "], ["));
  }

  bool is_section_or_above(const std::string& name) const {
    return std::any_of(schema_.sections_.begin(), schema_.sections_.end(), [&](const Section& section) {
      return section.name == name || section.name.starts_with(name + ".");
    });
  }

  // Returns the message; the key that may be meant does not have the value that the user wants.
  std::string unknown_key(const std::string& name) {
    std::vector<KnownKey> known;
    for (const Entry& entry : schema_.entries_) known.push_back({entry.section, entry.key});
    const std::optional<std::string> meant = meant_key(name, known);
    if (meant) schema_.doubtful_.push_back(*meant);
    return fmt::format("unknown key '{}'{}", name, did_you_mean(meant));
  }

  // The value of --set: TOML where the type calls for it, else the bare text.
  static toml::value typed_value(const Entry& entry, std::string_view text) {
    if (std::holds_alternative<std::string*>(entry.slot)) {
      if (!text.starts_with('"') && !text.starts_with('\'')) return std::string(text);
    } else if (std::holds_alternative<std::vector<std::string>*>(entry.slot) && !text.starts_with('[')) {
      toml::array items;
      for (std::string& item : split(text, ',')) items.emplace_back(std::move(item));
      return items;
    }
    if (auto value = parse_value(text)) return std::move(*value);
    return std::string(text);  // "30s" without quotes; assign() says what is wrong with anything else
  }

  using Refusal = std::optional<std::string>;  // the message, or nullopt: accepted

  // Stores an accepted value, unless a higher source set the field already.
  Refusal assign(Entry& entry, const toml::value& value, const std::string& where) {
    const bool store = provenance_ >= entry.provenance;
    Refusal refusal = std::visit(
        [&](auto* target) {
          std::remove_pointer_t<decltype(target)> result{};
          Refusal refused = read(entry, value, result);
          if (!refused) refused = without_unit(entry, value);
          if (!refused && store) *target = std::move(result);
          return refused;
        },
        entry.slot);
    if (refusal) schema_.doubtful_.push_back(entry.name());
    if (!refusal && store) {
      entry.provenance = provenance_;
      entry.where = where;
    }
    return refusal;
  }

  // A number alone may be meant as seconds, minutes, hours or, where `every_steps` stands beside `every`, steps. 0 is
  // the same in all of them. What no text with a unit can say, being longer, is left to the range of the key.
  Refusal without_unit(const Entry& entry, const toml::value& value) const {
    if (entry.unit != Unit::seconds || value.is_string()) return std::nullopt;
    const double number = value.is_integer() ? static_cast<double>(value.as_integer()) : value.as_floating();
    if (number == 0 || !(std::abs(number) <= kMaxDuration_s)) return std::nullopt;
    const std::string text = fmt::format("{0}: {1} needs a unit, as \"{1}s\" or \"{1}m\"", entry.name(), number);
    const Entry* steps = schema_.find(entry.name() + "_steps");
    return steps == nullptr ? text : fmt::format("{}; {} counts steps", text, steps->name());
  }

  static std::string expected_number(const Entry& entry, std::string_view plain) {
    std::string text(plain);
    if (entry.unit == Unit::seconds) text = "a duration such as \"30s\" or \"1h30m\"";
    if (entry.unit == Unit::bytes) text = "a size such as \"64MiB\" or \"1GB\"";
    for (const std::string& word : entry.choices) text += fmt::format(" or \"{}\"", word);
    return text;
  }

  static bool is_word(const Entry& entry, const toml::value& value) {
    return value.is_string() && std::ranges::count(entry.choices, toml::get<std::string>(value)) > 0;
  }

  static Refusal read(const Entry& entry, const toml::value& value, std::int64_t& result) {
    if (is_word(entry, value)) {
      result = kWord;
      return std::nullopt;
    }
    if (value.is_integer()) {
      result = value.as_integer();
      // toml11 clamps what does not fit, in silence; so the two extremes are not taken at their word.
      using Limits = std::numeric_limits<std::int64_t>;
      if (result == Limits::max() || result == Limits::min()) return too_large(entry);
    } else if (const auto number = parse_with_unit(value, entry.unit)) {
      if (*number != std::floor(*number)) {
        return fmt::format("{}: must be whole {}, got {}", entry.name(), to_string(entry.unit), describe(value));
      }
      const auto whole = to_integer<std::int64_t>(*number);
      if (!whole) return too_large(entry);
      result = *whole;
    } else {
      std::string expected = expected_number(entry, "an integer");
      constexpr double kExact = 1e15;
      if (value.is_floating() && std::abs(value.as_floating()) < kExact &&
          std::trunc(value.as_floating()) == value.as_floating())
        expected += fmt::format(", without a point or an exponent: {:.0f}", value.as_floating());
      return wrong_type(entry, expected, value);
    }
    return out_of_range(entry, static_cast<double>(result));
  }

  static Refusal read(const Entry& entry, const toml::value& value, double& result) {
    if (is_word(entry, value)) {
      result = kNumberWord;
      return std::nullopt;
    }
    if (value.is_integer()) {
      result = static_cast<double>(value.as_integer());
    } else if (value.is_floating()) {
      result = value.as_floating();
      if (std::abs(result) == std::numeric_limits<double>::max()) return too_large(entry);  // clamped, as above
    } else if (const auto number = parse_with_unit(value, entry.unit)) {
      result = *number;
    } else {
      return wrong_type(entry, expected_number(entry, "a number"), value);
    }
    return out_of_range(entry, result);
  }

  static Refusal read(const Entry& entry, const toml::value& value, bool& result) {
    if (!value.is_boolean()) return wrong_type(entry, "true or false", value);
    result = value.as_boolean();
    return std::nullopt;
  }

  static Refusal read(const Entry& entry, const toml::value& value, std::string& result) {
    if (!value.is_string()) return wrong_type(entry, "a string", value);
    result = toml::get<std::string>(value);
    return unusable(entry, result);
  }

  static Refusal read(const Entry& entry, const toml::value& value, std::vector<std::string>& result) {
    if (entry.weighted_paths && value.is_string() && !toml::get<std::string>(value).starts_with('[')) {
      result = {toml::get<std::string>(value)};
      return std::nullopt;
    }
    if (!value.is_array()) return wrong_type(entry, "a list of strings", value);
    for (const toml::value& element : value.as_array()) {
      ListItem item = list_item(element, entry.weighted_paths);
      if (!item.problem.empty()) return fmt::format("{}: entry {}: {}", entry.name(), result.size() + 1, item.problem);
      if (auto refused = unusable(entry, item.text)) return refused;
      result.push_back(std::move(item.text));
    }
    return std::nullopt;
  }

  static Refusal wrong_type(const Entry& entry, std::string_view expected, const toml::value& value) {
    return fmt::format("{}: expected {}, got {}", entry.name(), expected, describe(value));
  }

  static Refusal too_large(const Entry& entry) { return fmt::format("{}: the number is too large", entry.name()); }

  static Refusal out_of_range(const Entry& entry, double number) {
    if (number >= entry.min && number <= entry.max) return std::nullopt;
    const std::string allowed = ConfigSchema::range(entry);
    const std::string unit = entry.unit == Unit::none ? "" : fmt::format(" {}", to_string(entry.unit));
    return fmt::format("{}: must be {}{}, got {}", entry.name(), allowed.empty() ? "a number" : allowed, unit, number);
  }

  static Refusal unusable(const Entry& entry, const std::string& text) {
    // A path would end there, and be another one.
    if (text.find('\0') != std::string::npos) return fmt::format("{}: must not hold U+0000", entry.name());
    return not_a_choice(entry, text);
  }

  static Refusal not_a_choice(const Entry& entry, const std::string& word) {
    if (entry.choices.empty() || std::count(entry.choices.begin(), entry.choices.end(), word) > 0) return std::nullopt;
    return fmt::format("{}: must be one of {}, got '{}'{}", entry.name(), fmt::join(entry.choices, ", "), word,
                       did_you_mean(meant_choice(word, entry.choices)));
  }

  ConfigSchema& schema_;
  std::string name_;
  Provenance provenance_;
  std::vector<Found> found_;
  std::set<const Entry*> set_;  // by this document
};

void ConfigSchema::add_section(std::string name, std::string doc) {
  for (const Section& section : sections_) { MS_ASSERT(section.name != name, "section '{}' is bound twice", name); }
  MS_ASSERT(!name.empty() && find(name) == nullptr, "section '{}' has no name of its own", name);
  sections_.push_back({std::move(name), std::move(doc)});
}

void ConfigSchema::add_entry(Entry entry) {
  MS_ASSERT(find(entry.name()) == nullptr, "key '{}' is bound twice", entry.name());
  const bool number = std::holds_alternative<std::int64_t*>(entry.slot) || std::holds_alternative<double*>(entry.slot);
  MS_ASSERT(number || entry.unit == Unit::none, "key '{}' has a unit, but is not a number", entry.name());
  entry.default_value = format(entry);
  if (!entry.required) {
    // The default must be a value that a user could have written; parsing it back is the same check that theirs pass.
    const auto problem = Loader(*this, "default", Provenance::by_default).default_value(entry);
    MS_ASSERT(!problem, "the default is refused: {}", *problem);
  }
  entries_.push_back(std::move(entry));
}

ConfigSchema::Entry* ConfigSchema::find(std::string_view name) {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.has_name(name); });
  return it == entries_.end() ? nullptr : &*it;
}

const ConfigSchema::Entry& ConfigSchema::get(std::string_view name) const {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.has_name(name); });
  MS_ASSERT(it != entries_.end(), "no configuration key '{}' is bound", name);
  return *it;
}

void ConfigSchema::load_file(const std::string& path, Provenance provenance) {
  load_text(read_user_file(path, TomlBounds().bytes), path, provenance);
}

void ConfigSchema::load_text(std::string_view text, const std::string& name, Provenance provenance) {
  if (const auto unfit = unfit_for_toml(text)) {
    problems_.push_back({fmt::format("{}:{}:{}", name, unfit->line, unfit->column), "not read: " + unfit->message});
    return;
  }
  Loader(*this, name, provenance).document(text);
}

void ConfigSchema::set(std::string_view assignment, std::string_view option) {
  Loader(*this, std::string(option), Provenance::set).assignment(assignment);
}

void ConfigSchema::add_problem(std::string_view key, std::string message) {
  const auto is_about = [&](const std::string& name) { return key == name || message.find(name) != std::string::npos; };
  if (std::ranges::none_of(doubtful_, is_about)) problems_.push_back({get(key).where, std::move(message)});
}

}  // namespace ms
