// JSON documents: building, reading and printing. Only json.cpp knows the JSON library.
//
// A document is built from nested lists. A list of pairs {text, value} is an object, any other list is an array:
//   Json json{{"schema", 1}, {"ranks", {0, 4}}, {"files", Json::array()}};
//   json["files"].push_back({{"name", "a"}, {"size_bytes", 17}});
// The members of an object stay in the order in which they were added.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace ms {

// A text that is not JSON, or a value that is missing, out of range or of another type. The caller knows whose document
// it is and turns this into an ms::Error.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Json;

struct JsonOptions {
  // Objects and arrays may nest this deep. Values are destroyed and printed by recursion, so there is always a limit.
  std::size_t max_depth = 64;
  // Called when an object has a key twice, with the number of containers around the key. Of such values the last stays.
  std::function<void(std::size_t depth, const std::string& key)> on_duplicate = {};
  // Called with each complete value inside the document, the number of containers around it, and the member of the
  // document that it belongs to. Values for which it returns false are dropped.
  std::function<bool(std::size_t depth, const std::string& top_key, const Json& value)> keep = {};
};

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json();  // null
  Json(std::nullptr_t) : Json() {}
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  template <std::integral T>
  Json(T value);
  template <std::floating_point T>
  Json(T value);
  // Ranges become arrays, maps from text become objects.
  template <class T>
  requires(!std::same_as<T, Json> && !std::convertible_to<T, std::string_view> && std::ranges::range<const T>)
      Json(const T& range) {
    if constexpr (requires { range.begin()->second; }) {
      *this = object();
      for (const auto& [key, value] : range) add(key, value);
    } else {
      *this = array();
      for (const auto& value : range) push_back(Json(value));
    }
  }
  Json(std::initializer_list<Json> list);
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  static Json array();
  static Json object();

  // JsonError: not JSON, or nested too deeply.
  static Json parse(std::string_view text, const JsonOptions& options = {});
  // The same without an exception; `problem`, where given, becomes what is wrong.
  static std::optional<Json> try_parse(std::string_view text, const JsonOptions& options = {},
                                       std::string* problem = nullptr);

  // On one line, or with this many blanks of indentation a level. Bytes that are not UTF-8 are replaced, numbers that
  // are not finite become null.
  std::string dump(int indent = -1) const;
  // On one line, with escapes for all that is not ASCII.
  std::string dump_ascii() const;

  bool is_null() const { return holds<std::nullptr_t>(); }
  bool is_boolean() const { return holds<bool>(); }
  bool is_number_integer() const { return holds<std::int64_t>() || holds<std::uint64_t>(); }
  bool is_number_unsigned() const { return holds<std::uint64_t>(); }  // from a text: any integer without a sign
  bool is_number() const { return is_number_integer() || holds<double>(); }
  bool is_string() const { return holds<std::string>(); }
  bool is_array() const { return holds<Array>(); }
  bool is_object() const { return holds<Object>(); }

  // The value as a T: bool, an integer type, double, std::string, or std::vector or std::map from text of these.
  // JsonError where it is of another type or out of T's range.
  template <class T>
  T get() const {
    return as<T>("the value");
  }
  // The same of a member. JsonError names the key.
  template <class T>
  T get(std::string_view key) const {
    return at(key).as<T>(key);
  }
  template <class T>
  void get_to(std::string_view key, T& target) const {
    target = get<T>(key);
  }
  const std::string& text() const { return text("the value"); }  // JsonError: not a string

  // Objects. null becomes one when a member is added.
  Json& operator[](std::string_view key);        // adds null where the key is missing
  const Json& at(std::string_view key) const;    // JsonError: missing, or not an object
  const Json* find(std::string_view key) const;  // nullptr: missing, or not an object
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Object& items() const;      // JsonError: not an object
  void update(const Json& object);  // sets its members here

  // Arrays. null becomes one when a value is added.
  void push_back(Json value);
  Json& operator[](std::size_t index);
  const Json& at(std::size_t index) const;  // JsonError: beyond the end, or not an array
  const Json& operator[](std::size_t index) const { return at(index); }
  Json& back();
  Array::const_iterator begin() const;  // JsonError: not an array
  Array::const_iterator end() const;

  std::size_t size() const;  // of an array or an object; 0 of null, 1 of any other value
  bool empty() const { return size() == 0; }

  // Numbers compare by value.
  friend bool operator==(const Json& a, const Json& b);

 private:
  class Builder;
  class Printer;

  template <class T>
  bool holds() const {
    return std::holds_alternative<T>(value_);
  }
  void add(std::string_view key, Json value);
  // JsonError, with `what` as the value's name: of another type, or out of range.
  template <class T>
  T as(std::string_view what) const;
  bool boolean(std::string_view what) const;
  template <class T>
  T integer(std::string_view what, T min, T max) const;  // of the 64-bit types
  double number(std::string_view what) const;
  const std::string& text(std::string_view what) const;

  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string key;
  Json value;
  bool operator==(const Member&) const = default;
};

// Behind Member, of which clang needs the definition for every assignment to value_.
template <std::integral T>
Json::Json(T value) {
  if constexpr (std::same_as<T, bool>) {
    value_ = value;
  } else if constexpr (std::signed_integral<T>) {
    value_ = static_cast<std::int64_t>(value);
  } else {
    value_ = static_cast<std::uint64_t>(value);
  }
}

template <std::floating_point T>
Json::Json(T value) : value_(static_cast<double>(value)) {}

template <class T>
T Json::as(std::string_view what) const {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::same_as<T, bool>) {
    return boolean(what);
  } else if constexpr (std::integral<T>) {
    using Wide = std::conditional_t<std::signed_integral<T>, std::int64_t, std::uint64_t>;
    return static_cast<T>(integer<Wide>(what, Limits::min(), Limits::max()));
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(number(what));
  } else if constexpr (std::same_as<T, std::string>) {
    return text(what);
  } else if constexpr (requires { typename T::mapped_type; }) {
    T map;
    for (const Member& member : items()) map[member.key] = member.value.as<typename T::mapped_type>(member.key);
    return map;
  } else {
    T list;
    for (const Json& value : *this) list.insert(list.end(), value.as<typename T::value_type>(what));
    return list;
  }
}

}  // namespace ms
