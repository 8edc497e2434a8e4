// Tokenizers of other kinds than byte-level BPE: the ids and the texts that Hugging Face's tokenizers 0.23.3 gives,
// made by tests/golden/tokenizer_kinds_peer.py; and what refuses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "data/encode.h"
#include "data/file_tokenizer.h"
#include "data/note.h"
#include "data/token_file.h"
#include "token_files.h"

namespace ms::data {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::int32_t> ids_of(const Json& list) { return list.get<std::vector<std::int32_t>>(); }

std::vector<std::int32_t> tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokenizer.encode(text, tokens);
  return tokens;
}

Json kept() { return Json::parse(slurp(fs::path(MS_SOURCE_DIR) / "tests/golden/tokenizer_kinds.json")); }

TEST(TokenizerKinds, GiveTheIdsAndTextsOfTokenizers) {
  std::size_t num_texts = 0;
  for (const Json& entry : kept()) {
    const Json* const file = entry.find("tokenizer");
    if (file == nullptr) continue;
    const FileTokenizer tokenizer("t", file->dump(), "</s>");
    for (const Json& row : entry.at("rows")) {
      ASSERT_EQ(tokens_of(tokenizer, row[0].text()), ids_of(row[1])) << row[0].dump();
      if (row.size() < 3) continue;
      EXPECT_EQ(tokenizer.decode(ids_of(row[1])), row[2].text()) << row[0].dump();
      ++num_texts;
    }
  }
  EXPECT_GT(num_texts, 20U);
}

TEST(TokenizerKinds, OfTheCases) {
  const fs::path folder = fs::path(MS_SOURCE_DIR) / "../shared/cases/models";
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/cases/models is not here";
  for (const Json& entry : kept()) {
    if (!entry.contains("case")) continue;
    const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer((folder / entry.at("case").text()).string());
    for (const Json& row : entry.at("rows"))
      EXPECT_EQ(tokens_of(*tokenizer, row[0].text()), ids_of(row[1])) << entry.at("case").dump() << row[0].dump();
    std::vector<std::int32_t> end = ids_of(entry.at("behind"));
    if (end.empty()) end.push_back(tokenizer->end_of_document());
    EXPECT_EQ(tokenizer->frame(), (Tokenizer::Frame{ids_of(entry.at("before")), end})) << entry.at("case").dump();
  }
}

constexpr std::string_view kLlama2 = R"({"version": "1.0", "truncation": {"max_length": 4}, "padding": {"pad_id": 0},
  "added_tokens": [{"id": 1, "content": "<s>", "special": true, "normalized": false, "lstrip": false, "rstrip": false,
                    "single_word": false},
                   {"id": 2, "content": "</s>", "special": true, "normalized": false, "lstrip": false, "rstrip": false,
                    "single_word": false}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},
                 {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]}, "pre_tokenizer": null,
  "post_processor": {"type": "TemplateProcessing", "pair": [],
                     "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                     "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
  "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "_"}, "content": " "},
              {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "dropout": 0.0, "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true,
            "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "<0x0A>": 3, "_": 4, "a": 5, "_a": 6}, "merges": ["_ a"]}})";

TEST(TokenizerKinds, FrameStandsAroundTexts) {
  const FileTokenizer with("t", kLlama2, {}), without("t", kLlama2, {}, false);
  EXPECT_THAT(with.frame().begin, ElementsAre(1));
  EXPECT_THAT(with.frame().end, ElementsAre(2));
  EXPECT_THAT(without.frame().begin, IsEmpty());
  EXPECT_THAT(without.frame().end, ElementsAre(2));
  EXPECT_THAT(tokens_of(with, "a a\nxy"), ElementsAre(6, 6, 3, 0));
  const std::vector<std::int32_t> ids{1, 6, 6, 3, 2};
  EXPECT_EQ(with.decode(ids), "a a\n");
  EXPECT_EQ(with.decode(ids, true), " a a\n");
  EXPECT_EQ(without.decode(ids), "<s> a a\n");
}

TEST(TokenizerKinds, EncodeWritesTheFrameOfEachDocument) {
  const TempDir dir;
  spill(dir / "t.json", std::string(kLlama2));
  spill(dir / "d.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\"}\n{\"text\": \"a a\"}\n");
  const std::vector<std::string> files{dir / "d.jsonl"};
  for (const bool with_template : {true, false}) {
    const auto tokenizer = make_tokenizer(dir / "t.json", {}, with_template);
    EncodeOptions options;
    options.replace = true;
    encode(dir / "out", files, *tokenizer, note_of(*tokenizer, dir / "t.json", {}), options);
    const TokenFile file(dir / "out");
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.num_tokens()));
    file.read(0, tokens);
    EXPECT_EQ(tokens, with_template ? std::vector({1, 6, 2, 1, 6, 6, 2}) : std::vector({6, 2, 6, 6, 2}));
    const std::optional<Note> note = read_note(dir / "out");
    EXPECT_EQ(note.value().frame, tokenizer->frame());
    EXPECT_EQ(tokenizer_of(*note, dir / "out")->frame(), tokenizer->frame());
  }
}

