// The words that a thread has encoded last, with their tokens: most words of a text have come before.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace ms::data {

class WordCache {
 public:
  WordCache() : words_(kWords) {}

  // Appends the tokens of the word: those kept, or else those that `encode(word)` appends.
  template <class Encode>
  void append(std::string_view word, std::vector<std::int32_t>& tokens, const Encode& encode) {
    if (word.empty() || word.size() > Word::kMaxBytes) {
      encode(word);
      return;
    }
    Word& kept = words_[hash(word) % kWords];
    if (kept.num_bytes == word.size() && std::memcmp(kept.bytes.data(), word.data(), word.size()) == 0) {
      tokens.insert(tokens.end(), kept.tokens.begin(), kept.tokens.begin() + kept.num_tokens);
      return;
    }
    const std::size_t before = tokens.size();
    encode(word);
    const std::size_t added = tokens.size() - before;
    if (added > Word::kMaxTokens) return;
    kept.num_bytes = static_cast<std::uint8_t>(word.size());
    kept.num_tokens = static_cast<std::uint8_t>(added);
    std::memcpy(kept.bytes.data(), word.data(), word.size());
    std::copy(tokens.begin() + static_cast<std::ptrdiff_t>(before), tokens.end(), kept.tokens.begin());
  }

  static std::uint64_t mixed(std::uint64_t value) {
    value *= 0x9e3779b97f4a7c15U;  // 2^64 over the golden ratio
    return value ^ value >> 32U;
  }

 private:
  static constexpr std::size_t kWords = std::size_t{1} << 16U;  // 4 MiB
  // A cache line; longer words, and those of more tokens, are encoded each time.
  struct alignas(64) Word {
    static constexpr std::size_t kMaxBytes = 30, kMaxTokens = 8;
    std::uint8_t num_bytes = 0, num_tokens = 0;
    std::array<char, kMaxBytes> bytes{};
    std::array<std::int32_t, kMaxTokens> tokens{};
  };

  static std::uint64_t hash(std::string_view word) {
    std::uint64_t hash = word.size();
    while (!word.empty()) {
      std::uint64_t part = 0;
      const std::size_t bytes = std::min(word.size(), sizeof part);
      std::memcpy(&part, word.data(), bytes);
      word.remove_prefix(bytes);
      hash = mixed(hash ^ part);
    }
    return hash;
  }

  std::vector<Word> words_;
};

}  // namespace ms::data
