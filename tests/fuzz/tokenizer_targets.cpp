// Tokenizers: files of theirs that others wrote, and text of any bytes under patterns that were published.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/file_tokenizer.h"
#include "data/train_tokenizer.h"
#include "data/utf8.h"
#include "target.h"

namespace ms::fuzz {
namespace {

constexpr std::string_view kLesson = "low lower lowest newer wider it's 1234 aaaaaa\n\n  x\xc3\xa9\xe4\xb8\xad";

std::string trained(std::string_view pattern) {
  data::TokenizerSpec spec = data::untrained_tokenizer(pattern);
  data::WordCounter counter(spec);
  counter.add(kLesson);
  const std::vector<std::string> special{"<|endoftext|>"};
  data::train_bpe(counter.counts(), 280, special, spec);
  spec.added.push_back({.content = "<w>",
                        .id = static_cast<std::int32_t>(spec.vocab.size()),
                        .single_word = true,
                        .lstrip = true,
                        .rstrip = true});
  return data::tokenizer_json(spec);
}

void tokenizer_json(std::string_view bytes) {
  const data::FileTokenizer tokenizer("t", bytes, {});
  std::vector<std::int32_t> tokens;
  tokenizer.encode(kLesson, tokens);
  for (const std::int32_t id : tokens) expect(id >= 0 && id < tokenizer.vocab_size(), "a token is in the vocabulary");
  tokenizer.decode(tokens);
}
// As Llama 2 and Gemma have it.
constexpr std::string_view kFallback =
    R"({"version": "1.0", "added_tokens": [{"id": 2, "content": "</s>", "special": true,
  "normalized": false, "lstrip": false, "rstrip": false, "single_word": false}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},
                 {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Metaspace", "replacement": "_", "split": true},
    {"type": "Digits", "individual_digits": true}, {"type": "Punctuation", "behavior": "Contiguous"},
    {"type": "Split", "pattern": {"String": "e"}, "behavior": "MergedWithNext", "invert": true}]},
  "post_processor": {"type": "TemplateProcessing", "pair": [],
                     "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                     "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
  "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "_"}, "content": " "},
              {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true,
            "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "<0x0A>": 3, "_": 4, "a": 5, "_a": 6}, "merges": ["_ a"]}})";

// As T5 has it.
constexpr std::string_view kUnigram =
    R"({"version": "1.0", "added_tokens": [{"id": 1, "content": "</s>", "special": true,
  "normalized": false, "lstrip": false, "rstrip": false, "single_word": false}],
  "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "NFD"}, {"type": "StripAccents"},
    {"type": "Strip", "strip_left": false, "strip_right": true}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": true}]},
  "post_processor": null, "decoder": {"type": "Metaspace", "replacement": "_"},
  "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true,
            "vocab": [["<unk>", 0], ["</s>", 0], ["_", -2.5], ["lo", -3.25e0], ["low", -4], ["<0x72>", 0]]}})";
// As BERT has it.
constexpr std::string_view kWordPiece =
    R"({"version": "1.0", "added_tokens": [{"id": 1, "content": "[SEP]", "special": true,
  "normalized": false, "lstrip": false, "rstrip": false, "single_word": false}],
  "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                 "lowercase": true},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 1], "cls": ["[CLS]", 2]},
  "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
  "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {"[UNK]": 0, "[SEP]": 1, "[CLS]": 2, "low": 3, "##er": 4, "'": 5}}})";

std::vector<std::string> tokenizer_json_seeds() {
  return {trained("gpt2"),        trained("llama3"),     trained("qwen2"),
          std::string(kFallback), std::string(kUnigram), std::string(kWordPiece)};
}

void bpe_text(std::string_view bytes) {
  static const auto tokenizers = [] {
    std::vector<std::unique_ptr<data::FileTokenizer>> made;
    for (const char* pattern : {"gpt2", "llama3", "qwen2"})
      made.push_back(std::make_unique<data::FileTokenizer>(pattern, trained(pattern), std::nullopt));
    return made;
  }();
  const std::string text(bytes);
  std::string storage;
  const std::string_view valid = data::valid_utf8(text, storage);
  for (const auto& tokenizer : tokenizers) {
    std::vector<std::int32_t> tokens, again;
    tokenizer->encode(text, tokens);
    const bool is_whole =
        tokenizer->name() != "qwen2" && text.find('<') == std::string::npos;  // else NFC, or <w> strips
    const std::string decoded = tokenizer->decode(tokens);
    if (is_whole) expect(decoded == valid, "the tokens are the text");
    tokenizer->encode(text, again);
    expect(tokens == again, "the words that are kept have the tokens of the first time");
  }
}
std::vector<std::string> bpe_text_seeds() { return {std::string(kLesson), "a <w> b<|endoftext|>", "e\xcc\x81'S\xff"}; }

const Target kTargets[] = {
    {"tokenizer_json",
     tokenizer_json,
     tokenizer_json_seeds,
     {"\"merges\"", "\"vocab\"", "\"Regex\"", "\"Split\"", "\"NFC\"", "\"Metaspace\"", "\"Replace\"", "\"Removed\"",
      "\"Unigram\"", "\"WordPiece\"", "\"Lowercase\"", "\"StripAccents\"", "\"Whitespace\"", "\"first\"",
      "\"normalized\": true", "{1,3}", "(?!", "[^\\\\s]"}},
    {"bpe_text",
     bpe_text,
     bpe_text_seeds,
     {"'ll", "<w>", "<|endoftext|>", "\xcc\x81", "\xe1\xa0\x8e", "\xc2\x85", "\xe3\x80\x80", "\xf0\x9f\x98", "\r\n"}},
};

}  // namespace

std::span<const Target> tokenizer_targets() { return kTargets; }

}  // namespace ms::fuzz
