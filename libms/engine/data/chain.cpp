#include "data/chain.h"

#include <bit>
#include <vector>

#include "base/hash.h"

namespace ms::data {

static_assert(std::endian::native == std::endian::little, "digests are of little-endian words");

std::uint64_t digest_of(std::span<const Window> windows) {
  std::vector<std::int64_t> words;
  words.reserve(2 * windows.size());
  for (const Window& window : windows) {
    words.push_back(window.file);
    words.push_back(window.begin);
  }
  const auto bytes = std::as_bytes(std::span(words));
  return xxh3_64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string extend_chain(std::string_view chain, std::uint64_t digest) {
  return hash_hex(xxh3_64(std::string(chain) + hash_hex(digest)));
}

}  // namespace ms::data
