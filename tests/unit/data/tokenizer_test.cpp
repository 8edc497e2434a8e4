// Tokenizers of tokenizer.json: training, the tokens of text, and one by one what is refused.
#include "data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "base/hash.h"
#include "base/rng.h"
#include "data/added_tokens.h"
#include "data/normalize.h"
#include "data/tokenizer_json.h"
#include "data/train_tokenizer.h"
#include "data/utf8.h"
#include "token_files.h"

namespace ms::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kLesson = "low low low lower lowest newer newer wider aaaa aaaaaa\n";

// Trained on the lesson.
TokenizerSpec small_spec(const std::string& pattern = "gpt2", std::int64_t vocab = 270) {
  TokenizerSpec spec = untrained_tokenizer(pattern);
  WordCounter counter(spec);
  counter.add(kLesson);
  const std::vector<std::string> special{"<|endoftext|>"};
  train_bpe(counter.counts(), vocab, special, spec);
  return spec;
}

std::unique_ptr<Tokenizer> made(const std::string& json, const std::optional<std::string>& end_of_document = {}) {
  const TempDir dir;
  spill(dir / "tokenizer.json", json);
  return make_tokenizer(dir / "tokenizer.json", end_of_document);
}

std::vector<std::int32_t> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokenizer.encode(text, tokens);
  return tokens;
}

std::string replaced(std::string text, std::string_view old, std::string_view with) {
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return at == std::string::npos ? text : text.replace(at, old.size(), with);
}

// The merges, ids and tokens are those that tokenizers 0.23.3 gives.
TEST(TrainBpe, MergesAsTokenizersDoes) {
  const TokenizerSpec spec = small_spec();
  std::vector<std::string> merges;
  for (const BpeMerge& merge : spec.merges)
    merges.push_back(spec.vocab[static_cast<std::size_t>(merge.left)] + " " +
                     spec.vocab[static_cast<std::size_t>(merge.right)]);
  const std::string blank = "\xc4\xa0";
  EXPECT_THAT(merges, ElementsAre("a a", "l o", "lo w", "e r", blank + " low", "aa aa", "e w", "n ew", blank + " aaaa",
                                  blank + " new", blank + "new er", "d er", "e s"));
  EXPECT_EQ(spec.vocab.size(), 270U);
  const auto tokenizer = made(tokenizer_json(spec));
  EXPECT_THAT(encoded(*tokenizer, "lower aaaaa's newest<|endoftext|>wide"),
              ElementsAre(259, 260, 265, 65, 7, 83, 266, 269, 84, 0, 87, 73, 68, 69));
}

TEST(TrainBpe, StopsWhereNothingIsLeftToMerge) {
  EXPECT_LT(small_spec("gpt2", 1000).vocab.size(), 320U);
  EXPECT_EQ(thrown_by([] { small_spec("gpt2", 256); }).kind(), "data.vocab");
  EXPECT_EQ(thrown_by([] { untrained_tokenizer("gpt5"); }).kind(), "data.pattern");
}

TEST(FileTokenizer, SaysWhatItIs) {
  const std::string json = tokenizer_json(small_spec());
  const auto tokenizer = made(json);
  EXPECT_EQ(tokenizer->vocab_size(), 270);
  EXPECT_EQ(tokenizer->end_of_document(), 0);
  EXPECT_FALSE(tokenizer->takes_pieces());
  EXPECT_EQ(tokenizer->fingerprint(), hash_hex(xxh3_64(json)));
  EXPECT_THAT(tokenizer->special_tokens(), ElementsAre("<|endoftext|>"));
  const std::vector<std::int32_t> bad{270};
  EXPECT_EQ(thrown_by([&] { tokenizer->decode(bad); }).kind(), "data.token");
}

TEST(FileTokenizer, RoundTripsTextOfEachPattern) {
  const std::string text =
      "It's 12345 lowest newer\r\n\n  wider\t\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80 \xc2\xa0! aaaaaaaaa";
  for (const char* pattern : {"gpt2", "llama3", "qwen2"}) {
    const auto tokenizer = made(tokenizer_json(small_spec(pattern)));
    EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, text)), text) << pattern;
  }
}

// A long word is merged by a queue, a short one by a scan.
TEST(FileTokenizer, LongWordsHaveTheTokensOfShortOnes) {
  const auto tokenizer = made(tokenizer_json(small_spec()));
  const std::vector<std::int32_t> tokens = encoded(*tokenizer, std::string(4000, 'a'));
  ASSERT_EQ(tokens.size(), 1000U);
  EXPECT_EQ(tokens[0], encoded(*tokenizer, "aaaa")[0]);
  EXPECT_EQ(tokens[999], tokens[0]);
}

