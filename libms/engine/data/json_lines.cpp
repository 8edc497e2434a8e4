#include "data/json_lines.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/text.h"
#include "data/utf8.h"

namespace ms::data {
namespace {

namespace od = simdjson::ondemand;

static_assert(JsonLine::kPadding >= simdjson::SIMDJSON_PADDING);

constexpr int kMaxLevels = 64;
constexpr std::size_t kNamedKeys = 8;  // in a hint

std::string_view without_space(std::string_view token) {
  return token.substr(0, token.find_last_not_of(" \t\r\n") + 1);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A number as JSON writes them, of any size.
bool is_number(std::string_view token) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < token.size() && is_digit(token[at])) ++at;
    return at > begin;
  };
  const auto take = [&](std::string_view any_of) {
    const bool taken = at < token.size() && any_of.find(token[at]) != std::string_view::npos;
    at += taken ? 1 : 0;
    return taken;
  };
  take("-");
  if (!take("0") && !digits()) return false;
  if (take(".") && !digits()) return false;
  if (take("eE")) {
    take("+-");
    if (!digits()) return false;
  }
  return at == token.size();
}

// The number of four hexadecimal digits; nullopt where they are none.
std::optional<std::uint32_t> hex4(std::string_view digits) {
  if (digits.size() < 4) return std::nullopt;
  std::uint32_t value = 0;
  for (const char c : digits.substr(0, 4)) {
    const char lower = static_cast<char>(c | 0x20);
    if (!is_digit(c) && !(lower >= 'a' && lower <= 'f')) return std::nullopt;
    value = value << 4 | static_cast<std::uint32_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
  }
  return value;
}

constexpr std::uint32_t kReplacement = 0xfffd;
bool is_high(std::uint32_t code) { return code >= 0xd800 && code < 0xdc00; }
bool is_low(std::uint32_t code) { return code >= 0xdc00 && code < 0xe000; }

// Appends the character of the \u escape whose digits `rest` begins with; returns how many bytes it took, 0: it is
// none.
std::size_t append_escaped(std::string_view rest, std::string& text) {
  const std::optional<std::uint32_t> code = hex4(rest);
  if (!code) return 0;
  if (is_high(*code) && rest.substr(4).starts_with("\\u")) {
    const std::optional<std::uint32_t> low = hex4(rest.substr(6));
    if (low && is_low(*low)) {
      append_utf8(text, 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00));
      return 10;
    }
  }
  append_utf8(text, is_high(*code) || is_low(*code) ? kReplacement : *code);
  return 4;
}

// Appends what a string with its quotes means; false: an escape is wrong.
bool append_string(std::string_view token, std::string& text) {
  constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  if (token.size() < 2 || token.back() != '"') return false;
  token = token.substr(1, token.size() - 2);
  for (;;) {
    const std::size_t slash = std::min(token.find('\\'), token.size());
    text.append(token.substr(0, slash));
    if (slash == token.size()) return true;
    token.remove_prefix(slash + 1);
    if (token.empty()) return false;
    if (token[0] == 'u') {
      const std::size_t taken = append_escaped(token.substr(1), text);
      if (taken == 0) return false;
      token.remove_prefix(1 + taken);
      continue;
    }
    const std::size_t which = kEscapes.find(token[0]);
    if (which == std::string_view::npos) return false;
    text.push_back(kMeanings[which]);
    token.remove_prefix(1);
  }
}

}  // namespace

JsonForm json_form(std::string_view head, std::string_view path) {
  if (head.starts_with(kUtf8Bom)) head.remove_prefix(kUtf8Bom.size());
  head = trim(head);
  if (head.starts_with('[')) return JsonForm::array;
  for (const std::string_view packed : {".gz", ".zst", ".xz", ".bz2"})
    if (path.ends_with(packed)) path.remove_suffix(packed.size());
  const bool is_named = path.ends_with(".jsonl") || path.ends_with(".ndjson");
  return is_named || head.starts_with('{') ? JsonForm::lines : JsonForm::none;
}

// A walk over all of a line: what is not wanted is looked at, too, so that a damaged line is never taken for a sound
// one.
class JsonLine::Reader {
 public:
  explicit Reader(const std::vector<std::string>& fields) {
    for (const std::string& field : fields) {
      Wanted& wanted = wanted_.emplace_back();
      wanted.name = field;
      std::size_t begin = 0, dot = 0;
      while ((dot = field.find('.', begin)) != std::string::npos) {
        wanted.path.push_back(field.substr(begin, dot - begin));
        begin = dot + 1;
      }
      wanted.path.push_back(field.substr(begin));
      if (std::ranges::find(wanted.path, "") != wanted.path.end()) {
        throw user_error("data.field", fmt::format("'{}' is not the name of a field", field),
                         "as in --field text, or --field meta.body for a member of a member");
      }
    }
    MS_ASSERT(!wanted_.empty(), "no field is wanted");
  }

  std::optional<JsonLineProblem> read(std::string_view line, std::string& text) {
    line_ = line;
    problem_.reset();
    for (Wanted& wanted : wanted_) wanted.found = false;
    od::document document;
    od::object object;
    const simdjson::error_code error = parser_.iterate(line.data(), line.size(), line.size() + kPadding).get(document);
    if (error != simdjson::SUCCESS) return JsonLineProblem{simdjson::error_message(error)};
    if (!trim(line).starts_with('{')) return JsonLineProblem{"it is not a JSON object", "", 1};
    if (const simdjson::error_code why = document.get_object().get(object)) return located(document, why);
    std::vector<Wanted*> all;
    for (Wanted& wanted : wanted_) all.push_back(&wanted);
    if (!walk(document, object, all, 0)) return problem_;
    if (const char* rest = nullptr; !document.current_location().get(rest))
      return located(document, simdjson::TRAILING_CONTENT);
    text.clear();
    for (const Wanted& wanted : wanted_) {
      if (!wanted.found) return missing(wanted);
      if (wanted.text.empty()) continue;
      if (!text.empty()) text.push_back('\n');
      text += wanted.text;
    }
    return std::nullopt;
  }

