// The text in lines of JSON, and what is wrong with lines that are none.
#include "data/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/encode.h"
#include "packed.h"
#include "token_files.h"

namespace ms::data {
namespace {

// The text, or "error: what".
std::string read(const std::string& line, const std::vector<std::string>& fields = {"text"}) {
  const std::string padded = line + std::string(JsonLine::kPadding, '\0');
  std::string text = "old";
  const auto problem = JsonLine(fields).read(std::string_view(padded).substr(0, line.size()), text);
  if (!problem) return text;
  return "error: " + problem->what + (problem->column ? " at " + std::to_string(*problem->column) : "");
}

TEST(JsonLine, ARepeatedKeyReplacesAllOfItsEarlierValue) {
  const std::vector<std::string> field{"meta.body"};
  EXPECT_EQ(read(R"({"meta": {"body": "first"}, "meta": {"body": "second"}})", field), "second");
  EXPECT_EQ(read(R"({"meta": {"body": "first"}, "meta": {"x": "y"}})", field), "error: there is no field 'meta.body'");
  EXPECT_EQ(read(R"({"meta": {"body": "first"}, "meta": 5})", field), "error: there is no field 'meta.body'");
  EXPECT_EQ(read(R"({"meta": {"body": "first"}, "other": {"x": "y"}})", field), "first");
  EXPECT_EQ(read(R"({"a": {"b": {"c": "x"}, "b": {}}})", {"a.b.c"}), "error: there is no field 'a.b.c'");
}

TEST(JsonLine, TakesTheTextOutOfItsField) {
  struct Row {
    const char* line;
    std::vector<std::string> fields;
    std::string text;
  };
  for (
      const Row& row : {
          Row{R"({"text": "a"})", {"text"}, "a"},
          Row{R"( { "id" : 17 , "text" : "a b" } )"
              "\r",
              {"text"},
              "a b"},
          Row{R"({"text": "\"\\\/\b\f\n\r\t"})", {"text"}, "\"\\/\b\f\n\r\t"},
          Row{R"({"text": "\u00e9\u20ac\ud83d\ude80\u0041"})", {"text"}, "\u00e9\u20ac\U0001f680A"},
          Row{R"({"text": "\u0000"})", {"text"}, "\0"s},
          Row{R"({"text": "a\ud83db"})", {"text"}, "a\ufffdb"},          // one half
          Row{R"({"text": "\ude80\ud83d"})", {"text"}, "\ufffd\ufffd"},  // the wrong way round
          Row{R"({"text": "\ud83d\u0041"})", {"text"}, "\ufffdA"},
          Row{R"({"text": "\uD83D\n"})", {"text"}, "\ufffd\n"},
          Row{R"({"te\u0078t": "a"})", {"text"}, "a"},
          Row{R"({"a\ud83d": 1, "text": "a"})", {"text"}, "a"},
          Row{R"({"meta": {"body": "b", "x": [1, {"body": "no"}]}, "body": "no"})", {"meta.body"}, "b"},
          Row{R"({"body": "b", "title": "t"})", {"title", "body"}, "t\nb"},
          Row{R"({"body": "b", "title": ""})", {"title", "body"}, "b"},
          Row{R"({"body": null, "title": "t"})", {"title", "body"}, "t"},
          Row{R"({"text": null})", {"text"}, ""},
          Row{R"({"text": ""})", {"text"}, ""},
          Row{R"({"text": "first", "text": "last"})", {"text"}, "last"},  // as Python reads it
          Row{R"({"n": [0, -1, 1.5, 1e9, 2E-3, 123456789012345678901234567890], "b": [true, false, null], "text": "a"})",
              {"text"},
              "a"},
      }) {
    EXPECT_EQ(read(row.line, row.fields), row.text) << row.line;
  }
}