TEST(FileTokenizer, ThreadsShareIt) {
  const auto tokenizer = made(tokenizer_json(small_spec()));
  const std::vector<std::int32_t> expected = encoded(*tokenizer, kLesson);
  std::vector<std::vector<std::int32_t>> results(4);
  {
    std::vector<std::jthread> threads;
    for (auto& result : results)
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) result = encoded(*tokenizer, kLesson);
      });
  }
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST(FileTokenizer, AddedTokensAreFoundAsTheirFlagsSay) {
  TokenizerSpec spec = small_spec("qwen2");
  const auto add = [&](AddedToken token) {
    token.id = static_cast<std::int32_t>(spec.vocab.size() + spec.added.size()) - 1;
    spec.added.push_back(std::move(token));
  };
  add({.content = "<l>", .lstrip = true});            // 270
  add({.content = "<r>", .rstrip = true});            // 271
  add({.content = "<w>", .single_word = true});       // 272
  add({.content = "<w><w>"});                         // 273
  add({.content = "A\xcc\x8a", .normalized = true});  // 274, U+00C5 once normalised
  add({.content = "<|im_end|>", .special = true});    // 275
  const auto tokenizer = made(tokenizer_json(spec));
  const auto a = encoded(*tokenizer, "a").at(0), b = encoded(*tokenizer, "b").at(0),
             bar = encoded(*tokenizer, "|").at(0);
  EXPECT_THAT(encoded(*tokenizer, "a \n<l>b"), ElementsAre(a, 270, b));
  EXPECT_THAT(encoded(*tokenizer, "a<r> \xe3\x80\x80 b"), ElementsAre(a, 271, b));
  EXPECT_THAT(encoded(*tokenizer, "|<w>|"), ElementsAre(bar, 272, bar));
  EXPECT_EQ(encoded(*tokenizer, "a<w>").size(), 4U);
  EXPECT_EQ(encoded(*tokenizer, "<w>\xc3\xa9").size(), 5U);
  EXPECT_THAT(encoded(*tokenizer, "<w><w>"), ElementsAre(273));
  EXPECT_THAT(encoded(*tokenizer, "\xc3\x85|A\xcc\x8a|\xe2\x84\xab"), ElementsAre(274, bar, 274, bar, 274));
  EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, "a<|im_end|><|endoftext|>b")), "a<|im_end|>b");
  EXPECT_EQ(made(tokenizer_json(spec), "<|im_end|>")->end_of_document(), 275);
  const Error error = thrown_by([&] { made(tokenizer_json(spec), "<|x|>"); });
  EXPECT_EQ(error.kind(), "data.tokenizer");
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.hint(), HasSubstr("<|endoftext|>, <|im_end|>"));
}

// A token that almost matches everywhere: 1 MB of it, beside the short one that does match. Each byte of the text is
// looked at a few times, not once for each byte of the token.
TEST(AddedTokenFinder, IsLinearInTheText) {
  constexpr std::size_t kBytes = 1'000'000;
  const std::string many(kBytes, 'a');
  const AddedTokenFinder finder({{"a", {.content = {}, .id = 0}},
                                 {many + "b", {.content = {}, .id = 1}},
                                 {"b" + many, {.content = {}, .id = 2}}});
  for (const auto& [text, tokens] : {std::pair{many + many, 2 * kBytes}, std::pair{many + many + "b", kBytes + 1},
                                     std::pair{"b" + many + many, kBytes + 1}}) {
    std::size_t moves = 0;
    EXPECT_GE(finder.find(text, &moves).size(), text.size() - 1) << "a token begins at each 'a'";
    EXPECT_LE(moves, 2 * text.size());
    Pattern::Scratch scratch;
    std::size_t num_tokens = 0;
    finder.split(
        text, scratch, [](std::string_view piece) { FAIL() << piece.size(); }, [&](std::int32_t) { ++num_tokens; });
    EXPECT_EQ(num_tokens, tokens);
  }
}

// The longest of those that begin leftmost, against a search at each byte.
TEST(AddedTokenFinder, FindsTheLongestThatBeginsLeftmost) {
  const auto word = [](std::uint64_t bits, std::size_t size) {
    std::string text;
    for (; text.size() < size; bits /= 3) text += static_cast<char>('a' + bits % 3);
    return text;
  };
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::map<std::string, std::int32_t> ids;
    for (std::uint64_t i = 0; i < 4; ++i) ids.emplace(word(random_u64(seed, 1, i), 1 + random_u64(seed, 2, i) % 5), i);
    std::vector<std::pair<std::string, AddedToken>> tokens;
    for (const auto& [text, id] : ids) tokens.push_back({text, {.content = {}, .id = id}});
    const std::string text = word(random_u64(seed, 3, 0), 30);
    std::string expected, found;
    for (std::size_t at = 0; at < text.size();) {
      const auto longest = [&] {
        for (std::size_t size = 5; size > 0; --size) {
          if (const auto it = ids.find(text.substr(at, size)); it != ids.end()) return it;
        }
        return ids.end();
      }();
      expected += longest == ids.end() ? std::string(1, text[at]) : std::to_string(longest->second);
      at += longest == ids.end() ? 1 : longest->first.size();
    }
    Pattern::Scratch scratch;
    AddedTokenFinder(tokens).split(
        text, scratch, [&](std::string_view piece) { found += piece; },
        [&](std::int32_t id) { found += std::to_string(id); });
    ASSERT_EQ(found, expected) << seed << ' ' << text;
  }
}

