// The objects of a JSON array, handed to a function one by one as simdjson's on-demand objects: at the speed of
// simdjson where the array is sound, one by one and around what is broken where it is not. The one file that knows
// simdjson.h; chrome_events.cpp and flight_recorder_reader.cpp use it.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "tracepp/read/json_text.h"

namespace ms::tracepp {

static_assert(JsonText::kPadding > simdjson::SIMDJSON_PADDING);  // the bracket behind a piece takes a byte

using JsonObject = simdjson::ondemand::object;
using JsonValue = simdjson::ondemand::value;

using Problems = std::map<std::string, std::uint64_t>;

// Makes text of bytes that are none: control characters become spaces, what is no UTF-8 question marks. How many.
std::uint64_t clean_text(std::span<char> text);

// A string's text without quotes and escapes; as it stands where its escapes are wrong, or it has no quotes.
std::string unescaped(std::string_view token);

// The token of a value that is neither object nor array, with its quotes, without the space behind it.
inline std::string_view token_of(JsonValue& value) {
  std::string_view token = value.raw_json_token();
  while (!token.empty() &&
         (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' || token.back() == '\t')) {
    token.remove_suffix(1);
  }
  return token;
}

// After an error simdjson's iterators are dead, and must not be touched: whoever is told false leaves, up to
// JsonObjects.

// The text of any value, nested ones whole. False: it is broken.
inline bool text_of(JsonValue& value, std::string_view& text) {
  text = token_of(value);
  if (text.empty() || (text[0] != '{' && text[0] != '[')) return true;
  simdjson::ondemand::array array;
  JsonObject object;
  if (text[0] == '[') return !value.get_array().get(array) && !array.raw_json().get(text);
  return !value.get_object().get(object) && !object.raw_json().get(text);
}

// handle(std::string_view key, JsonValue&) -> bool for each field. False: it said so, or the object is broken.
template <class Handle>
bool each_field(JsonObject& object, Handle&& handle) {
  for (auto result : object) {
    simdjson::ondemand::field field;
    std::string_view key;
    if (std::move(result).get(field) || field.unescaped_key().get(key) || !handle(key, field.value())) return false;
  }
  return true;
}

// The same of an object inside; what is none is passed by.
template <class Handle>
bool each_field(JsonValue& value, Handle&& handle) {
  JsonObject object;
  if (!value.raw_json_token().starts_with('{')) return true;
  return !value.get_object().get(object) && each_field(object, handle);
}

// handle(JsonValue&) -> bool for each value of an array; what is none is passed by.
template <class Handle>
bool each_value(JsonValue& value, Handle&& handle) {
  simdjson::ondemand::array array;
  if (!value.raw_json_token().starts_with('[')) return true;
  if (value.get_array().get(array)) return false;
  for (auto result : array) {
    JsonValue element;
    if (std::move(result).get(element) || !handle(element)) return false;
  }
  return true;
}

class JsonObjects {
 public:
  JsonObjects(JsonText& text, Problems& problems) : text_(text), problems_(problems) {}

  // From behind the `[` to behind the `]`: hands every object to handle(JsonObject&) -> bool, which reads all of its
  // fields, or returns false, having done nothing, where one is broken. False: the text ended first.
  template <class Handle>
  bool each(Handle&& handle);

  // A single object that stands in padded text. What handle says; false where it is none.
  template <class Handle>
  bool one(std::span<char> text, Handle&& handle);

 private:
  static constexpr std::size_t kGoalBytes = 1 << 16, kLeastBytes = 1 << 12;
  static constexpr std::size_t kMostAlone = 1 << 10;  // values one by one: a piece of only wrong ones is dear to try
  enum class Ended : std::uint8_t { whole, array_end, broken, bad_text, bad_cut };
  struct Outcome {
    Ended how;
    std::size_t bytes = 0;  // of the piece, read
    bool handed = false;    // where broken: the value at `bytes` was read nevertheless
  };
  template <class Handle>
  Outcome piece(std::span<char> piece, Handle&& handle);
  // The next `count` values, each by itself, as far as the array goes. `handed`: the first was read already. False: the
  // text ended first.
  template <class Handle>
  bool alone(std::size_t count, bool handed, Handle&& handle);

  JsonText& text_;
  Problems& problems_;
  simdjson::ondemand::parser parser_;
};

template <class Handle>
bool JsonObjects::each(Handle&& handle) {
  std::size_t goal = kGoalBytes, alone_count = 1;
  bool exact = false;
  for (;;) {
    const char next = text_.peek();
    if (next == ']' || next == ',') {
      text_.take();
      if (next == ']') return true;
      continue;
    }
    const std::span<char> bytes = next == '\0' ? std::span<char>{} : text_.piece(goal, exact);
    if (bytes.empty()) return false;
    Outcome outcome = piece(bytes, handle);
    if (outcome.how == Ended::bad_text) {
      problems_["bytes that are no text"] += clean_text(bytes);
      outcome = piece(bytes, handle);
    }
    if (outcome.how == Ended::bad_cut && !exact) {
      exact = true;
      continue;
    }
    exact = false;
    text_.take(outcome.bytes);
    if (outcome.how == Ended::whole || outcome.how == Ended::array_end) {
      goal = std::min(kGoalBytes, 2 * goal);
      alone_count = 1;
      continue;
    }
    // Wrong only because the piece ended inside of it, or wrong by itself: this one alone will tell.
    goal = std::max(kLeastBytes, goal / 4);
    if (!alone(alone_count, outcome.handed, handle)) return false;
    alone_count = std::min(2 * alone_count, kMostAlone);
  }
}

template <class Handle>
bool JsonObjects::alone(std::size_t count, bool handed, Handle&& handle) {
  for (std::size_t i = 0; i < count;) {
    const char next = text_.peek();
    if (next == ']' || next == '\0') return true;  // each() knows what to do
    const auto value = text_.value();
    if (!value) return false;
    if (value->empty()) {
      text_.take();  // what can only stand between values
      continue;
    }
    if (i > 0 || !handed) {
      const std::span<char> span(const_cast<char*>(value->data()), value->size());  // of text_'s own window
      if (!one(span, handle)) ++problems_["record that is no sound JSON object"];
    }
    ++i;
  }
  return true;
}

template <class Handle>
bool JsonObjects::one(std::span<char> text, Handle&& handle) {
  simdjson::ondemand::document document;
  simdjson::ondemand::object object;
  if (parser_.iterate(text.data(), text.size(), text.size() + simdjson::SIMDJSON_PADDING).get(document)) {
    problems_["bytes that are no text"] += clean_text(text);
    if (parser_.iterate(text.data(), text.size(), text.size() + simdjson::SIMDJSON_PADDING).get(document)) return false;
  }
  return !document.get_object().get(object) && handle(object);
}

template <class Handle>
JsonObjects::Outcome JsonObjects::piece(std::span<char> piece, Handle&& handle) {
  // As an array of its own. What the two brackets overwrite is put back.
  char* const first = piece.data() - 1;
  char* const last = piece.data() + piece.size();
  const char before = std::exchange(*first, '['), behind = std::exchange(*last, ']');
  const std::size_t size = piece.size() + 2;
  const auto read = [&]() -> Outcome {
    simdjson::ondemand::document document;
    simdjson::ondemand::array array;
    if (const auto error = parser_.iterate(first, size, size + simdjson::SIMDJSON_PADDING).get(document)) {
      const bool cut = error == simdjson::UNCLOSED_STRING || error == simdjson::EMPTY;
      return {.how = cut ? Ended::bad_cut : Ended::bad_text};
    }
    if (document.get_array().get(array)) return {.how = Ended::broken};
    const char* at = piece.data();
    bool handed = false;
    for (auto element : array) {
      JsonValue value;
      if (std::move(element).get(value))
        return {.how = Ended::broken, .bytes = static_cast<std::size_t>(at - piece.data()), .handed = handed};
      at = value.raw_json_token().data();
      handed = false;
      JsonObject object;
      if (value.get_object().get(object) || !handle(object)) {
        return {.how = Ended::broken, .bytes = static_cast<std::size_t>(at - piece.data())};
      }
      handed = true;
    }
    const char* rest = nullptr;
    if (document.current_location().get(rest)) return {.how = Ended::whole, .bytes = piece.size()};
    // The array's own bracket came earlier than ours.
    while (rest[-1] != ']') --rest;
    return {.how = Ended::array_end, .bytes = static_cast<std::size_t>(rest - 1 - piece.data())};
  };
  const Outcome outcome = read();
  *first = before;
  *last = behind;
  return outcome;
}

}  // namespace ms::tracepp
