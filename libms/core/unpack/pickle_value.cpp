// Implements PickleValue of pickle.h.
#include <fmt/format.h>

#include <algorithm>

#include "unpack/pickle.h"

namespace ms::unpack {

const std::vector<std::uint32_t>* PickleValue::all(std::size_t& first) const {
  first = 0;
  if (node() == nullptr) return nullptr;
  if (const auto* const list = std::get_if<PickledList>(node())) return &list->items;
  if (const auto* const dict = std::get_if<PickledDict>(node())) return &dict->items;
  const auto* const object = std::get_if<PickledObject>(node());
  first = 3;
  return object == nullptr ? nullptr : &object->items;
}

bool PickleValue::is_dict() const {
  std::size_t first = 0;
  const auto* const items = all(first);
  return items != nullptr && (first > 0 ? items->size() > first || global() == "collections.OrderedDict" : !is_list());
}

std::size_t PickleValue::size() const {
  std::size_t first = 0;
  const auto* const items = all(first);
  return items == nullptr ? 0 : is_list() ? items->size() : (items->size() - first) / 2;
}

PickleValue PickleValue::item(std::size_t i) const { return is_list() && i < size() ? part(i) : PickleValue(); }

std::vector<PickleValue> PickleValue::items() const {
  std::vector<PickleValue> values;
  for (std::size_t i = 0; is_list() && i < size(); ++i) values.push_back(part(i));
  return values;
}

PickleValue PickleValue::part(std::size_t i) const {
  std::size_t first = 0;
  const auto* const items = all(first);
  return items == nullptr || first + i >= items->size() ? PickleValue() : at((*items)[first + i]);
}

PickleValue PickleValue::key(std::size_t i) const { return part(2 * i); }
PickleValue PickleValue::value(std::size_t i) const { return part(2 * i + 1); }

PickleValue PickleValue::find(std::string_view wanted) const {
  constexpr std::size_t kMostKeys = 1000;  // shared dicts are searched repeatedly
  const std::size_t end = is_dict() ? size() : 0, begin = end - std::min(end, kMostKeys);
  for (std::size_t i = end; i-- > begin;) {  // the last one counts, as in Python
    if (key(i).text() == wanted) return value(i);
  }
  return {};
}

std::string PickleValue::global() const {
  if (node() == nullptr) return {};
  const auto* const object = std::get_if<PickledObject>(node());
  const auto* const global = std::get_if<PickledGlobal>(object == nullptr ? node() : &(*nodes_)[object->items[0]]);
  if (global == nullptr) return {};
  return fmt::format("{}.{}", at(global->module).text().value_or("?"), at(global->name).text().value_or("?"));
}

PickleValue PickleValue::arguments() const {
  const auto* const object = node() == nullptr ? nullptr : std::get_if<PickledObject>(node());
  return object == nullptr ? PickleValue() : at(object->items[1]);
}

PickleValue PickleValue::state() const {
  const auto* const object = node() == nullptr ? nullptr : std::get_if<PickledObject>(node());
  return object == nullptr ? PickleValue() : at(object->items[2]);
}

PickleValue PickleValue::reference() const {
  const auto* const reference = node() == nullptr ? nullptr : std::get_if<PickledReference>(node());
  return reference == nullptr ? PickleValue() : at(reference->id);
}

}  // namespace ms::unpack
