#include "data/file_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/byte_alphabet.h"
#include "data/normalize.h"
#include "data/utf8.h"
#include "data/word_cache.h"

namespace ms::data {
namespace {

constexpr std::string_view kUsualEnds[] = {"<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>", "<eos>", "[SEP]"};

// The byte of "<0x0A>".
std::optional<char> byte_of(std::string_view token) {
  unsigned char byte = 0;
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return {};
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return {};
  return static_cast<char>(byte);
}

// As the decoder WordPiece does it, in this order.
void clean_up(std::string& token, Pattern::Scratch& scratch) {
  constexpr std::pair<std::string_view, std::string_view> kClean[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [text, content] : kClean) {
    std::string result;
    replace_matches(token, Needle(std::string(text), false), content, max_replaced_bytes(token), result, scratch);
    token = std::move(result);
  }
}

// The text of a token that is the first of a text or another one, but for what Strip takes off.
std::string decoded(std::string token, const std::vector<DecoderStep>& steps, bool is_first,
                    Pattern::Scratch& scratch) {
  using Kind = DecoderStep::Kind;
  for (const DecoderStep& step : steps) {
    if (step.kind == Kind::byte_level) {
      token = from_alphabet(token).value_or(token);
    } else if (step.kind == Kind::replace || step.kind == Kind::metaspace) {
      std::string result;
      const std::string_view content(is_first && step.kind == Kind::metaspace ? std::string_view() : step.content);
      replace_matches(token, Needle(step.text, false), content, max_replaced_bytes(""), result, scratch);
      token = std::move(result);
    } else if (step.kind == Kind::word_piece) {
      if (!is_first) token = token.starts_with(step.text) ? token.substr(step.text.size()) : " " + token;
      if (step.count == 1) clean_up(token, scratch);
    } else if (step.kind == Kind::byte_fallback) {
      if (const auto byte = byte_of(token)) token.assign(1, *byte);
    }
  }
  return token;
}

// The tokens of single bytes; -1: there is none.
std::array<std::int32_t, 256> fallback_of(const TokenizerSpec& spec) {
  std::array<std::int32_t, 256> fallback;
  fallback.fill(-1);
  for (std::size_t id = 0; spec.byte_fallback && id < spec.vocab.size(); ++id)
    if (const auto byte = byte_of(spec.vocab[id]);
        byte && spec.vocab[id] == fmt::format("<0x{:02X}>", static_cast<unsigned char>(*byte)))
      fallback[static_cast<unsigned char>(*byte)] = static_cast<std::int32_t>(id);
  return fallback;
}

Bpe bpe_of(const TokenizerSpec& spec) {
  std::unordered_map<std::string, std::int32_t> words;
  BpeAlphabet alphabet;
  alphabet.fallback = fallback_of(spec);
  alphabet.is_byte_level = spec.is_byte_level;
  alphabet.unknown = spec.unknown;
  alphabet.fuse_unknown = spec.fuse_unknown;
  for (std::size_t i = 0; i < spec.vocab.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const std::string& token = spec.vocab[i];
    std::optional<std::string> word = spec.is_byte_level ? from_alphabet(token) : token;
    if (!word) continue;  // no word is this token
    if (spec.is_byte_level && word->size() == 1) alphabet.bytes[static_cast<unsigned char>((*word)[0])] = id;
    if (!spec.is_byte_level && code_point_at(*word, 0).bytes == word->size())
      alphabet.characters.emplace(code_point_at(*word, 0).value, id);
    if (spec.ignore_merges) words.emplace(std::move(*word), id);
  }
  return Bpe(std::move(alphabet), spec.merges, std::move(words));
}

FileTokenizer::Model model_of(const TokenizerSpec& spec) {
  switch (spec.model) {
    case TokenizerSpec::Model::unigram: return Unigram(spec.vocab, spec.scores, spec.unknown, fallback_of(spec));
    case TokenizerSpec::Model::word_piece:
      return WordPiece(spec.vocab, spec.part_prefix, spec.unknown, spec.max_word_characters);
    case TokenizerSpec::Model::bpe: break;
  }
  return bpe_of(spec);
}

AddedTokenFinder finder_of(const TokenizerSpec& spec, bool normalized) {
  std::vector<std::pair<std::string, AddedToken>> tokens;
  std::unordered_map<std::string, std::string> seen;
  const Normalizer normalizer(normalized ? spec.normalizer : std::vector<NormalizerStep>());
  Pattern::Scratch scratch;
  std::string storage[2];
  for (const AddedToken& token : spec.added) {
    if (token.normalized != normalized) continue;
    tokens.emplace_back(normalizer.normalize(token.content, storage, scratch), token);
    if (tokens.back().first.empty())
      throw user_error("data.tokenizer", fmt::format("added_tokens: '{}' is empty once normalised", token.content));
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

struct FileTokenizer::Scratch {
  std::string valid, normalized[2];
  Pattern::Scratch matching;
  WordCache words;
  Bpe::Scratch bpe;
  Unigram::Scratch unigram;
};

FileTokenizer::FileTokenizer(std::string name, std::string_view json, const std::optional<std::string>& end_of_document,
                             bool with_template)
    : FileTokenizer(std::move(name), json, parse_tokenizer_json(json), end_of_document, with_template) {}

FileTokenizer::FileTokenizer(std::string name, std::string_view json, const TokenizerSpec& spec,
                             const std::optional<std::string>& end_of_document, bool with_template)
    : name_(std::move(name)),
      fingerprint_(hash_hex(xxh3_64(json))),
      normalizer_(spec.normalizer),
      splitter_(spec.splits),
      model_(model_of(spec)),
      raw_added_(finder_of(spec, false)),
      normalized_added_(finder_of(spec, true)) {
  std::vector<std::string> contents = spec.vocab;
  std::vector<std::pair<std::int32_t, std::string>> special;
  for (const AddedToken& token : spec.added) {
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= contents.size()) contents.resize(id + 1);
    contents[id] = token.content;
    if (token.special) special.emplace_back(token.id, token.content);
  }
  begin_ = spec.decoder.back();
  Pattern::Scratch matching;
  for (const std::string& content : contents) {
    texts_.push_back(decoded(content, spec.decoder, false, matching));
    if (begin_.kind == DecoderStep::Kind::metaspace || begin_.kind == DecoderStep::Kind::word_piece)
      first_texts_.push_back(decoded(content, spec.decoder, true, matching));
  }
  if (spec.is_byte_level)  // added tokens are text, not bytes in the alphabet
    for (const AddedToken& token : spec.added) texts_[static_cast<std::size_t>(token.id)] = token.content;
  std::sort(special.begin(), special.end());
  for (auto& [id, text] : special) special_tokens_.push_back(std::move(text));
  end_of_document_ = end_of(spec, special_tokens_, end_of_document);
  if (with_template) frame_ = {spec.before, spec.behind};
  if (frame_.end.empty() || frame_.end.back() != end_of_document_) frame_.end.push_back(end_of_document_);
  for (const auto* tokens : {&frame_.begin, &frame_.end})
    for (const std::int32_t id : *tokens) {
      if (id < 0 || id >= vocab_size())
        throw user_error("data.tokenizer",
                         fmt::format("post_processor: the template has the token {}, which is not one "
                                     "of the {} of the file",
                                     id, vocab_size()));
      texts_[static_cast<std::size_t>(id)].clear();
      if (!first_texts_.empty()) first_texts_[static_cast<std::size_t>(id)].clear();
    }
}

FileTokenizer::~FileTokenizer() = default;

std::unique_ptr<FileTokenizer::Scratch> FileTokenizer::take_scratch() const {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> scratch = std::move(free_.back());
  free_.pop_back();
  return scratch;
}

bool FileTokenizer::encode(std::string_view text, std::vector<std::int32_t>& tokens) const {
  std::unique_ptr<Scratch> scratch = take_scratch();
  const std::string_view valid = valid_utf8(text, scratch->valid);
  const bool is_utf8 = valid.data() == text.data();
  raw_added_.split(
      valid, scratch->matching,
      [&](std::string_view piece) {
        encode_normalized(normalizer_.normalize(piece, scratch->normalized, scratch->matching),
                          piece.data() == valid.data(), tokens, *scratch);
      },
      [&](std::int32_t id) { tokens.push_back(id); });
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
  return is_utf8;
}

void FileTokenizer::encode_normalized(std::string_view text, bool is_first, std::vector<std::int32_t>& tokens,
                                      Scratch& scratch) const {
  normalized_added_.split(
      text, scratch.matching,
      [&](std::string_view piece) {
        splitter_.split(piece, is_first && piece.data() == text.data(), scratch.matching, [&](std::string_view word) {
          scratch.words.append(word, tokens, [&](std::string_view unseen) { encode_word(unseen, tokens, scratch); });
        });
      },
      [&](std::int32_t id) { tokens.push_back(id); });
}

void FileTokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& tokens, Scratch& scratch) const {
  if (const auto* const bpe = std::get_if<Bpe>(&model_)) {
    bpe->encode(word, tokens, scratch.bpe);
  } else if (const auto* const unigram = std::get_if<Unigram>(&model_)) {
    unigram->encode(word, tokens, scratch.unigram);
  } else {
    std::get<WordPiece>(model_).encode(word, tokens);
  }
}

std::string FileTokenizer::decode(std::span<const std::int32_t> tokens, bool goes_on) const {
  std::string text;
  std::size_t strips = !goes_on && begin_.kind == DecoderStep::Kind::strip_text ? begin_.count : 0;
  bool is_first = !goes_on && !first_texts_.empty();
  for (const std::int32_t id : tokens) {
    if (id < 0 || id >= vocab_size())
      throw user_error("data.token",
                       fmt::format("token {} is not one of the {} tokens of {}", id, vocab_size(), name_));
    const auto at = static_cast<std::size_t>(id);
    text += is_first ? first_texts_[at] : texts_[at];
    // Tokens of the frame are not there.
    is_first = is_first && first_texts_[at].empty() && texts_[at].empty();
  }
  for (; strips > 0 && text.starts_with(begin_.text); --strips) text.erase(0, begin_.text.size());
  return text;
}

}  // namespace ms::data
