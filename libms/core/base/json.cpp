#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace ms {

// ---- reading

// Builds a value from the events of the library's parser.
class Json::Builder {
 public:
  explicit Builder(const JsonOptions& options) : options_(options) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return false; }  // not in texts
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    Container& object = open_.back();
    if (object.keys.contains(name) && options_.on_duplicate) options_.on_duplicate(open_.size(), name);
    object.key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) {
    const std::string_view text = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    problem_ = fmt::format("is not JSON: {}", text.substr(text.find("] ") + 2));
    return false;
  }

  Json take() { return std::move(done_); }
  const std::string& problem() const { return problem_; }

 private:
  struct Container {
    Json value;
    std::string key;                                    // of the member that comes next
    std::unordered_map<std::string, std::size_t> keys;  // where each member is
  };

  bool open(Json container) {
    if (open_.size() == options_.max_depth) {
      problem_ = fmt::format("nests more than {} deep", options_.max_depth);
      return false;
    }
    open_.push_back({.value = std::move(container), .key = {}, .keys = {}});
    return true;
  }
  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }
  bool add(Json value) {
    if (open_.empty()) {
      done_ = std::move(value);
      return true;
    }
    if (options_.keep && !options_.keep(open_.size(), open_.front().key, value)) return true;
    Container& container = open_.back();
    if (auto* array = std::get_if<Json::Array>(&container.value.value_)) {
      array->push_back(std::move(value));
      return true;
    }
    auto& object = std::get<Json::Object>(container.value.value_);
    const auto [known, added] = container.keys.try_emplace(container.key, object.size());
    if (added) {
      object.push_back({container.key, std::move(value)});
    } else {
      object[known->second].value = std::move(value);
    }
    return true;
  }

  const JsonOptions& options_;
  std::vector<Container> open_;
  Json done_;
  std::string problem_;
};

std::optional<Json> Json::try_parse(std::string_view text, const JsonOptions& options, std::string* problem) {
  Builder builder(options);
  if (nlohmann::json::sax_parse(text, &builder)) return builder.take();
  if (problem != nullptr) *problem = builder.problem();
  return std::nullopt;
}

Json Json::parse(std::string_view text, const JsonOptions& options) {
  std::string problem;
  std::optional<Json> value = try_parse(text, options, &problem);
  if (!value) throw JsonError(problem);
  return std::move(*value);
}

// ---- printing

class Json::Printer {
 public:
  Printer(int indent, bool ascii) : indent_(indent), ascii_(ascii) {}

  std::string print(const Json& json) {
    value(json, 0);
    return std::move(out_);
  }

 private:
  void value(const Json& json, int level) {
    if (const auto* text = std::get_if<std::string>(&json.value_)) {
      string(*text);
    } else if (const auto* array = std::get_if<Json::Array>(&json.value_)) {
      list('[', ']', *array, level, [&](const Json& element) { value(element, level + 1); });
    } else if (const auto* object = std::get_if<Json::Object>(&json.value_)) {
      list('{', '}', *object, level, [&](const Json::Member& member) {
        string(member.key);
        out_ += indent_ < 0 ? ":" : ": ";
        value(member.value, level + 1);
      });
    } else if (const auto* number = std::get_if<double>(&json.value_)) {
      out_ += nlohmann::json(*number).dump();
    } else if (const auto* whole = std::get_if<std::int64_t>(&json.value_)) {
      out_ += std::to_string(*whole);
    } else if (const auto* large = std::get_if<std::uint64_t>(&json.value_)) {
      out_ += std::to_string(*large);
    } else if (const auto* boolean = std::get_if<bool>(&json.value_)) {
      out_ += *boolean ? "true" : "false";
    } else {
      out_ += "null";
    }
  }
  template <class List, class Each>
  void list(char begin, char end, const List& list, int level, Each each) {
    out_ += begin;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out_ += ',';
      new_line(level + 1);
      each(list[i]);
    }
    if (!list.empty()) new_line(level);
    out_ += end;
  }
  void new_line(int level) {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(level * indent_), ' ');
  }
  void string(const std::string& text) {
    const bool plain =
        std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; });
    out_ +=
        plain ? '"' + text + '"' : nlohmann::json(text).dump(-1, ' ', ascii_, nlohmann::json::error_handler_t::replace);
  }

  int indent_;
  bool ascii_;
  std::string out_;
};

std::string Json::dump(int indent) const { return Printer(indent, false).print(*this); }
std::string Json::dump_ascii() const { return Printer(-1, true).print(*this); }

// ---- building

Json::Json() = default;
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json::Json(std::initializer_list<Json> list) {
  const bool pairs = std::all_of(list.begin(), list.end(), [](const Json& element) {
    return element.is_array() && element.size() == 2 && element[0].is_string();
  });
  if (!pairs) {
    value_ = Array(list);
    return;
  }
  value_ = Object();
  for (const Json& pair : list) add(pair[0].text(), pair[1]);
}

