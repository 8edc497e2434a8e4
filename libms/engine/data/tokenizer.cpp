#include "data/tokenizer.h"

#include <unistd.h>

#include "base/error.h"
#include "base/user_path.h"
#include "data/file_tokenizer.h"

namespace ms::data {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20U;  // of a tokenizer.json

}  // namespace

bool ByteTokenizer::encode(std::string_view text, std::vector<std::int32_t>& tokens) const {
  const std::size_t old_size = tokens.size();
  tokens.resize(old_size + text.size());
  for (std::size_t i = 0; i < text.size(); ++i) tokens[old_size + i] = static_cast<unsigned char>(text[i]);
  return true;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> tokens, bool) const {
  std::string text;
  text.reserve(tokens.size());
  for (const std::int32_t id : tokens) {
    if (id == kEndOfDocument) continue;
    if (id < 0 || id > kEndOfDocument) {
      throw user_error("data.token",
                       fmt::format("token {} is not one of the byte tokenizer's {} tokens", id, kVocabSize));
    }
    text.push_back(static_cast<char>(static_cast<unsigned char>(id)));
  }
  return text;
}

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name, const std::optional<std::string>& end_of_document,
                                          bool with_template) {
  if (name != "byte") {
    const std::string path(name);
    if (::access(path.c_str(), F_OK) != 0 && name.find('/') == std::string_view::npos)
      throw user_error("data.tokenizer", fmt::format("unknown tokenizer '{}'", name),
                       "use byte, or the path of a tokenizer.json");
    const std::string json = read_user_file(path, kMaxFileBytes);
    try {
      return std::make_unique<FileTokenizer>(path, json, end_of_document, with_template);
    } catch (const Error& error) { throw error.with_context(path); }
  }
  if (end_of_document)
    throw user_error("data.tokenizer", "the byte tokenizer has its own end of a document, token 256",
                     "leave --eod out, or name a tokenizer.json with --tokenizer");
  return std::make_unique<ByteTokenizer>();
}

std::unique_ptr<Tokenizer> tokenizer_for_vocab(std::int64_t vocab_size) {
  return vocab_size == ByteTokenizer::kVocabSize ? std::make_unique<ByteTokenizer>() : nullptr;
}

}  // namespace ms::data
