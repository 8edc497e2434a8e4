// Hugging Face tokenizer.json files: what they say, checked, and written anew.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/normalize.h"
#include "data/word_splitter.h"

namespace ms::data {

struct DecoderStep {
  enum class Kind {
    byte_level,     // characters of the alphabet are bytes
    replace,        // `content` in the place of `text`
    byte_fallback,  // <0x0A> is a byte
    fuse,
    strip_text,  // the first `count` of `text` that all begins with
    word_piece,  // a blank before it, or without `text`, which it begins with; and cleaned if `count` is 1
    metaspace,   // a blank in the place of `text`, and nothing in the first token
  };
  Kind kind = Kind::byte_level;
  std::string text = {}, content = {};
  std::size_t count = 0;
};

struct TokenizerSpec {
  enum class Model { bpe, unigram, word_piece };
  Model model = Model::bpe;
  std::vector<std::string> vocab;  // by id, as the file writes tokens: at byte level, with a character for each byte
  bool byte_fallback = false;
  std::int32_t unknown = -1;
  // BPE
  std::vector<BpeMerge> merges;
  bool ignore_merges = false;  // a word that is a token stays one
  bool fuse_unknown = false;
  std::vector<double> scores;  // Unigram
  // WordPiece
  std::string part_prefix;
  std::size_t max_word_characters = 0;
  // All
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> splits;
  bool is_byte_level = false;
  std::vector<DecoderStep> decoder;
  std::vector<AddedToken> added;             // in the order of the file
  std::vector<std::int32_t> before, behind;  // tokens that the template puts around a text
};

// Reads the text of a tokenizer.json. Error("data.tokenizer", user): it is no such file, or asks for what is not done
// exactly as Hugging Face's tokenizers does it; the message names the field.
TokenizerSpec parse_tokenizer_json(std::string_view text);

// The text of a tokenizer.json that says that, of a tokenizer that untrained_tokenizer() began.
std::string tokenizer_json(const TokenizerSpec& spec);

}  // namespace ms::data