Json Json::array() {
  Json json;
  json.value_ = Array();
  return json;
}

Json Json::object() {
  Json json;
  json.value_ = Object();
  return json;
}

void Json::add(std::string_view key, Json value) { (*this)[key] = std::move(value); }

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  MS_ASSERT(is_object(), "a JSON value with the member '{}' is not an object", key);
  auto& object = std::get<Object>(value_);
  for (Member& member : object) {
    if (member.key == key) return member.value;
  }
  object.push_back({std::string(key), Json()});
  return object.back().value;
}

void Json::update(const Json& object) {
  for (const Member& member : object.items()) (*this)[member.key] = member.value;
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array();
  MS_ASSERT(is_array(), "a JSON value that grows is not an array");
  std::get<Array>(value_).push_back(std::move(value));
}

Json& Json::operator[](std::size_t index) {
  MS_ASSERT(is_array() && index < size(), "a JSON array has no element {}", index);
  return std::get<Array>(value_)[index];
}

Json& Json::back() { return (*this)[size() - 1]; }

// ---- looking

const Json* Json::find(std::string_view key) const {
  const auto* object = std::get_if<Object>(&value_);
  if (object == nullptr) return nullptr;
  const auto found = std::find_if(object->begin(), object->end(), [&](const Member& m) { return m.key == key; });
  return found == object->end() ? nullptr : &found->value;
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) throw JsonError(fmt::format("'{}' is missing: its place is not an object", key));
  const Json* value = find(key);
  if (value == nullptr) throw JsonError(fmt::format("'{}' is missing", key));
  return *value;
}

const Json& Json::at(std::size_t index) const {
  const auto* array = std::get_if<Array>(&value_);
  if (array == nullptr || index >= array->size()) throw JsonError(fmt::format("is not a list with element {}", index));
  return (*array)[index];
}

const Json::Object& Json::items() const {
  if (!is_object()) throw JsonError("is not an object");
  return std::get<Object>(value_);
}

Json::Array::const_iterator Json::begin() const {
  if (!is_array()) throw JsonError("is not a list");
  return std::get<Array>(value_).begin();
}
Json::Array::const_iterator Json::end() const {
  if (!is_array()) throw JsonError("is not a list");
  return std::get<Array>(value_).end();
}

std::size_t Json::size() const {
  if (is_object()) return std::get<Object>(value_).size();
  if (is_array()) return std::get<Array>(value_).size();
  return is_null() ? 0 : 1;
}

bool Json::boolean(std::string_view what) const {
  if (const auto* value = std::get_if<bool>(&value_)) return *value;
  throw JsonError(fmt::format("{} is neither true nor false", what));
}

template <class T>
T Json::integer(std::string_view what, T min, T max) const {
  const auto* whole = std::get_if<std::int64_t>(&value_);
  const auto* large = std::get_if<std::uint64_t>(&value_);
  if (whole == nullptr && large == nullptr) throw JsonError(fmt::format("{} is not a whole number", what));
  const bool fits = whole != nullptr ? std::cmp_greater_equal(*whole, min) && std::cmp_less_equal(*whole, max)
                                     : std::cmp_less_equal(*large, max);
  if (!fits) throw JsonError(fmt::format("{} is out of range", what));
  return whole != nullptr ? static_cast<T>(*whole) : static_cast<T>(*large);
}
template std::int64_t Json::integer(std::string_view, std::int64_t, std::int64_t) const;
template std::uint64_t Json::integer(std::string_view, std::uint64_t, std::uint64_t) const;

double Json::number(std::string_view what) const {
  if (const auto* whole = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*whole);
  if (const auto* large = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*large);
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  throw JsonError(fmt::format("{} is not a number", what));
}

const std::string& Json::text(std::string_view what) const {
  if (const auto* value = std::get_if<std::string>(&value_)) return *value;
  throw JsonError(fmt::format("{} is not a text", what));
}

bool operator==(const Json& a, const Json& b) {
  return std::visit(
      []<class X, class Y>(const X& x, const Y& y) {
        constexpr bool kWhole = std::integral<X> && std::integral<Y>,
                       kNumbers = std::is_arithmetic_v<X> && std::is_arithmetic_v<Y>;
        if constexpr (std::same_as<X, Y>) {
          return x == y;
        } else if constexpr (!kNumbers || std::same_as<X, bool> || std::same_as<Y, bool>) {
          return false;
        } else if constexpr (kWhole) {
          return std::cmp_equal(x, y);
        } else {
          return static_cast<double>(x) == static_cast<double>(y);
        }
      },
      a.value_, b.value_);
}

}  // namespace ms
