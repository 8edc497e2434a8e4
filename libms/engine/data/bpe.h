// Byte-pair encoding of words: the merges of a vocabulary, and the tokens that they make of a word's bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ms::data {

// Two tokens beside each other that become one.
struct BpeMerge {
  std::int32_t left = 0, right = 0, merged = 0;
};

// The tokens that words are made of before anything is merged; -1: there is none.
struct BpeAlphabet {
  BpeAlphabet() { bytes.fill(-1), fallback.fill(-1); }
  bool is_byte_level = true;
  std::array<std::int32_t, 256> bytes;                    // of single bytes, at byte level
  std::unordered_map<char32_t, std::int32_t> characters;  // otherwise
  std::array<std::int32_t, 256> fallback;                 // <0x00> and on: of the bytes of a character without a token
  std::int32_t unknown = -1;                              // or else; without it, such a character is left out
  bool fuse_unknown = false;                              // one for all of them that stand beside each other
};

class Bpe {
 public:
  // Memory of one thread's encoding.
  class Scratch {
    friend class Bpe;
    struct Symbol {
      std::int32_t token;
      std::uint32_t rank;  // of the merge with the next one
      std::size_t previous, next;
    };
    std::vector<Symbol> symbols_;
    std::vector<std::pair<std::uint32_t, std::size_t>> queue_;  // rank, symbol
  };

  // The first merge is made first, and of two equal ones the later counts. `whole_words` are words that are one token
  // whatever the merges make of them.
  Bpe(BpeAlphabet alphabet, const std::vector<BpeMerge>& merges,
      std::unordered_map<std::string, std::int32_t> whole_words);

  // Appends the tokens of the word: of all merges of neighbours that the word allows, the first in order is made, the
  // leftmost of equals, until none is left.
  void encode(std::string_view word, std::vector<std::int32_t>& tokens, Scratch& scratch) const;

 private:
  struct Slot {
    std::uint64_t pair = 0;
    std::uint32_t rank = 0;
    std::int32_t merged = 0;
  };

  const Slot* find(std::int32_t left, std::int32_t right) const;
  std::uint32_t rank_of(std::int32_t left, std::int32_t right) const;
  void append_symbols(std::string_view word, std::vector<Scratch::Symbol>& symbols) const;
  void merge_short(std::vector<Scratch::Symbol>& symbols) const;
  void merge_long(Scratch& scratch) const;

  BpeAlphabet alphabet_;
  bool has_all_bytes_;
  std::unordered_map<std::string, std::int32_t> whole_words_;
  std::vector<Slot> slots_;  // a hash table with open addressing, a power of two long
};

}  // namespace ms::data