// The decoder takes the mark of a blank off the first token, and leaves real blanks, which vocabularies may have.
TEST(TokenizerKinds, MetaspaceLeavesRealBlanks) {
  std::string json(kLlama2);
  const auto put = [&](std::string_view old, std::string_view with) { json.replace(json.find(old), old.size(), with); };
  const std::size_t decoder = json.find("\"decoder\"");
  json.replace(decoder, json.find("\"model\"") - decoder, R"("decoder": {"type": "Metaspace", "replacement": "_"}, )");
  put("\"a\": 5", "\" _a b\": 5");
  put("\"_a\": 6", "\"__a\": 6");
  put("[\"_ a\"]", "[]");
  const FileTokenizer tokenizer("t", json, {});
  const auto text = [&](const std::vector<std::int32_t>& ids) { return tokenizer.decode(ids); };
  EXPECT_EQ(text({1, 5, 5, 2}), " a b  a b");
  EXPECT_EQ(text({6, 6}), "a  a");
  EXPECT_EQ(text({4, 4}), " ");
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{5}, true), "  a b");
}

constexpr std::string_view kBert = R"({"version": "1.0", "added_tokens": [
   {"id": 1, "content": "[CLS]", "special": true, "normalized": false, "lstrip": false, "rstrip": false,
    "single_word": false},
   {"id": 2, "content": "[SEP]", "special": true, "normalized": false, "lstrip": false, "rstrip": false,
    "single_word": false},
   {"id": 3, "content": "[MASK]", "special": true, "normalized": false, "lstrip": true, "rstrip": false,
    "single_word": false}],
  "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                 "lowercase": true},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
  "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
  "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3, "it": 4, "'": 5, "s": 6, "un": 7, "##do": 8,
                      "!": 9, "##s": 10}}})";

TEST(TokenizerKinds, ReadFilesOfBert) {
  const FileTokenizer tokenizer("t", kBert, {});
  EXPECT_EQ(tokenizer.frame(), (Tokenizer::Frame{{1}, {2}}));
  EXPECT_THAT(tokens_of(tokenizer, "It's UNDO!"), ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_THAT(tokens_of(tokenizer, "undos [MASK]!"), ElementsAre(7, 8, 10, 3, 9));
  const auto text = [&](const std::vector<std::int32_t>& ids) { return tokenizer.decode(ids); };
  EXPECT_EQ(text({1, 4, 5, 6, 7, 8, 9, 2}), "it ' s undo!");
  EXPECT_EQ(text({7, 8, 10, 3, 9}), "undos [MASK]!");
  EXPECT_EQ(text({8, 10, 8}), "##dosdo");
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{4, 9}, true), " it!");
}

TEST(TokenizerKinds, RefuseWhatIsNotDoneByName) {
  const struct {
    std::string_view old, with, message;
  } rows[] = {
      {"\"BPE\"", "\"WordLevel\"", "model.type: is 'WordLevel', not BPE, Unigram or WordPiece"},
      {"\"BPE\"", "\"Unigram\"", "model.dropout: is not known"},
      {"\"Prepend\"", "\"Nmt\"", "normalizer.normalizers[0].type: is 'Nmt'"},
      {"\"type\": \"Prepend\", \"prepend\": \"_\"", "\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAQA\"",
       "precompiled_charsmap: ends too early"},
      {"\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}", "pre_tokenizer.type"},
      {"\"pre_tokenizer\": null",
       "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\"}",
       "pre_tokenizer.prepend_scheme: is 'first'"},
      {"\"pre_tokenizer\": null", "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}",
       "decoder: "},
      {"\"ids\": [1]", "\"ids\": [7]", "the template has the token 7"},
      {"\"ids\": [1]", "\"ids\": [-1]", "special_tokens.<s>.ids: -1 is not the id"},
      {"{\"id\": \"A\"", "{\"id\": \"B\"", "is not the one A"},
      {"\"Fuse\"", "\"CTC\"", "decoder.decoders[2].type: is 'CTC'"},
      {"\"start\": 1, \"stop\": 0", "\"start\": 1, \"stop\": 1", "decoder.decoders[3].stop: is not 0"},
      {"\"String\": \" \"", "\"String\": \"\"", "String: is empty"},
  };
  for (const auto& row : rows) {
    std::string json(kLlama2);
    const std::size_t at = json.find(row.old);
    ASSERT_NE(at, std::string::npos) << row.old;
    json.replace(at, row.old.size(), row.with);
    const Error error = thrown_by([&] { FileTokenizer("t", json, {}); });
    EXPECT_EQ(error.kind(), "data.tokenizer");
    EXPECT_THAT(error.message(), HasSubstr(row.message));
  }
}

}  // namespace
}  // namespace ms::data
