// XXH64 checksums: of files, shards and messages. Not cryptographic. The value for a given seed never changes, so it
// may be stored. XXH3 for fingerprints that other programs compute, too (xxhsum -H3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ms {

std::uint64_t xxh64(std::span<const std::byte> data, std::uint64_t seed = 0);
std::uint64_t xxh64(std::string_view text, std::uint64_t seed = 0);
std::uint64_t xxh3_64(std::string_view text);

// The same value from pieces, however they are cut.
class Hasher {
 public:
  explicit Hasher(std::uint64_t seed = 0);
  void update(std::span<const std::byte> data);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  std::uint64_t digest() const;  // of everything so far; more may follow

 private:
  struct Free {
    void operator()(void* state) const noexcept;
  };
  std::unique_ptr<void, Free> state_;
};

// 16 lower-case hexadecimal digits.
std::string hash_hex(std::uint64_t hash);

}  // namespace ms