 private:
  struct Wanted {
    std::string name;
    std::vector<std::string> path;
    std::string text = {};
    bool found = false;
  };

  JsonLineProblem located(od::document& document, simdjson::error_code error) const {
    JsonLineProblem problem{simdjson::error_message(error)};
    const char* at = nullptr;
    const bool is_known = document.current_location().get(at) == simdjson::SUCCESS;
    if (is_known && at >= line_.data() && at <= line_.data() + line_.size())
      problem.column = static_cast<std::size_t>(at - line_.data()) + 1;
    return problem;
  }

  bool fail(JsonLineProblem problem) {
    problem_ = std::move(problem);
    return false;
  }

  std::size_t column_of(std::string_view token) const {
    return static_cast<std::size_t>(token.data() - line_.data()) + 1;
  }

  bool walk(od::document& document, od::object& object, const std::vector<Wanted*>& wanted, std::size_t level) {
    if (level == kMaxLevels) return fail({fmt::format("it nests deeper than {} levels", kMaxLevels)});
    for (auto result : object) {
      od::field field;
      if (const simdjson::error_code error = std::move(result).get(field)) return fail(located(document, error));
      std::vector<Wanted*> inside;
      Wanted* here = nullptr;
      if (!wanted.empty()) {
        key_.clear();
        if (!append_key(field.key())) return fail(located(document, simdjson::STRING_ERROR));
        for (Wanted* one : wanted) {
          if (one->path[level] != key_) continue;
          if (one->path.size() == level + 1) {
            here = one;
          } else {
            inside.push_back(one);
            one->found = false;  // a repeated key replaces all of the earlier value
            one->text.clear();
          }
        }
      }
      od::value value = field.value();
      if (here != nullptr ? !take(value, *here) : !check(document, value, inside, level + 1)) return false;
    }
    return true;
  }

  // A key is known by where it begins, behind its quote.
  bool append_key(od::raw_json_string key) {
    const char* const begin = key.raw() - 1;
    const char* end = begin + 1;
    while (*end != '"') end += *end == '\\' ? 2 : 1;  // simdjson has seen that it is closed
    return append_string({begin, end + 1}, key_);
  }

  bool take(od::value& value, Wanted& wanted) {
    const std::string_view token = without_space(value.raw_json_token());
    wanted.text.clear();
    wanted.found = true;
    if (token == "null") return true;
    if (token.starts_with('"')) {
      if (append_string(token, wanted.text)) return true;
      return fail({fmt::format("a wrong escape in the field '{}'", wanted.name), "", column_of(token)});
    }
    return fail({fmt::format("the field '{}' is not a string", wanted.name), "", column_of(token)});
  }

  // Whether a value is sound, with those of the wanted members that are inside it.
  bool check(od::document& document, od::value& value, const std::vector<Wanted*>& wanted, std::size_t level) {
    const std::string_view token = without_space(value.raw_json_token());
    if (token.starts_with('{')) {
      od::object object;
      if (const simdjson::error_code error = value.get_object().get(object)) return fail(located(document, error));
      return walk(document, object, wanted, level);
    }
    if (token.starts_with('[')) {
      if (level == kMaxLevels) return fail({fmt::format("it nests deeper than {} levels", kMaxLevels)});
      od::array array;
      if (const simdjson::error_code error = value.get_array().get(array)) return fail(located(document, error));
      for (auto result : array) {
        od::value element;
        if (const simdjson::error_code error = std::move(result).get(element)) return fail(located(document, error));
        if (!check(document, element, {}, level + 1)) return false;
      }
      return true;
    }
    unused_.clear();
    const bool sound = token.starts_with('"')
                           ? append_string(token, unused_)
                           : token == "true" || token == "false" || token == "null" || is_number(token);
    return sound || fail({"a value is not JSON", "", column_of(token)});
  }

  JsonLineProblem missing(const Wanted& wanted) {
    std::string names;
    od::document document;
    od::object object;
    std::size_t count = 0;
    if (!parser_.iterate(line_.data(), line_.size(), line_.size() + kPadding).get(document) &&
        !document.get_object().get(object)) {
      for (auto result : object) {
        od::field field;
        if (std::move(result).get(field)) break;
        if (++count > kNamedKeys) {
          names += ", ...";
          break;
        }
        key_.clear();
        append_key(field.key());
        if (!names.empty()) names += ", ";
        names += key_;
      }
    }
    return {fmt::format("there is no field '{}'", wanted.name),
            names.empty() ? "the object is empty"
                          : fmt::format("the object has: {}; give the field with the text as --field", names)};
  }

  od::parser parser_;
  std::vector<Wanted> wanted_;
  std::string_view line_;
  std::string key_, unused_;
  std::optional<JsonLineProblem> problem_;
};

JsonLine::JsonLine(const std::vector<std::string>& fields) : reader_(std::make_unique<Reader>(fields)) {}
JsonLine::~JsonLine() = default;
JsonLine::JsonLine(JsonLine&&) noexcept = default;

std::optional<JsonLineProblem> JsonLine::read(std::string_view line, std::string& text) {
  return reader_->read(line, text);
}

}  // namespace ms::data