// Tokens of white space in what another took are found all the same; the run is walked once.
TEST(AddedTokenFinder, TokensOfWhiteSpaceInWhatAnotherTook) {
  const AddedTokenFinder finder({{" ", {.content = {}, .id = 1, .lstrip = true, .rstrip = true}},
                                 {"x", {.content = {}, .id = 2, .rstrip = true}}});
  Pattern::Scratch scratch;
  std::string found;
  finder.split(
      "ax   b", scratch, [&](std::string_view piece) { found += piece; },
      [&](std::int32_t id) { found += std::to_string(id); });
  EXPECT_EQ(found, "a2111b");
}

TEST(FileTokenizer, IgnoresMergesWhereTheFileSaysSo) {
  const std::string blank = "\xc4\xa0";
  std::string json = tokenizer_json(small_spec("llama3"));
  json = replaced(json, "\"es\"", "\"west\"");  // no merge makes it
  json.erase(json.find("[\"e\", \"s\"]") - 8, 18);
  EXPECT_EQ(encoded(*made(json), "west").size(), 1U);
  EXPECT_GT(encoded(*made(replaced(json, "\"ignore_merges\": true", "\"ignore_merges\": false")), "west").size(), 1U);
}

TEST(FileTokenizer, AddsABlankAndReadsMergesAsStrings) {
  const std::string json = tokenizer_json(small_spec());
  const auto with_blank = made(replaced(json, "\"add_prefix_space\": false", "\"add_prefix_space\": true"));
  const auto without = made(json);
  EXPECT_EQ(encoded(*with_blank, "low"), encoded(*without, " low"));
  EXPECT_EQ(encoded(*with_blank, " low"), encoded(*without, " low"));
  EXPECT_THAT(encoded(*with_blank, ""), ElementsAre());
  EXPECT_EQ(encoded(*made(replaced(json, "[\"a\", \"a\"]", "\"#version: 0.2\", \"a a\"")), kLesson),
            encoded(*without, kLesson));
}

