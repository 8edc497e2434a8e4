// Texts by their bytes: finds all those that another text begins with.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace ms::data {

class Trie {
 public:
  // `texts` with their values. Of equal texts the last one counts; an empty one is never found.
  explicit Trie(const std::vector<std::pair<std::string_view, std::int32_t>>& texts);

  // Calls `on_prefix(bytes, value)` for each of the texts that `text` begins with, the shortest first.
  template <class OnPrefix>
  void each_prefix(std::string_view text, const OnPrefix& on_prefix) const {
    std::size_t node = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const unsigned char* const children = bytes_.data() + children_[node];
      const void* const child =
          std::memchr(children, static_cast<unsigned char>(text[at]), children_[node + 1] - children_[node]);
      if (child == nullptr) return;
      node = static_cast<std::size_t>(static_cast<const unsigned char*>(child) - bytes_.data());
      if (values_[node] >= 0) on_prefix(at + 1, values_[node]);
    }
  }

 private:
  // The nodes, the root first; the children of a node stand together, in the order of the nodes.
  std::vector<unsigned char> bytes_;     // the last one of the text
  std::vector<std::int32_t> values_;     // -1: no text ends here
  std::vector<std::uint32_t> children_;  // the first one; that of the next node is the end
};

}  // namespace ms::data
