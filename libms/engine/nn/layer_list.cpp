#include "nn/layer_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/text.h"

namespace ms::nn {
namespace {

// The layers first, first + step, ..., up to last.
struct Entry {
  std::int64_t first = 0, last = 0, step = 1;
  bool has(std::int64_t layer) const { return first <= layer && layer <= last && (layer - first) % step == 0; }
};

// Takes a number from the beginning of a text.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || text.starts_with('-')) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}
bool take(std::string_view& text, char mark) {
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<Entry> parse_entry(std::string_view text) {
  const auto first = take_number(text);
  if (!first) return std::nullopt;
  Entry entry{*first, *first, 1};
  if (take(text, '-')) {
    const auto last = take_number(text);
    const auto step = take(text, ':') ? take_number(text) : 1;
    if (!last || *last < *first || !step || *step < 1) return std::nullopt;
    entry.last = *last, entry.step = *step;
  }
  return text.empty() ? std::optional(entry) : std::nullopt;
}

}  // namespace

bool lists_layer(std::string_view list, std::int64_t layer) {
  if (list.empty()) return false;
  return std::ranges::any_of(split(list, ','), [&](const std::string& text) {
    const auto entry = parse_entry(text);
    return entry && entry->has(layer);
  });
}

std::int64_t listed_layers(std::string_view list, std::int64_t layers) {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < layers && !list.empty(); ++layer) count += lists_layer(list, layer) ? 1 : 0;
  return count;
}

std::string layer_list_problem(std::string_view list, std::int64_t layers) {
  for (const std::string& text : split(list, ',')) {
    const auto entry = parse_entry(text);
    if (!entry) return fmt::format("'{}' is not a layer or a range of layers: write \"0-2,5,10-40:2\"", text);
    if (entry->last >= layers)
      return fmt::format("there is no layer {}: model.layers = {}, and the first is 0", entry->last, layers);
  }
  return {};
}

std::string layer_list(std::span<const std::int64_t> layers) {
  std::string list;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t last = i;
    const std::int64_t step = i + 1 < layers.size() ? layers[i + 1] - layers[i] : 1;
    while (last + 1 < layers.size() && layers[last + 1] - layers[last] == step) ++last;
    const bool is_range = last > i + 1 || (last > i && step == 1);
    if (!is_range) last = i;
    if (!list.empty()) list += ',';
    list += fmt::format("{}", layers[i]);
    if (is_range) list += fmt::format("-{}", layers[last]);
    if (is_range && step != 1) list += fmt::format(":{}", step);
    i = last + 1;
  }
  return list;
}

}  // namespace ms::nn