TEST(JsonLine, SaysWhatIsWrong) {
  struct Row {
    std::string line;
    const char* what;
  };
  for (const Row& row : {
           Row{R"({"text": "a")", "error: "},  // cut
           Row{R"({"text": "a)", "error: "},
           Row{R"({"text": )", "error: "},
           Row{"", "error: "},
           Row{"plain text", "error: it is not a JSON object at 1"},
           Row{R"(["text"])", "error: it is not a JSON object at 1"},
           Row{R"({"text": "a"} {"text": "b"})", "error: .* at 15"},
           Row{R"({"text": "a"}x)", "error: "},
           Row{R"({"text": "a" "id": 1})", "error: "},
           Row{R"({"text": "a",})", "error: "},
           Row{R"({"id": 01, "text": "a"})", "error: a value is not JSON at 8"},
           Row{R"({"id": tru, "text": "a"})", "error: a value is not JSON at 8"},
           Row{R"({"id": [1 2], "text": "a"})", "error: "},
           Row{R"({"id": "\x", "text": "a"})", "error: a value is not JSON at 8"},
           Row{R"({"text": "\x"})", "error: a wrong escape in the field 'text' at 10"},
           Row{R"({"text": "\u12g4"})", "error: a wrong escape in the field 'text' at 10"},
           Row{R"({"text": 17})", "error: the field 'text' is not a string at 10"},
           Row{R"({"text": ["a"]})", "error: the field 'text' is not a string at 10"},
           Row{R"({"body": "a"})", "error: there is no field 'text'"},
           Row{"{\"text\": \"a\nb\"}", "error: "},  // a control character
           Row{"{\"text\": \"\xff\"}", "error: "},  // no UTF-8
           Row{"{\"text\": \"\0\"}"s, "error: "},
           Row{"{\"id\": " + std::string(100, '[') + std::string(100, ']') + "}", "error: it nests deeper than 64"},
       }) {
    EXPECT_THAT(read(row.line), testing::ContainsRegex(std::string("^") + row.what)) << row.line;
  }
  const std::string line = R"({"id": 1, "content": "a"})" + std::string(JsonLine::kPadding, ' ');
  std::string text;
  EXPECT_THAT(JsonLine({"text"}).read(line, text)->hint, testing::HasSubstr("the object has: id, content;"));
  EXPECT_EQ(thrown_by([] { JsonLine({"a..b"}); }).kind(), "data.field");
  EXPECT_EQ(thrown_by([] { JsonLine({""}); }).kind(), "data.field");
}

std::vector<std::string> documents_of(const TempDir& dir, const EncodeOptions& given, EncodeReport* report = nullptr) {
  const ByteTokenizer tokenizer;
  EncodeOptions options = given;
  options.replace = true;
  const std::vector<std::string> files{dir / "a.jsonl"};
  const EncodeReport counts = encode(dir / "out", files, tokenizer, note_of(tokenizer, "byte", {}), options);
  if (report != nullptr) *report = counts;
  const TokenFile file(dir / "out");
  std::vector<std::string> documents;
  for (std::int64_t i = 0; i < file.num_documents(); ++i) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.document(i).size()));
    file.read(file.document(i).begin, tokens);
    documents.push_back(tokenizer.decode(tokens));
  }
  return documents;
}

TEST(JsonLines, AreADocumentEach) {
  const TempDir dir;
  spill(dir / "a.jsonl",
        "\xef\xbb\xbf{\"text\": \"a\"}\r\n\n{\"text\": null}\n{\"text\": \"\"}\n  \n{\"text\": \"b\"}");
  EncodeReport report;
  EXPECT_THAT(documents_of(dir, {}, &report), testing::ElementsAre("a", "b"));
  EXPECT_EQ(report.num_empty_documents, 2);
  EXPECT_EQ(report.text_bytes, 2);
  spill(dir / "a.jsonl", zstd_packed("{\"text\": \"c\"}\n"));
  EXPECT_THAT(documents_of(dir, {}), testing::ElementsAre("c"));
}

TEST(JsonLines, AreNamedByFileAndLineWhereTheyAreBad) {
  const TempDir dir;
  const std::string good = "{\"text\": \"a\"}\n";
  spill(dir / "a.jsonl", good + "\n{\"text\": 1}\n" + good + "no\n{}\n[\n" + good);
  const Error error = thrown_by([&] { documents_of(dir, {}); });
  EXPECT_EQ(error.kind(), "data.json");
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.message(), testing::EndsWith("a.jsonl:3:10: the field 'text' is not a string"));
  EXPECT_THAT(dir.list(), testing::ElementsAre("a.jsonl"));
  EncodeOptions options;
  options.skip_bad_lines = true;
  EncodeReport report;
  EXPECT_THAT(documents_of(dir, options, &report), testing::ElementsAre("a", "a", "a"));
  EXPECT_EQ(report.num_bad_lines, 4);
}

TEST(JsonLines, AreWhatBeginsWithAnObjectWhereAFieldIsNamed) {
  const TempDir dir;
  spill(dir / "one", "{\"body\": \"a\"}\n");
  const ByteTokenizer tokenizer;
  EncodeOptions options;
  options.read.fields = {"body"};
  const std::vector<std::string> files{dir / "one"};
  EXPECT_EQ(encode(dir / "out", files, tokenizer, note_of(tokenizer, "byte", {}), options).text_bytes, 1);
}

}  // namespace
}  // namespace ms::data
