// Configuration. Every module keeps a plain struct of settings beside its code, with one table of Field rows; the table
// drives parsing, validation, dumps and ms.toml(5), so that nothing is typed twice. Tools bind the structs they use to
// a ConfigSchema, load files and --set values into it, and call throw_if_problems() once: all problems come at once.
// The default of a field is what its struct holds when it is bound. The schema points into the structs: they outlive
// it.
//
//   struct LoaderConfig { std::int64_t workers = 2; double timeout_s = 30; std::string order = "shuffled"; };
//   inline constexpr Field<LoaderConfig> kLoaderFields[] = {
//       {"workers", &LoaderConfig::workers, "Threads that read ahead.", Unit::none, 0, 64},
//       {"timeout", &LoaderConfig::timeout_s, "Patience.", Unit::seconds, 0},
//       {.key = "order", .member = &LoaderConfig::order, .doc = "Order of samples.", .choices = {"shuffled",
//       "plain"}}};
//   schema.section("loader", "How samples are read.", config.loader, kLoaderFields);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace ms {

// seconds: "30s", "5m", "1h30m", "250ms", or 0; bytes: "64MiB", "1GB", or a plain number.
enum class Unit { none, seconds, bytes };

// Who set a value, in order of precedence: a lower source never overrides a higher one, whatever the order of loading.
enum class Provenance { by_default, site, checkpoint, file, set };

std::string_view to_string(Unit unit);
std::string_view to_string(Provenance provenance);  // "default", "site", "checkpoint", "file", "--set"

// The words that a string (or each word of a list) may be; empty: any. A number may be its only word instead: an
// integer is kWord then, another number kNumberWord, which the ranges of such keys leave out.
inline constexpr std::int64_t kWord = 0;
inline constexpr double kNumberWord = -1;
class Choices {
 public:
  static constexpr std::size_t kMax = 16;
  constexpr Choices() = default;
  constexpr Choices(std::initializer_list<std::string_view> words) {  // NOLINT: implicit on purpose, for tables
    for (const std::string_view word : words) add(word);
  }
  constexpr void add(std::string_view word) { words_.at(size_++) = word; }
  constexpr const std::string_view* begin() const { return words_.data(); }
  constexpr const std::string_view* end() const { return words_.data() + size_; }

 private:
  std::array<std::string_view, kMax> words_{};
  std::size_t size_ = 0;
};

template <class T>
struct Field {
  std::string_view key;
  std::variant<std::int64_t T::*, double T::*, bool T::*, std::string T::*, std::vector<std::string> T::*> member;
  std::string_view doc;  // one sentence
  Unit unit = Unit::none;
  double min = -std::numeric_limits<double>::infinity();  // of numbers, inclusive
  double max = std::numeric_limits<double>::infinity();
  Choices choices = {};  // of strings, lists, and numbers that may be a word
  bool required = false;
  std::string_view old_key = {};  // a name of earlier versions, still read; undocumented
  // Lists so marked take a string alone as a list of one, and a table {path = "P", weight = 3} as the item "3 P".
  bool weighted_paths = false;
};

struct ConfigProblem {
  std::string where;    // "train.toml:3:5", "--set model.layers=x", or empty
  std::string message;  // "unknown key 'modle.layers', did you mean 'model.layers'?"
  std::string str() const { return where.empty() ? message : where + ": " + message; }
};

// One key as documentation shows it; what does not apply is empty.
struct ConfigRow {
  std::string section;
  std::string section_doc;
  std::string key;
  std::string type;           // integer, number, boolean, string, list, duration, size
  std::string default_value;  // as TOML; empty where required
  std::string range;          // "at least 1", "0 to 64"
  std::string unit;           // "seconds", "bytes"
  std::string doc;
  std::vector<std::string> choices;
  bool required = false;
};

class ConfigSchema {
 public:
  // Binds a table to a struct. `name` may have dots ("optim.adamw"). A table that contradicts itself (a key twice, a
  // default out of its range) is a bug of ours and asserts.
  template <class T>
  void section(std::string name, std::string doc, T& target, std::span<const Field<std::type_identity_t<T>>> table);

  // Throws ms::Error (file.*) where the file cannot be read; what is wrong inside becomes problems.
  void load_file(const std::string& path, Provenance provenance = Provenance::file);
  void load_text(std::string_view text, const std::string& name, Provenance provenance = Provenance::file);
  // "a.b=c", given to this option. Read by type: strings need no quotes, lists are a,b or TOML.
  void set(std::string_view assignment, std::string_view option = "--set");

  // For rules between fields, which modules check: the problem is shown where `key` was set. Ignored where it is about
  // a key whose value was refused, or that an unknown one may have meant: it would cite a value that nobody wants.
  void add_problem(std::string_view key, std::string message);

  // Returns the problems found so far, and one for every required key that nobody set.
  std::vector<ConfigProblem> problems() const;
  // Error("config.invalid", user) with all problems, one a line.
  void throw_if_problems() const;

  // Who set `key` ("model.layers"), and where: "train.toml:3:5", "--set ...", or empty for a default.
  Provenance provenance(std::string_view key) const;
  std::string where(std::string_view key) const;
  bool is_default(std::string_view key) const;  // the value now, whoever set it

  // Valid TOML that loads to exactly the same values; with provenance, each line ends in "# set by file".
  std::string dump(bool provenance) const;
  std::vector<ConfigRow> reference() const;

 private:
  using Slot = std::variant<std::int64_t*, double*, bool*, std::string*, std::vector<std::string>*>;
  struct Entry {
    std::string section;
    std::string key;
    std::string doc;
    Unit unit;
    double min;
    double max;
    std::vector<std::string> choices;
    bool required;
    Slot slot;
    bool weighted_paths = false;
    std::string default_value = {};
    Provenance provenance = Provenance::by_default;
    std::string where = {};
    std::string old_key = {};
    std::string name() const { return section + "." + key; }
    std::string old_name() const { return section + "." + old_key; }
    bool has_name(std::string_view text) const { return text == name() || (!old_key.empty() && text == old_name()); }
  };
  struct Section {
    std::string name;
    std::string doc;
  };
  class Loader;

  void add_section(std::string name, std::string doc);
  void add_entry(Entry entry);
  static std::string format(const Entry& entry);  // the value now, as TOML
  static std::string range(const Entry& entry);   // "0 to 64", or empty
  Entry* find(std::string_view name);
  const Entry& get(std::string_view name) const;

  std::vector<Section> sections_;
  std::vector<Entry> entries_;
  std::vector<ConfigProblem> problems_;
  std::vector<std::string> doubtful_;  // names of keys that do not have the value that the user wants
};

template <class T>
void ConfigSchema::section(std::string name, std::string doc, T& target,
                           std::span<const Field<std::type_identity_t<T>>> table) {
  add_section(name, std::move(doc));
  for (const Field<T>& field : table) {
    add_entry({.section = name,
               .key = std::string(field.key),
               .doc = std::string(field.doc),
               .unit = field.unit,
               .min = field.min,
               .max = field.max,
               .choices = {field.choices.begin(), field.choices.end()},
               .required = field.required,
               .slot = std::visit([&](auto member) -> Slot { return &(target.*member); }, field.member),
               .weighted_paths = field.weighted_paths,
               .old_key = std::string(field.old_key)});
  }
}

}  // namespace ms
