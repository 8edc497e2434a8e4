#include "data/train_tokenizer.h"

#include <algorithm>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "data/byte_alphabet.h"
#include "data/normalize.h"
#include "data/utf8.h"

namespace ms::data {
namespace {

constexpr std::size_t kProgressTokens = 100;

using TokenPair = std::pair<std::int32_t, std::int32_t>;
struct TokenPairHash {
  std::size_t operator()(const TokenPair& pair) const {
    const auto both = static_cast<std::uint64_t>(pair.first) << 32U | static_cast<std::uint32_t>(pair.second);
    return both * 0x9e3779b97f4a7c15U >> 20U;
  }
};

// A pair that may be merged next: how often it stood in words when it was queued, and in which of them it was new.
struct Candidate {
  std::int64_t count = 0;
  TokenPair pair;
  std::vector<std::uint32_t> words;
};
struct IsLess {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

class BpeTraining {
 public:
  BpeTraining(const WordCounter::Counts& counts, TokenizerSpec& spec) : spec_(spec) {
    std::int32_t byte_tokens[256] = {};
    for (int byte = 0; byte < 256; ++byte) byte_tokens[byte] = -1;
    add_alphabet(byte_tokens);
    words_.reserve(counts.size());
    for (const auto& [word, count] : counts) {
      std::vector<std::int32_t>& tokens = words_.emplace_back();
      for (const char byte : word) tokens.push_back(byte_tokens[static_cast<unsigned char>(byte)]);
      counts_.push_back(count);
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) change({tokens[i], tokens[i + 1]}, 1, counts_.size() - 1);
    }
    queue_changed();
  }

  void run(std::size_t vocab_size, const std::function<void(std::int64_t)>& progress) {
    while (spec_.vocab.size() < vocab_size && !queue_.empty()) {
      Candidate top = std::move(const_cast<Candidate&>(queue_.top()));  // it is popped at once
      queue_.pop();
      if (const std::int64_t count = pair_counts_.at(top.pair); top.count != count) {
        top.count = count;  // other merges have taken some
        queue_.push(std::move(top));
        continue;
      }
      if (top.count < 1) break;
      const BpeMerge merge{top.pair.first, top.pair.second, merged_token(top.pair)};
      spec_.merges.push_back(merge);
      for (const std::uint32_t word : top.words) apply(merge, word);
      queue_changed();
      if (progress && spec_.vocab.size() % kProgressTokens == 0)
        progress(static_cast<std::int64_t>(spec_.vocab.size()));
    }
    drop_repeated_merges();
  }

 private:
  // Bytes in the order of their characters.
  void add_alphabet(std::int32_t (&byte_tokens)[256]) {
    for (std::size_t id = 0; id < spec_.vocab.size(); ++id)
      ids_.emplace(spec_.vocab[id], static_cast<std::int32_t>(id));
    std::vector<std::pair<char32_t, int>> alphabet;
    for (int byte = 0; byte < 256; ++byte)
      alphabet.emplace_back(byte_characters()[static_cast<std::size_t>(byte)], byte);
    std::sort(alphabet.begin(), alphabet.end());
    for (const auto& [character, byte] : alphabet) {
      std::string text;
      append_utf8(text, character);
      byte_tokens[byte] = token_of(text);
    }
  }

  std::int32_t token_of(const std::string& text) {
    const auto [found, is_new] = ids_.try_emplace(text, static_cast<std::int32_t>(spec_.vocab.size()));
    if (is_new) spec_.vocab.push_back(text);
    return found->second;
  }

  std::int32_t merged_token(const TokenPair& pair) {
    const auto text = [&](std::int32_t id) -> const std::string& { return spec_.vocab[static_cast<std::size_t>(id)]; };
    return token_of(text(pair.first) + text(pair.second));
  }

  // Counts a pair that came (1) or went (-1) at a place in a word.
  void change(const TokenPair& pair, int by, std::size_t word) {
    pair_counts_[pair] += by * counts_[word];
    if (by < 0) return;
    std::vector<std::uint32_t>& words = changed_[pair];
    if (words.empty() || words.back() != word) words.push_back(static_cast<std::uint32_t>(word));
  }

