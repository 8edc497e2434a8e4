// Reads keys of config.json, and collects what is wrong with them.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "hf/json_value.h"
#include "hf/problems.h"

namespace ms::hf {

// The values of a config.json key that match what we compute. Keys that are neither here nor read below do not change
// the logits: these classes of transformers do not read them.
struct Required {
  std::string_view key;
  std::vector<Json> values;  // any of these; absent and null are always fine
};
// Reads keys of an object; what is wrong with them is collected.
class Reader {
 public:
  Reader(const Json& object, Problems& problems) : object_(object), problems_(problems) {}

  std::int64_t integer(std::string_view key, std::optional<std::int64_t> fallback = {}) {
    return get<std::int64_t>(key, fallback, "a whole number below 2^63", [](const Json& value) {
      return value.is_number_integer() &&
             (!value.is_number_unsigned() || std::in_range<std::int64_t>(value.get<std::uint64_t>()));
    });
  }
  double number(std::string_view key, std::optional<double> fallback = {}) {
    return get<double>(key, fallback, "a number", [](const Json& value) { return value.is_number(); });
  }
  bool boolean(std::string_view key, bool fallback) {
    return get<bool>(key, fallback, "true or false", [](const Json& value) { return value.is_boolean(); });
  }
  // null where it is absent.
  const Json& at(std::string_view key) const {
    static const Json kNull;
    const Json* value = object_.find(key);
    return value == nullptr ? kNull : *value;
  }
  bool has_null(std::string_view key) const {
    const Json* value = object_.find(key);
    return value != nullptr && value->is_null();
  }
  void require(const Required& rule) {
    const Json& value = at(rule.key);
    if (value.is_null() || std::find(rule.values.begin(), rule.values.end(), value) != rule.values.end()) return;
    std::vector<std::string> supported;
    for (const Json& each : rule.values) supported.push_back(each.dump());
    problems_.add(fmt::format("{} = {} is not supported, only {}", rule.key, plain_text(value.dump(), 120),
                              supported.empty() ? "models without it" : fmt::format("{}", fmt::join(supported, ", "))));
  }

 private:
  template <class T, class Is>
  T get(std::string_view key, std::optional<T> fallback, std::string_view what, Is is) {
    const Json& value = at(key);
    if (!value.is_null() && is(value)) return value.get<T>();
    if (!value.is_null()) problems_.add(fmt::format("{} = {} is not {}", key, shown(value, 120), what));
    if (value.is_null() && !fallback) problems_.add(fmt::format("{} is missing", key));
    return fallback.value_or(T{1});
  }
  const Json& object_;
  Problems& problems_;
};

}  // namespace ms::hf
