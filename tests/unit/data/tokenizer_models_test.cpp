// The models and normalizers of tokenizer.json files, each by itself. What is expected is what Hugging Face's
// tokenizers 0.23.3 gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/charsmap.h"
#include "data/normalize.h"
#include "data/unigram.h"
#include "data/word_piece.h"
#include "token_files.h"

namespace ms::data {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(Unigram, TakesTheHighestSumAndFusesTheUnknown) {
  const std::vector<std::string> vocab{"<unk>", "a", "b", "ab", "aa", "ba", "xy", "<0x79>", "a", "<0x78>"};
  const std::vector<double> scores{0, -1, -1, -2, -2, -1.5, -9, -3, -1.25, -3};
  std::array<std::int32_t, 256> none, some;
  none.fill(-1), some.fill(-1);
  some['x'] = 9, some['y'] = 7;
  const Unigram without(vocab, scores, 0, none), with(vocab, scores, 0, some);
  const struct {
    std::string_view text;
    Ids without, with;
  } rows[] = {
      {"ab", {3}, {3}},           {"aab", {4, 2}, {4, 2}},  {"aba", {8, 5}, {8, 5}},  // the later "a" counts
      {"aaaa", {4, 4}, {4, 4}},   {"xyab", {6, 3}, {6, 3}}, {"xxa", {0, 8}, {9, 9, 8}},
      {"yxb", {0, 2}, {7, 9, 2}}, {"zxa", {0, 8}, {0, 8}},  // not all bytes of "zx" have a token
      {"<unk>a", {0, 8}, {0, 8}}, {"x<unk>", {0}, {0}},
  };
  Unigram::Scratch scratch;
  for (const auto& row : rows) {
    Ids tokens;
    without.encode(row.text, tokens, scratch);
    EXPECT_EQ(tokens, row.without) << row.text;
    tokens = {5};
    with.encode(row.text, tokens, scratch);
    EXPECT_EQ(Ids(tokens.begin() + 1, tokens.end()), row.with) << row.text;
  }
}

// With scores above 0, two unknown characters may be worth more than the token that they are together.
TEST(Unigram, FusedUnknownCharactersMayBeAToken) {
  std::array<std::int32_t, 256> none;
  none.fill(-1);
  const Unigram model({"<unk>", "x", "ab", "zab"}, {100, 100, 95, 250}, 0, none);
  Unigram::Scratch scratch;
  for (const auto& [text, ids] :
       {std::pair("ab", Ids{2}), std::pair("xab", Ids{1, 2}), std::pair("abab", Ids{0}), std::pair("zab", Ids{3})}) {
    Ids tokens;
    model.encode(text, tokens, scratch);
    EXPECT_EQ(tokens, ids) << text;
  }
}

TEST(WordPiece, TakesTheLongestTokens) {
  const WordPiece model({"[UNK]", "un", "##aff", "##able", "u", "##n", "##", "###x", "\xc3\xa9", "##\xc3\xa9"}, "##", 0,
                        9);
  const std::string e = "\xc3\xa9", nine = e + e + e + e + e + e + e + e + e;
  const std::pair<std::string, Ids> rows[] = {{"unaffable", {1, 2, 3}},
                                              {"unaffabl", {0}},
                                              {"unn", {1, 5}},
                                              {"##", {6}},
                                              {"###x", {7}},
                                              {"un#x", {1, 7}},
                                              {e + e, {8, 9}},
                                              {nine, {8, 9, 9, 9, 9, 9, 9, 9, 9}},
                                              {nine + e, {0}},
                                              {"nu", {0}},
                                              {"un" + e, {1, 9}}};
  for (const auto& [text, ids] : rows) {
    Ids tokens{3};
    model.encode(text, tokens);
    EXPECT_EQ(Ids(tokens.begin() + 1, tokens.end()), ids) << text;
  }
}

// SentencePiece's table of: "a" U+0301 becomes U+00E1; CR and U+00A0 become a blank; "x" is left out.
constexpr std::string_view kCharsmap =
    "AAQAAAAwAAANDQAAAQAAgMwYAgCBBQAAAwAAgAAAAICgFQAACQAAAAgAAAALAAAACgAAAA0AAAAMAAAADwAAAA4AAAARAAAAEAAAABMAAA"
    "ASAAAAFQAAABQAAAAXAAAAFgAAABkAAAAYAAAAGwAAABoAAAAdAAAAHAAAAB8AAAAeAAAAIQAAACAAAAAjAAAAIgAAACUAAAAkAAAAJwAA"
    "ACYAAAApAAAAKAAAACsAAAAqAAAALQAAACwAAAAvAAAALgAAADEAAAAwAAAAMwAAADIAAAA1AAAANAAAADcAAAA2AAAAOQAAADgAAAA7AA"
    "AAOgAAAD0AAAA8AAAAPwAAAD4AAABBAAAAQAAAAEMAAABCAAAARQAAAEQAAABHAAAARgAAAEkAAABIAAAASwAAAEoAAABNAAAATAAAAE8A"
    "AABOAAAAUQAAAFAAAABTAAAAUgAAAFUAAABUAAAAVwAAAFYAAABZAAAAWAAAAFsAAABaAAAAXQAAAFwAAABfAAAAXgAAAGEAAABgAAAAYw"
    "AAAGIAAABlAAAAZAAAAGcAAABmAAAAaQAAAGgAAABrAAAAagAAAG0AAABhiAIAbwAAAG4AAABxAAAAcAAAAHMAAAByAAAAeMkBAHQAAAB3"
    "AAAAdgAAAHkAAAB4AAAAewAAAHoAAAB9AAAAfAAAAH8AAAB+AAAAgQAAAIAAAACDAAAAggAAAIUAAACEAAAAhwAAAIYAAACJAAAAiAAAAI"
    "sAAACKAAAAjQAAAIwAAACPAAAAjgAAAJEAAACQAAAAkwAAAJIAAACVAAAAlAAAAJcAAACWAAAAmQAAAJgAAACbAAAAmgAAAJ0AAACcAAAA"
    "nwAAAJ4AAAChAAAAoAAAAKMAAACiAAAApQAAAKQAAACnAAAApgAAAKkAAACoAAAAqwAAAKoAAACtAAAArAAAAK8AAACuAAAAsQAAALAAAA"
    "CzAAAAsgAAALUAAAC0AAAAtwAAALYAAAC5AAAAuAAAALsAAAC6AAAAvQAAALwAAAC/AAAAvgAAAMEAAADAAAAAwwAAAMIAAADFAAAAxAAA"
    "AMcAAADGAAAAyQAAAMgAAADLAAAAygAAAM0AAADMAAAAwqQBAM4AAADRAAAA0AAAANMAAADSAAAA1QAAANQAAADXAAAA1gAAANkAAADYAA"
    "AA2wAAANoAAADdAAAA3AAAAN8AAADeAAAA4QAAAOAAAADjAAAA4gAAAOUAAADkAAAA5wAAAOYAAADpAAAA6AAAAOsAAADqAAAA7QAAAOwA"
    "AADvAAAA7gAAAPEAAADwAAAA8wAAAPIAAAD1AAAA9AAAAPcAAAD2AAAA+QAAAPgAAAD7AAAA+gAAAP0AAAD8AAAA/wAAAP4AAAAAIADDoQ"
    "A=";

TEST(Charsmap, ReplacesGraphemesOrTheirCharacters) {
  const Charsmap map(kCharsmap);
  const std::pair<std::string_view, std::string_view> rows[] = {
      {"", ""},
      {"a\xcc\x81", "\xc3\xa1"},
      {"a\xcc\x81\xcc\x82", "\xc3\xa1"},                           // all of the grapheme is replaced
      {"a\xcc\x81\xcc\x82\xcc\x82", "a\xcc\x81\xcc\x82\xcc\x82"},  // it has too many bytes
      {"a\r\nb\r", "a b "},
      {"x\xcc\x81y", "y"},
      {"\xc2\xa0\xcc\x81!", " !"},
      {"\xc2\xa0\xe1\xab\x93!", " !"},  // U+1AD3 is a mark of Unicode 17
      {"\xd8\x80\xc2\xa0", "\xd8\x80 "},
  };
  for (const auto& [text, expected] : rows) {
    std::string result;
    map.append(text, result);
    EXPECT_EQ(result, expected) << text;
  }
}

TEST(Charsmap, RefusesWhatIsDamaged) {
  for (const std::string_view bad : {"", "AAQ", "AAQAAAAg", "A*AA", "////////"})
    EXPECT_EQ(thrown_by([&] { Charsmap map(bad); }).kind(), "data.tokenizer") << bad;
  for (std::size_t i = 8; i < kCharsmap.size(); i += 3) {  // whatever changes, nothing is read outside of it
    std::string changed(kCharsmap);
    changed[i] = changed[i] == 'z' ? 'y' : 'z';
    try {
      std::string result;
      Charsmap(changed).append("a\xcc\x81 x\r\n\xc2\xa0", result);
    } catch (const Error& error) { EXPECT_EQ(error.kind(), "data.tokenizer"); }
  }
}

std::string normalized(const std::vector<NormalizerStep>& steps, std::string_view text) {
  Pattern::Scratch scratch;
  std::string storage[2];
  return std::string(Normalizer(steps).normalize(text, storage, scratch));
}

NormalizerStep each(CharacterMap map) { return {.kind = NormalizerStep::Kind::characters, .map = map}; }

TEST(Normalizer, DoesWhatBertAsksFor) {
  const std::vector<NormalizerStep> bert{
      each(clean), each(spaced_chinese), {.form = NormalForm::d}, each(without_nonspacing_marks), each(lower_case)};
  const std::pair<std::string, std::string> rows[] = {
      {std::string("\xc3\x89t\xc3\xa9\0\a\tx\xe2\x80\x8d\xef\xbf\xbd", 15), "ete x"},
      {"\xe4\xb8\xad\xe6\x96\x87", " \xe4\xb8\xad  \xe6\x96\x87 "},
      {"\xc4\xb0I\xce\xa3", "ii\xcf\x83"},                               // I with a dot, sigma
      {"\xed\x95\x9c\xcc\x81", "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"},  // Hangul is not composed again
      {"\xe1\xb2\x89\xe0\xa2\x97\xcc\x81", "\xe1\xb2\x8a\xe0\xa2\x97"},  // a mark of Unicode 16 stays
      {"a\v\f\xc2\x85"
       "b",
       "ab"},
  };
  for (const auto& [text, expected] : rows) EXPECT_EQ(normalized(bert, text), expected) << text;
  EXPECT_EQ(normalized({each(lower_case)}, "\xc4\xb0"), "i\xcc\x87");
  EXPECT_EQ(normalized({each(without_marks)},
                       "a\xcc\x81\xe0\xa4\xbe\xe2\x83\x9d"
                       "b"),
            "ab");  // of all categories
}

TEST(Normalizer, TakesCompatibilityCharactersApart) {
  const std::string text =
      "\xef\xac\x81\xc3\xa9 \xef\xbd\xb6\xef\xbe\x9e\xf0\x9f\x85\xac";  // the last is later than Unicode 9
  EXPECT_EQ(normalized({{.form = NormalForm::kd}}, text), "fie\xcc\x81 \xe3\x82\xab\xe3\x82\x99\xf0\x9f\x85\xac");
  EXPECT_EQ(normalized({{.form = NormalForm::kc}}, text), "fi\xc3\xa9 \xe3\x82\xac\xf0\x9f\x85\xac");
}

// Each step works on what the one before it left, wherever that lies.
TEST(Normalizer, StripsBothEndsOfWhatOtherStepsMade) {
  using Kind = NormalizerStep::Kind;
  const NormalizerStep double_a{Kind::replace, "aa", "a"};
  EXPECT_EQ(normalized({{Kind::strip_left}, {Kind::strip_right}}, " \xe3\x80\x80 a b\n\xc2\xa0"), "a b");
  EXPECT_EQ(normalized({double_a, {Kind::strip_left}, double_a, {Kind::strip_right}, double_a}, "  a b "),
            "aaaaaaaa b");
  EXPECT_EQ(normalized({{Kind::strip_left}, {Kind::strip_right}}, " \n "), "");
}

}  // namespace
}  // namespace ms::data