  void queue_changed() {
    for (auto& [pair, words] : changed_) {
      const std::int64_t count = pair_counts_.at(pair);
      if (count > 0) queue_.push({count, pair, std::move(words)});
    }
    changed_.clear();
  }

  void apply(const BpeMerge& merge, std::size_t word) {
    std::vector<std::int32_t>& tokens = words_[word];
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] != merge.left || i + 1 == tokens.size() || tokens[i + 1] != merge.right) {
        tokens[kept++] = tokens[i];
        continue;
      }
      if (kept > 0) {
        change({tokens[kept - 1], merge.left}, -1, word);
        change({tokens[kept - 1], merge.merged}, 1, word);
      }
      ++i;
      if (i + 1 < tokens.size()) {
        change({merge.right, tokens[i + 1]}, -1, word);
        change({merge.merged, tokens[i + 1]}, 1, word);
      }
      tokens[kept++] = merge.merged;
    }
    tokens.resize(kept);
  }

  // A pair comes again where its merged token had been made of another pair: the last time counts.
  void drop_repeated_merges() {
    std::set<TokenPair> seen;
    std::vector<BpeMerge> kept;
    for (auto merge = spec_.merges.rbegin(); merge != spec_.merges.rend(); ++merge)
      if (seen.emplace(merge->left, merge->right).second) kept.push_back(*merge);
    spec_.merges.assign(kept.rbegin(), kept.rend());
  }

  TokenizerSpec& spec_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::vector<std::int32_t>> words_;  // their tokens
  std::vector<std::int64_t> counts_;              // of each word
  std::unordered_map<TokenPair, std::int64_t, TokenPairHash> pair_counts_;
  std::unordered_map<TokenPair, std::vector<std::uint32_t>, TokenPairHash> changed_;  // words in which a pair is new
  std::priority_queue<Candidate, std::vector<Candidate>, IsLess> queue_;
};

}  // namespace

TokenizerSpec untrained_tokenizer(std::string_view name) {
  TokenizerSpec spec;
  if (name == "gpt2") {
    spec.splits.push_back({SplitStep::Kind::pattern, std::string(kGpt2Pattern)});
  } else if (name == "llama3") {
    spec.splits.push_back({SplitStep::Kind::pattern, std::string(kLlama3Pattern)});
    spec.ignore_merges = true;
  } else if (name == "qwen2") {
    spec.splits.push_back({SplitStep::Kind::pattern, std::string(kQwen2Pattern)});
    spec.normalizer.push_back({});
  } else {
    throw user_error("data.pattern",
                     fmt::format("unknown pattern '{}'; the patterns are gpt2, llama3 and qwen2", name));
  }
  return spec;
}

WordCounter::WordCounter(const TokenizerSpec& spec) : normalizer_(spec.normalizer), splitter_(spec.splits) {}

void WordCounter::add(std::string_view document) {
  const std::string_view valid = valid_utf8(document, valid_);
  splitter_.split(normalizer_.normalize(valid, normalized_, matching_), true, matching_, [&](std::string_view word) {
    const auto found = counts_.find(word);
    if (found != counts_.end()) {
      ++found->second;
    } else {
      counts_.emplace(word, 1);
    }
  });
}

void train_bpe(const WordCounter::Counts& counts, std::int64_t vocab_size, std::span<const std::string> special,
               TokenizerSpec& spec, const std::function<void(std::int64_t)>& progress) {
  for (const std::string& token : special) {
    if (std::find(spec.vocab.begin(), spec.vocab.end(), token) != spec.vocab.end()) continue;
    spec.added.push_back({.content = token, .id = static_cast<std::int32_t>(spec.vocab.size()), .special = true});
    spec.vocab.push_back(token);
  }
  BpeTraining training(counts, spec);
  const auto least = static_cast<std::int64_t>(spec.vocab.size());
  if (vocab_size < least)
    throw user_error("data.vocab",
                     fmt::format("a vocabulary of {} tokens is too small: the bytes and the special tokens "
                                 "are {}",
                                 vocab_size, least));
  training.run(static_cast<std::size_t>(vocab_size), progress);
}

}  // namespace ms::data
