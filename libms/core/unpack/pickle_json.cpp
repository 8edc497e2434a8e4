#include "unpack/pickle_json.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace ms::unpack {
namespace {

class JsonWriter {
 public:
  JsonWriter(const PickledNodes& nodes, std::size_t max_json_bytes, std::size_t at)
      : nodes_(nodes), max_json_bytes_(max_json_bytes), at_(at) {}

  std::string json(std::uint32_t root) {
    write(root, 0);
    return std::move(json_);
  }

 private:
  void write_text(std::string_view text) {
    json_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        json_ += '\\';
        json_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        fmt::format_to(std::back_inserter(json_), "\\u{:04x}", static_cast<unsigned>(c));
      } else {
        json_ += c;
      }
    }
    json_ += '"';
  }

  void write_key(const PickledNode& key) {
    if (const auto* const text = std::get_if<std::string_view>(&key)) return write_text(*text);
    if (const auto* const number = std::get_if<std::int64_t>(&key)) return write_text(fmt::format("{}", *number));
    refuse_pickle("has a key that is neither text nor a number", at_);
  }

  void write(std::uint32_t id, int depth) {
    constexpr int kMostDepth = 64;
    if (depth > kMostDepth) refuse_pickle("nests too deeply", at_);
    if (json_.size() > max_json_bytes_) refuse_pickle("grows beyond all measure", at_);
    const PickledNode& node = nodes_[id];
    if (const auto* const truth = std::get_if<bool>(&node)) {
      json_ += *truth ? "true" : "false";
    } else if (const auto* const number = std::get_if<std::int64_t>(&node)) {
      json_ += fmt::format("{}", *number);
    } else if (const auto* const real = std::get_if<double>(&node)) {
      json_ += std::isfinite(*real) ? fmt::format("{}", *real) : "null";
    } else if (const auto* const text = std::get_if<std::string_view>(&node)) {
      write_text(*text);
    } else if (const PickledList* const list = std::get_if<PickledList>(&node)) {
      json_ += '[';
      for (std::size_t i = 0; i < list->items.size(); ++i) {
        if (i > 0) json_ += ',';
        write(list->items[i], depth + 1);
      }
      json_ += ']';
    } else if (const PickledDict* const dict = std::get_if<PickledDict>(&node)) {
      json_ += '{';
      for (std::size_t i = 0; i + 1 < dict->items.size(); i += 2) {
        if (i > 0) json_ += ',';
        write_key(nodes_[dict->items[i]]);
        json_ += ':';
        write(dict->items[i + 1], depth + 1);
      }
      json_ += '}';
    } else {
      json_ += "null";
    }
  }

  const PickledNodes& nodes_;
  const std::size_t max_json_bytes_, at_;
  std::string json_;
};

}  // namespace

void refuse_pickle(std::string_view what, std::size_t at) {
  throw user_error("data.pickle", fmt::format("a Python pickle that {} at byte {}", what, at));
}

bool is_pickle_key(const PickledNode& node) {
  return std::holds_alternative<std::string_view>(node) || std::holds_alternative<std::int64_t>(node);
}

std::string json_of_pickle(const PickledNodes& nodes, std::uint32_t root, std::size_t max_json_bytes, std::size_t at) {
  return JsonWriter(nodes, max_json_bytes, at).json(root);
}

}  // namespace ms::unpack
