// Patterns that split text: what is the same in PCRE2 and Oniguruma, and the published ones by code and by PCRE2.
#include "data/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "data/portable_pattern.h"
#include "data/word_splitter.h"
#include "support/errors.h"

namespace ms::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> words_of(const WordSplitter& splitter, std::string_view text) {
  std::vector<std::string> words;
  Pattern::Scratch scratch;
  splitter.split(text, true, scratch, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

WordSplitter splitter_of(std::string_view pattern, bool by_pcre2 = false) {
  return WordSplitter({{SplitStep::Kind::pattern, std::string(pattern)}}, by_pcre2);
}

TEST(PortablePattern, RefusesWhatIsNotTheSame) {
  const struct {
    std::string_view pattern, why;
  } rows[] = {
      {"^a", "'^'"},
      {"a$", "'$'"},
      {"a.", "'.'"},
      {"\\h", "'\\h'"},
      {"\\w+", "'\\w'"},
      {"\\b", "'\\b'"},
      {"\\d", "'\\d'"},
      {"(a)\\1", "'\\1'"},
      {"\\x41", "'\\x'"},
      {"a{2}+", "behind '}'"},
      {"a{2}?", "behind '}'"},
      {"a{,2}", "quantifier other than"},
      {"a{2,1}", "quantifier other than"},
      {"a{2000}", "quantifier other than"},
      {"a**", "'*'"},
      {"(?=a)+", "'+'"},
      {"(?i)a", "group of another kind"},
      {"(?<n>a)", "group of another kind"},
      {"(?<=a)b", "group of another kind"},
      {"(?>a)", "group of another kind"},
      {"(?i:\\p{L})", "(?i: of other than"},
      {"(?i:'ss)", "two letters"},
      {"(?i:'St)", "two letters"},
      {"[a[b]]", "'[' in a class"},
      {"[a&&b]", "'&&'"},
      {"[a\\S]", "\\S or \\P"},
      {"[]a]", "']' as the first"},
      {"[\\s-z]", "'-' in a class"},
      {"[a-\\s]", "range of characters"},
      {"[z-a]", "range of characters"},
      {"[a", "ends too early"},
      {"\\p{Han}", "is none of"},
      {"\\pL", "'\\p'"},
      {"\\p{^L}", "is none of"},
      {"(a", "not closed"},
      {"a)", "closes no group"},
      {"a\\", "ends too early"},
  };
  for (const auto& row : rows) {
    const Error error = test::thrown_by([&] { portable_pattern(row.pattern); });
    EXPECT_EQ(error.kind(), "data.tokenizer");
    EXPECT_THAT(error.message(), HasSubstr(row.why)) << row.pattern;
  }
  EXPECT_THAT(test::thrown_by([] { Pattern("a*"); }).message(), HasSubstr("matches the empty text"));
  EXPECT_EQ(test::thrown_by([] { portable_pattern(std::string(20000, 'a')); }).kind(), "data.tokenizer");
  EXPECT_EQ(test::thrown_by([] { portable_pattern(std::string(100, '(')); }).kind(), "data.tokenizer");
}

TEST(WordSplitter, SplitsAsOnigurumaDoes) {
  // U+180E is no white space, U+0085 is; U+105C0 is a letter of Unicode 16; U+017F is an s in another case.
  const WordSplitter spaces = splitter_of("\\s+"), letters = splitter_of("\\p{L}+");
  EXPECT_THAT(words_of(spaces,
                       "a\xe1\xa0\x8e"
                       "b\xc2\x85"
                       "c"),
              ElementsAre("a\xe1\xa0\x8e"
                          "b",
                          "\xc2\x85", "c"));
  EXPECT_THAT(words_of(letters, ".a\xf0\x90\x97\x80."), ElementsAre(".", "a\xf0\x90\x97\x80", "."));
  for (const bool by_pcre2 : {false, true}) {
    EXPECT_THAT(words_of(splitter_of(kLlama3Pattern, by_pcre2), "I'LL it'\xc5\xbf 12345  x\n\n  y !\n"),
                ElementsAre("I", "'LL", " it", "'\xc5\xbf", " ", "123", "45", " ", " x", "\n\n", " ", " y", " !\n"));
    EXPECT_THAT(words_of(splitter_of(kQwen2Pattern, by_pcre2), "12 \t"), ElementsAre("1", "2", " \t"));
    EXPECT_THAT(words_of(splitter_of(kGpt2Pattern, by_pcre2), "I'll'LL 12345  x\n\n  !"),
                ElementsAre("I", "'ll", "'", "LL", " 12345", " ", " x", "\n\n ", " !"));
  }
  const WordSplitter three({{SplitStep::Kind::pattern, "[0-9]{2}"},
                            {SplitStep::Kind::prefix, " "},
                            {SplitStep::Kind::pattern, std::string(kGpt2Pattern)}});
  EXPECT_THAT(words_of(three, "a123"), ElementsAre(" a", " 12", " 3"));
}

// As Split of tokenizers 0.23.3 does it.
TEST(WordSplitter, PutsMatchesWhereTheBehaviorSays) {
  using enum SplitBehavior;
  const struct {
    SplitBehavior behavior;
    bool invert;
    std::vector<std::string> words;
  } rows[] = {
      {isolated, false, {"-", "-", "a", "-", "b", "-", "-"}},
      {removed, false, {"a", "b"}},
      {removed, true, {"-", "-", "-", "-", "-"}},
      {merged_with_previous, false, {"-", "-", "a-", "b-", "-"}},
      {merged_with_previous, true, {"-", "-a", "-b", "-", "-"}},
      {merged_with_next, false, {"-", "-a", "-b", "-", "-"}},
      {merged_with_next, true, {"-", "-", "a-", "b-", "-"}},
      {contiguous, false, {"--", "a", "-", "b", "--"}},
      {contiguous, true, {"--", "a", "-", "b", "--"}},
  };
  for (const auto& row : rows)
    for (const auto kind : {SplitStep::Kind::literal, SplitStep::Kind::pattern})
      EXPECT_EQ(words_of(WordSplitter({{kind, "-", row.behavior, row.invert}}), "--a-b--"), row.words);
}

TEST(WordSplitter, PublishedPatternsSplitAsPcre2Does) {
  const std::vector<std::string> parts{"'s",
                                       "'S",
                                       "'t",
                                       "'LL",
                                       "'re",
                                       "'\xc5\xbf",
                                       "'",
                                       " ",
                                       "  ",
                                       "\t",
                                       "\n",
                                       "\r\n",
                                       "\xc2\xa0",
                                       "\xc2\x85",
                                       "\xe1\xa0\x8e",
                                       "\xe3\x80\x80",
                                       "a",
                                       "Z",
                                       "word",
                                       "\xc3\xa9",
                                       "\xcc\x81",
                                       "1",
                                       "2345",
                                       "\xd9\xa4",
                                       "\xc2\xb2",
                                       ".",
                                       "!?",
                                       "\xe2\x80\xa6",
                                       "\xf0\x9f\x98\x80",
                                       "_",
                                       "\xe4\xb8\xad",
                                       "\xf0\x90\x97\x80",
                                       "\xf3\xa0\x80\x81"};
  std::mt19937 random(1);
  const WordSplitter by_code[] = {splitter_of(kGpt2Pattern), splitter_of(kLlama3Pattern), splitter_of(kQwen2Pattern)};
  const WordSplitter by_pcre2[] = {splitter_of(kGpt2Pattern, true), splitter_of(kLlama3Pattern, true),
                                   splitter_of(kQwen2Pattern, true)};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n) text += parts[random() % parts.size()];
    for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(words_of(by_code[i], text), words_of(by_pcre2[i], text)) << text;
  }
}

}  // namespace
}  // namespace ms::data