TEST(FileTokenizer, RefusesWhatItWouldDoOtherwise) {
  const std::string json = tokenizer_json(small_spec());
  const struct {
    std::string_view old, with, message;
  } rows[] = {
      {"{\n  \"version\"", "[\n  \"version\"", "is not JSON"},
      {"\"version\": \"1.0\"", "\"version\": \"2.0\"", "version: is '2.0'"},
      {"\"padding\": null", "\"filling\": null", "filling: is not known"},
      {"\"padding\": null", "\"padding\": null, \"padding\": null", "'padding' is there twice"},
      {"\"type\": \"BPE\"", "\"type\": \"Unigram\"", "pre_tokenizer: is ByteLevel, and the model is not BPE"},
      {"\"type\": \"BPE\"", "\"type\": \"WordLevel\", \"unk_id\": 0", "model.type: is 'WordLevel'"},
      {"\"dropout\": null", "\"dropout\": 0.1", "model.dropout: is not 0"},
      {"\"unk_token\": null", "\"unk_token\": \"<u>\"", "model.unk_token: is not in the vocabulary"},
      {"\"byte_fallback\": false", "\"byte_fallback\": 1", "model.byte_fallback: is not true or false"},
      {"\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"##\"",
       "model.continuing_subword_prefix: is set"},
      {"\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"", "model.end_of_word_suffix: is set"},
      {"\"ignore_merges\"", "\"ignores\"", "model.ignores: is not known"},
      {"\"normalizer\": null", "\"normalizer\": {\"type\": \"Nmt\"}", "normalizer.type: is 'Nmt'"},
      {"\"post_processor\": null", "\"post_processor\": {\"type\": \"BertProcessing\"}",
       "post_processor.cls: is missing"},
      {"\"decoder\": {\n    \"type\": \"ByteLevel\"", "\"decoder\": {\n    \"type\": \"Fuse\"",
       "decoder: is ByteLevel, and the pre-tokenizer is not"},
      {"\"pretokenizers\": [", "\"pretokenizers\": [{\"type\": \"UnicodeScripts\"}, ", "pretokenizers[0].type"},
      {"\"pretokenizers\": [",
       "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": "
       "\"Split\", \"invert\": false}, ",
       "behavior: is 'Split'"},
      {"\"pretokenizers\": [",
       "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": "
       "\"Isolated\", \"invert\": 1}, ",
       "invert: is not true or false"},
      {"\"pretokenizers\": [",
       "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Strings\": \"a\"}, \"behavior\": "
       "\"Isolated\", \"invert\": false}, ",
       "Strings: is not known"},
      {"\"pretokenizers\": [",
       "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a*\"}, \"behavior\": "
       "\"Isolated\", \"invert\": false}, ",
       "matches the empty text"},
      {"\"use_regex\": true", "\"use_regexp\": true", "use_regexp: is not known"},
      {"\"es\": 269", "\"es\": 268", "the id of 'es' is 268"},
      {"\"es\": 269", "\"es\": 270", "the id of 'es' is 270"},
      {"\"es\": 269", "\"es\": -1", "the id of 'es' is -1"},
      {"[\"a\", \"a\"]", "[\"a\", \"zz\"]", "model.merges[0]: 'zz' is not in the vocabulary"},
      {"[\"a\", \"a\"]", "[\"a\", \"z\"]", "model.merges[0]: 'az' is not in the vocabulary"},
      {"[\"a\", \"a\"]", "[\"a\"]", "model.merges[0]: is neither"},
      {"[\"a\", \"a\"]", "\"a a a\"", "model.merges[0]: 'a a a' is not two tokens"},
      {"\"id\": 0", "\"id\": 5", "added_tokens[0].id: of '<|endoftext|>' is 5, and tokenizers would make it 0"},
      {"\"content\": \"<|endoftext|>\"", "\"content\": \"\"", "added_tokens[0].content: is empty"},
      {"\"content\": \"<|endoftext|>\"", "\"content\": \"<x>\"", "tokenizers would make it 270"},
      {"\"lstrip\": false", "\"lstrip\": null", "added_tokens[0].lstrip: is missing"},
      {"\"special\": true", "\"special\": false", "the token that ends a document is not known"},
  };
  for (const auto& row : rows) {
    const Error error = thrown_by([&] { made(replaced(json, row.old, row.with)); });
    EXPECT_EQ(error.kind(), "data.tokenizer") << row.with;
    EXPECT_EQ(error.blame(), Blame::user) << row.with;
    EXPECT_THAT(error.message(), HasSubstr(row.message));
  }
  EXPECT_THAT(thrown_by([] { make_tokenizer("gpt2"); }).hint(), HasSubstr("tokenizer.json"));
  EXPECT_EQ(thrown_by([] { make_tokenizer("no/such.json"); }).blame(), Blame::user);
  EXPECT_EQ(thrown_by([] { make_tokenizer("byte", "</s>"); }).kind(), "data.tokenizer");
}

TEST(ValidUtf8, ReplacesEachMaximalSubpart) {
  const std::string bad = "\xef\xbf\xbd";
  const struct {
    std::string_view text;
    std::string valid;
  } rows[] = {
      {"", ""},
      {"plain ascii, more than eight", "plain ascii, more than eight"},
      {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
      {"\xf0\x9f\x98", bad},
      {"\xf0\x9f\x98(", bad + "("},
      {"\xf0\x9f\xf0\x9f\x98\x80", bad + "\xf0\x9f\x98\x80"},
      {"\xe2\x82", bad},
      {"\xc0\x80", bad + bad},
      {"\xed\xa0\x80", bad + bad + bad},
      {"\xf4\x90\x80\x80", bad + bad + bad + bad},
      {"a\xff", "a" + bad},
  };
  for (const auto& row : rows) {
    std::string storage;
    EXPECT_EQ(valid_utf8(row.text, storage), row.valid);
  }
}

TEST(NormalizeNfc, ComposesAsTokenizersDoes) {
  const struct {
    std::string_view text, composed;
  } rows[] = {
      {"plain", "plain"},
      {"e\xcc\x81x", "\xc3\xa9x"},
      {"\xe2\x84\xab", "\xc3\x85"},
      {"\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81"},
      {"\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81"},
      {"a\xcc\x95\xcc\x96", "a\xcc\x96\xcc\x95"},                                // marks are sorted
      {"a\xe1\xaa\xbf\xcc\x81", "a\xe1\xaa\xbf\xcc\x81"},                        // but for one of Unicode 13
      {"\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0", "\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0"},  // nor are two of that composed
  };
  for (const auto& row : rows) {
    std::string storage;
    EXPECT_EQ(normalize_form(row.text, NormalForm::c, storage), row.composed);
  }
}

}  // namespace
}  // namespace ms::data
