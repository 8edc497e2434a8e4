#include "data/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

#include "data/byte_alphabet.h"
#include "data/utf8.h"
#include "data/word_cache.h"

namespace ms::data {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kNoPair = std::numeric_limits<std::uint64_t>::max();
// Up to so many symbols, a look at all of them is faster than a queue.
constexpr std::size_t kShortSymbols = 48;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U | static_cast<std::uint32_t>(right);
}

}  // namespace

Bpe::Bpe(BpeAlphabet alphabet, const std::vector<BpeMerge>& merges,
         std::unordered_map<std::string, std::int32_t> whole_words)
    : alphabet_(std::move(alphabet)),
      has_all_bytes_(alphabet_.is_byte_level &&
                     std::ranges::none_of(alphabet_.bytes, [](std::int32_t token) { return token < 0; })),
      whole_words_(std::move(whole_words)),
      slots_(std::bit_ceil(2 * merges.size() + 2), Slot{kNoPair, kNoRank, 0}) {
  const std::size_t mask = slots_.size() - 1;
  std::uint32_t rank = 0;
  for (const BpeMerge& merge : merges) {
    const std::uint64_t key = pair_key(merge.left, merge.right);
    std::size_t at = WordCache::mixed(key) & mask;
    while (slots_[at].pair != kNoPair && slots_[at].pair != key) at = (at + 1) & mask;
    slots_[at] = {key, rank++, merge.merged};
  }
}

const Bpe::Slot* Bpe::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = WordCache::mixed(key) & mask; slots_[at].pair != kNoPair; at = (at + 1) & mask)
    if (slots_[at].pair == key) return &slots_[at];
  return nullptr;
}

std::uint32_t Bpe::rank_of(std::int32_t left, std::int32_t right) const {
  const Slot* const slot = find(left, right);
  return slot != nullptr ? slot->rank : kNoRank;
}

void Bpe::append_symbols(std::string_view word, std::vector<Scratch::Symbol>& symbols) const {
  const auto add = [&](std::int32_t token) { symbols.push_back({token, kNoRank, 0, 0}); };
  if (has_all_bytes_) {
    for (const char byte : word) add(alphabet_.bytes[static_cast<unsigned char>(byte)]);
    return;
  }
  // As tokenizers does it: an unknown character waits for the next that is known, and bytes do not end its waiting.
  bool waits = false;
  const auto unknown = [&](std::string_view text) {
    const auto fallback = [&](char byte) { return alphabet_.fallback[static_cast<unsigned char>(byte)]; };
    if (std::ranges::all_of(text, [&](char byte) { return fallback(byte) >= 0; })) {
      for (const char byte : text) add(fallback(byte));
    } else if (alphabet_.unknown >= 0) {
      if (waits && !alphabet_.fuse_unknown) add(alphabet_.unknown);
      waits = true;
    }
  };
  for (std::size_t at = 0; at < word.size();) {
    const auto byte = static_cast<unsigned char>(word[at]);
    const CodePoint c = alphabet_.is_byte_level ? CodePoint{byte, 1} : code_point_at(word, at);
    std::int32_t token = alphabet_.is_byte_level ? alphabet_.bytes[byte] : -1;
    if (!alphabet_.is_byte_level)
      if (const auto found = alphabet_.characters.find(c.value); found != alphabet_.characters.end())
        token = found->second;
    if (token >= 0) {
      if (std::exchange(waits, false)) add(alphabet_.unknown);
      add(token);
    } else {
      unknown(alphabet_.is_byte_level ? to_alphabet(word.substr(at, 1)) : std::string(word.substr(at, c.bytes)));
    }
    at += c.bytes;
  }
  if (waits) add(alphabet_.unknown);
}

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& tokens, Scratch& scratch) const {
  if (!whole_words_.empty()) {
    const auto found = whole_words_.find(std::string(word));
    if (found != whole_words_.end()) {
      tokens.push_back(found->second);
      return;
    }
  }
  auto& symbols = scratch.symbols_;
  symbols.clear();
  append_symbols(word, symbols);
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
    symbols[i].rank = rank_of(symbols[i].token, symbols[i + 1].token);
  if (symbols.size() <= kShortSymbols) {
    merge_short(symbols);
  } else {
    merge_long(scratch);
  }
  for (const Scratch::Symbol& symbol : symbols) tokens.push_back(symbol.token);
}

void Bpe::merge_short(std::vector<Scratch::Symbol>& symbols) const {
  while (symbols.size() > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < symbols.size(); ++i)
      if (symbols[i].rank < symbols[best].rank) best = i;
    if (symbols[best].rank == kNoRank) return;
    symbols[best].token = find(symbols[best].token, symbols[best + 1].token)->merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    symbols[best].rank = best + 1 < symbols.size() ? rank_of(symbols[best].token, symbols[best + 1].token) : kNoRank;
    if (best > 0) symbols[best - 1].rank = rank_of(symbols[best - 1].token, symbols[best].token);
  }
}

// A queue of merges by rank and place. A symbol that is merged away has the rank kNoRank and token -1; what the queue
// still says of symbols that have changed is recognised by its rank.
void Bpe::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& queue = scratch.queue_;
  const std::greater<> later;
  queue.clear();
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = i - 1;  // of the first: never used
    symbols[i].next = i + 1;
    if (symbols[i].rank != kNoRank) queue.emplace_back(symbols[i].rank, i);
  }
  std::make_heap(queue.begin(), queue.end(), later);
  const auto rank_again = [&](std::size_t i) {
    const std::size_t next = symbols[i].next;
    symbols[i].rank = next < symbols.size() ? rank_of(symbols[i].token, symbols[next].token) : kNoRank;
    if (symbols[i].rank == kNoRank) return;
    queue.emplace_back(symbols[i].rank, i);
    std::push_heap(queue.begin(), queue.end(), later);
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    const auto [rank, i] = queue.back();
    queue.pop_back();
    if (symbols[i].rank != rank) continue;
    const std::size_t gone = symbols[i].next;
    symbols[i].token = find(symbols[i].token, symbols[gone].token)->merged;
    symbols[i].next = symbols[gone].next;
    if (symbols[i].next < symbols.size()) symbols[symbols[i].next].previous = i;
    symbols[gone].token = -1;
    symbols[gone].rank = kNoRank;
    rank_again(i);
    if (i > 0) rank_again(symbols[i].previous);
  }
  std::erase_if(symbols, [](const Scratch::Symbol& symbol) { return symbol.token < 0; });
}

}  // namespace ms::data
