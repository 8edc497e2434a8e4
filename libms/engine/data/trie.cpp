#include "data/trie.h"

#include <algorithm>

namespace ms::data {

Trie::Trie(const std::vector<std::pair<std::string_view, std::int32_t>>& texts) {
  auto sorted = texts;
  std::ranges::stable_sort(sorted, {}, &std::pair<std::string_view, std::int32_t>::first);
  // The texts that begin with the bytes of a node, of which there are `depth`.
  struct Span {
    std::size_t begin, end, depth;
  };
  std::vector<Span> nodes{{0, sorted.size(), 0}};
  bytes_.push_back(0);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    auto [at, end, depth] = nodes[node];
    std::int32_t value = -1;
    for (; at < end && sorted[at].first.size() == depth; ++at) value = sorted[at].second;
    values_.push_back(value);
    children_.push_back(static_cast<std::uint32_t>(nodes.size()));
    while (at < end) {
      const std::size_t begin = at;
      const char byte = sorted[at].first[depth];
      while (at < end && sorted[at].first[depth] == byte) ++at;
      nodes.push_back({begin, at, depth + 1});
      bytes_.push_back(static_cast<unsigned char>(byte));
    }
  }
  children_.push_back(static_cast<std::uint32_t>(nodes.size()));
}

}  // namespace ms::data
