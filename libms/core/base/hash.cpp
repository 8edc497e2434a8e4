#include "base/hash.h"

// Compiled in, so that nothing needs libxxhash.so.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <new>

#include "base/error.h"

namespace ms {

std::uint64_t xxh64(std::span<const std::byte> data, std::uint64_t seed) {
  return XXH64(data.data(), data.size(), seed);
}

std::uint64_t xxh64(std::string_view text, std::uint64_t seed) { return xxh64(std::as_bytes(std::span(text)), seed); }

std::uint64_t xxh3_64(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

Hasher::Hasher(std::uint64_t seed) : state_(XXH64_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH64_reset(static_cast<XXH64_state_t*>(state_.get()), seed);
}

void Hasher::update(std::span<const std::byte> data) {
  if (data.empty()) return;  // whose pointer may be null, which xxhash calls an error
  XXH64_update(static_cast<XXH64_state_t*>(state_.get()), data.data(), data.size());
}

std::uint64_t Hasher::digest() const { return XXH64_digest(static_cast<const XXH64_state_t*>(state_.get())); }

void Hasher::Free::operator()(void* state) const noexcept { XXH64_freeState(static_cast<XXH64_state_t*>(state)); }

std::string hash_hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace ms
