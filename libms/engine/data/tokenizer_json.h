// Hugging Face tokenizer.json files of byte-level BPE: what they say, checked, and written anew.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"

namespace ms::data {

struct TokenizerSpec {
  std::vector<std::string> vocab;  // by id, as the file writes tokens: with a character for each byte
  std::vector<BpeMerge> merges;
  bool ignore_merges = false;  // a word that is a token stays one
  bool nfc = false;
  std::vector<std::string> patterns;  // each splits what the ones before it left; matches stand alone
  bool add_prefix_space = false;      // to each piece that begins with none
  bool gpt2_pattern = false;          // splits behind that, as ByteLevel's use_regex says
  std::vector<AddedToken> added;      // in the order of the file
};

// Reads the text of a tokenizer.json. Error("data.tokenizer", user): it is no such file, or asks for what is not done
// exactly as Hugging Face's tokenizers does it; the message names the field.
TokenizerSpec parse_tokenizer_json(std::string_view text);

// The text of a tokenizer.json that says that.
std::string tokenizer_json(const TokenizerSpec& spec);

}  // namespace ms::data
