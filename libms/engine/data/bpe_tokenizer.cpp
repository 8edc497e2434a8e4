#include "data/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/byte_alphabet.h"
#include "data/normalize.h"
#include "data/utf8.h"

namespace ms::data {
namespace {

constexpr std::string_view kUsualEnds[] = {"<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>", "<eos>"};

std::string in_form(bool nfc, std::string_view text) {
  std::string storage;
  return std::string(nfc ? normalize_nfc(text, storage) : text);
}

Bpe bpe_of(const TokenizerSpec& spec) {
  std::unordered_map<std::string, std::int32_t> words;
  std::array<std::int32_t, 256> byte_tokens{};
  for (std::size_t id = 0; id < spec.vocab.size(); ++id) {
    std::optional<std::string> bytes = from_alphabet(spec.vocab[id]);
    if (!bytes) continue;  // no word is this token
    if (bytes->size() == 1) byte_tokens[static_cast<unsigned char>((*bytes)[0])] = static_cast<std::int32_t>(id);
    if (spec.ignore_merges) words.emplace(std::move(*bytes), static_cast<std::int32_t>(id));
  }
  return Bpe(byte_tokens, spec.merges, std::move(words));
}

AddedTokenFinder finder_of(const TokenizerSpec& spec, bool normalized) {
  std::vector<std::pair<std::string, AddedToken>> tokens;
  std::unordered_map<std::string, std::string> seen;
  for (const AddedToken& token : spec.added) {
    if (token.normalized != normalized) continue;
    tokens.emplace_back(in_form(spec.nfc && normalized, token.content), token);
    const auto [other, is_new] = seen.emplace(tokens.back().first, token.content);
    if (!is_new)
      throw user_error("data.tokenizer", fmt::format("added_tokens: '{}' and '{}' are the same text once normalised",
                                                     other->second, token.content));
  }
  return AddedTokenFinder(tokens);
}

std::int32_t end_of(const TokenizerSpec& spec, const std::vector<std::string>& special,
                    const std::optional<std::string>& named) {
  const auto id_of = [&](std::string_view text, bool special_only) -> std::optional<std::int32_t> {
    for (const AddedToken& token : spec.added)
      if (token.content == text && (token.special || !special_only)) return token.id;
    return {};
  };
  if (named) {
    if (const auto id = id_of(*named, false)) return *id;
  } else {
    for (const std::string_view usual : kUsualEnds)
      if (const auto id = id_of(usual, true)) return *id;
  }
  throw user_error("data.tokenizer",
                   named ? fmt::format("'{}' is not an added token of this tokenizer", *named)
                         : fmt::format("the token that ends a document is not known: {} are not special tokens",
                                       fmt::join(kUsualEnds, ", ")),
                   special.empty() ? "the file has no special tokens; add one that ends a document"
                                   : fmt::format("--eod TOKEN names it; the file's special tokens are {}",
                                                 fmt::join(special, ", ")));
}

}  // namespace

struct BpeTokenizer::Scratch {
  std::string valid, normalized;
  Pattern::Scratch matching;
  Bpe::Scratch words;
};

BpeTokenizer::BpeTokenizer(std::string name, std::string_view json, const std::optional<std::string>& end_of_document)
    : BpeTokenizer(std::move(name), json, parse_tokenizer_json(json), end_of_document) {}

BpeTokenizer::BpeTokenizer(std::string name, std::string_view json, const TokenizerSpec& spec,
                           const std::optional<std::string>& end_of_document)
    : name_(std::move(name)),
      fingerprint_(hash_hex(xxh3_64(json))),
      nfc_(spec.nfc),
      splitter_(spec.patterns, spec.add_prefix_space, spec.gpt2_pattern),
      bpe_(bpe_of(spec)),
      raw_added_(finder_of(spec, false)),
      normalized_added_(finder_of(spec, true)) {
  texts_.reserve(spec.vocab.size() + spec.added.size());
  for (const std::string& token : spec.vocab) texts_.push_back(from_alphabet(token).value_or(token));
  std::vector<std::pair<std::int32_t, std::string>> special;
  for (const AddedToken& token : spec.added) {
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= texts_.size()) texts_.resize(id + 1);
    texts_[id] = token.content;
    if (token.special) special.emplace_back(token.id, token.content);
  }
  std::sort(special.begin(), special.end());
  for (auto& [id, text] : special) special_tokens_.push_back(std::move(text));
  end_of_document_ = end_of(spec, special_tokens_, end_of_document);
}

BpeTokenizer::~BpeTokenizer() = default;

std::unique_ptr<BpeTokenizer::Scratch> BpeTokenizer::take_scratch() const {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> scratch = std::move(free_.back());
  free_.pop_back();
  return scratch;
}

bool BpeTokenizer::encode(std::string_view text, std::vector<std::int32_t>& tokens) const {
  std::unique_ptr<Scratch> scratch = take_scratch();
  const std::string_view valid = valid_utf8(text, scratch->valid);
  const bool is_utf8 = valid.data() == text.data();
  raw_added_.split(
      valid, scratch->matching,
      [&](std::string_view piece) {
        encode_normalized(nfc_ ? normalize_nfc(piece, scratch->normalized) : piece, tokens, *scratch);
      },
      [&](std::int32_t id) { tokens.push_back(id); });
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
  return is_utf8;
}

void BpeTokenizer::encode_normalized(std::string_view text, std::vector<std::int32_t>& tokens, Scratch& scratch) const {
  normalized_added_.split(
      text, scratch.matching,
      [&](std::string_view piece) {
        splitter_.split(piece, scratch.matching,
                        [&](std::string_view word) { bpe_.encode(word, tokens, scratch.words); });
      },
      [&](std::int32_t id) { tokens.push_back(id); });
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t id : tokens) {
    if (id < 0 || id >= vocab_size())
      throw user_error("data.token",
                       fmt::format("token {} is not one of the {} tokens of {}", id, vocab_size(), name_));
    if (id != end_of_document_) text += texts_[static_cast<std::size_t>(id)];
  }
  return text;
}

}  // namespace ms::data
