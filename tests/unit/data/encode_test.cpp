// Encoding text: documents, delimiters wherever chunks are cut, gzip, and what is skipped or refused.
#include "data/encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "base/log.h"
#include "data/describe.h"
#include "data/json_lines.h"
#include "token_files.h"

namespace ms::data {
namespace {

void spill_gz(const std::string& path, const std::string& content) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  gzclose(file);
}

struct Result {
  EncodeReport report;
  std::vector<std::string> documents;  // as text
};

EncodeReport encode_bytes(const TempDir& dir, const std::vector<std::string>& files, EncodeOptions options = {}) {
  const ByteTokenizer tokenizer;
  options.replace = true;
  return encode(dir / "out", files, tokenizer, note_of(tokenizer, "byte", {}), options);
}

Result encode(const TempDir& dir, const std::vector<std::string>& files,
              const std::optional<std::string>& split_on = std::nullopt) {
  const ByteTokenizer tokenizer;
  Result result;
  EncodeOptions options;
  options.read.split_on = split_on;
  result.report = encode_bytes(dir, files, options);
  const TokenFile file(dir / "out");
  for (std::int64_t i = 0; i < file.num_documents(); ++i) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.document(i).size()));
    file.read(file.document(i).begin, tokens);
    EXPECT_EQ(tokens.back(), ByteTokenizer::kEndOfDocument);
    result.documents.push_back(tokenizer.decode(tokens));
  }
  return result;
}

TEST(ByteTokenizer, RoundTripsEveryByte) {
  const ByteTokenizer tokenizer;
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  std::vector<std::int32_t> tokens;
  tokenizer.encode(text, tokens);
  ASSERT_EQ(tokens.size(), 256U);
  EXPECT_EQ(tokens[255], 255);
  tokens.push_back(tokenizer.end_of_document());
  EXPECT_EQ(tokenizer.decode(tokens), text);
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  for (const std::int32_t id : {-1, 257}) {
    const std::vector<std::int32_t> bad{id};
    EXPECT_EQ(thrown_by([&] { tokenizer.decode(bad); }).kind(), "data.token");
  }
  EXPECT_EQ(thrown_by([] { make_tokenizer("bpe"); }).blame(), Blame::user);
}

TEST(Encode, MakesEachFileADocument) {
  const TempDir dir;
  spill(dir / "a", "first\n");
  spill(dir / "empty", "");
  spill_gz(dir / "b.gz", "second, compressed");
  const Result result = encode(dir, {dir / "a", dir / "empty", dir / "b.gz"});
  EXPECT_THAT(result.documents, testing::ElementsAre("first\n", "second, compressed"));
  EXPECT_EQ(result.report.num_files, 2);
  EXPECT_EQ(result.report.num_empty_files, 1);
  EXPECT_EQ(result.report.text_bytes, 24);
}

TEST(Encode, SplitsOnDelimiterLines) {
  struct Row {
    std::string text;
    std::string delimiter;
    std::vector<std::string> documents;
  };
  const std::vector<Row> rows{
      {"a\nb\n%\nc\n", "%", {"a\nb\n", "c\n"}},
      {"%\n%\na\n%\n%\nb\n%\n", "%", {"a\n", "b\n"}},    // no empty documents
      {"a%\n%b\n %\n%\nc", "%", {"a%\n%b\n %\n", "c"}},  // only a whole line splits
      {"a\r\n%\r\nb\r\n", "%", {"a\r\n", "b\r\n"}},      // as Windows ends lines
      {"a\n%", "%", {"a\n"}},                            // without a newline at the end
      {"a\n%%\nb\n%%%", "%%", {"a\n", "b\n%%%"}},
      {"a\n\n\nb\n", "", {"a\n", "b\n"}},  // empty lines
      {"<eod> \n<eod>\nx", "<eod>", {"<eod> \n", "x"}},
  };
  for (const Row& row : rows) {
    const TempDir dir;
    spill(dir / "t", row.text);
    EXPECT_EQ(encode(dir, {dir / "t"}, row.delimiter).documents, row.documents) << row.text;
  }
}

TEST(JsonForm, IsToldByTheFirstCharacterAndTheName) {
  struct Row {
    const char* head;
    const char* path;
    JsonForm form;
  };
  for (const Row& row : {
           Row{"{\"text\": \"a\"}\n{\"text\": \"b\"}\n", "corpus.txt", JsonForm::lines},
           Row{"\n  {}\n", "corpus", JsonForm::lines},
           Row{"{\"text\": \"a very long line that the head cu", "corpus", JsonForm::lines},
           Row{"{'text': 'of Python'}\n", "corpus", JsonForm::lines},  // and the line is an error
           Row{"{\n  \"text\": 1\n}\n", "config.json", JsonForm::lines},
           Row{"\xef\xbb\xbf{}\n{}\n", "bom", JsonForm::lines},
           Row{" [\n{}]", "corpus.json", JsonForm::array},
           Row{"[{}]\n", "corpus.jsonl", JsonForm::array},
           Row{"plain text\n", "named.jsonl", JsonForm::lines},
           Row{"plain text\n", "named.ndjson.bz2", JsonForm::lines},
           Row{"", "empty.jsonl.xz", JsonForm::lines},
           Row{"", "empty.json", JsonForm::none},
           Row{"plain [text] {1}\n", "readme", JsonForm::none},
       }) {
    EXPECT_EQ(json_form(row.head, row.path), row.form) << row.head;
  }
}

TEST(JsonArray, HasADocumentInEachElement) {
  const TempDir dir;
  for (const char* text : {
           R"([{"text": "a"}, {"text": ""}, {"text": "b]},{"}, {"text": "\"[\\", "x": [[1], {"y": "}"}]}])",
           "\xef\xbb\xbf\n[\n  {\n    \"text\": \"a\"\n  },{\"text\":\"\"}\t, {\"text\": \"b]},{\"},"
           "\n{\"text\": \"\\\"[\\\\\"} \r\n]\r\n",
       }) {
    spill(dir / "a.json", text);
    EXPECT_THAT(encode(dir, {dir / "a.json"}).documents, testing::ElementsAre("a", "b]},{", "\"[\\")) << text;
  }
  std::string text = "[", expected;
  for (int i = 0; i < 200'000; ++i) {
    text += (i == 0 ? "" : ", ") + ("{\"text\": \"" + std::to_string(i)) + "\"}";  // in one line, over pieces
    expected += std::to_string(i);
  }
  spill(dir / "a.json", text + "]");
  std::string joined;
  for (const std::string& document : encode(dir, {dir / "a.json"}).documents) joined += document;
  EXPECT_TRUE(joined == expected);
}

TEST(JsonArray, IsNamedByFileAndElementWhereItIsBad) {
  const TempDir dir;
  struct Row {
    const char* text;
    const char* message;
  };
  EncodeOptions skips;
  skips.skip_bad_lines = true;
  for (const Row& row : {
           Row{R"([{"text": "a"}, {"text": 1}, {"text": "b"}])", "a.json: element 2:10: the field 'text'"},
           Row{R"([{"text": "a"}, 1, {"text": "b"}])", "a.json: element 2:1: it is not a JSON object"},
           Row{R"([{"text": "a"}, [{"text": "x"}], {"text": "b"}])", "a.json: element 2:1: it is not"},
           Row{R"([{"text": "a"}, {"text": NaN}, {"text": "b"}])", "a.json: element 2:10: the field 'text'"},
           Row{R"([{"text": "a"}, {"text": "x"} {"text": "y"}, {"text": "b"}])", "a.json: element 2:15: "},
       }) {
    spill(dir / "a.json", row.text);
    const Error error = thrown_by([&] { encode_bytes(dir, {dir / "a.json"}); });
    EXPECT_EQ(error.kind(), "data.json");
    EXPECT_THAT(error.message(), testing::HasSubstr(row.message)) << row.text;
    EXPECT_EQ(encode_bytes(dir, {dir / "a.json"}, skips).num_bad_lines, 1) << row.text;
  }
  for (const char* text : {R"([{"text": "a"},])", R"([{"text": "a"},,{"text": "b"}])", R"([,{"text": "a"}])",
                           R"([{"text": "a"})", R"([{"text": "a"}, {"text": "b)", R"([{"text": "a"}] more)",
                           R"([{"text": "a"}][])", "[", "[Illustration]\nA text."}) {
    spill(dir / "a.json", text);
    EXPECT_EQ(thrown_by([&] { encode_bytes(dir, {dir / "a.json"}, skips); }).kind(), "data.json") << text;
  }
}

TEST(Encode, RefusesOtherFormatsThatMayHoldTheText) {
  const TempDir dir;
  spill(dir / "good", "a\n");
  for (const char* begin : {"PAR1 and more", "LZIP and more", "\x04\x22\x4d\x18 and more", "\xff\xfet", "\xfe\xfft"}) {
    spill(dir / "other", begin);
    const Error error = thrown_by([&] { encode_bytes(dir, {dir / "good", dir / "other"}); });
    EXPECT_EQ(error.kind(), "data.input");
    EXPECT_FALSE(error.hint().empty());
  }
}

TEST(JsonLines, AreTextOnlyWhereThatIsMeant) {
  const TempDir dir;
  const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
  spill_gz(dir / "a.jsonl.gz", lines);
  EXPECT_THAT(encode(dir, {dir / "a.jsonl.gz"}).documents, testing::ElementsAre("a", "b"));
  EncodeOptions options;
  options.read.json_as_text = true;
  EXPECT_EQ(encode_bytes(dir, {dir / "a.jsonl.gz"}, options).text_bytes, std::ssize(lines));
}

// A directory of pictures is no reason for a thousand lines.
TEST(Encode, NamesTheFirstFilesThatItSkips) {
  const TempDir dir;
  std::vector<std::string> files;
  for (int i = 0; i < 9; ++i) {
    files.push_back(dir / std::to_string(i));
    spill(files.back(), std::string("a\0b", 3));
  }
  files.push_back(dir / "text");
  spill(files.back(), "text");
  const std::size_t before = log::recent_lines().size();
  EXPECT_EQ(encode(dir, files).report.num_binary_files, 9);
  std::vector<std::string> lines = log::recent_lines();
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(before));
  std::erase_if(lines, [](const std::string& line) { return line.find(" W ") == std::string::npos; });
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines.back(), testing::HasSubstr("skipped 6 more files"));
}

// Input is read in pieces of 1 MiB: a delimiter line must be seen wherever a piece ends.
TEST(Encode, SeesADelimiterAcrossTheCutOfTwoPieces) {
  const std::size_t piece = std::size_t{1} << 20;
  for (std::size_t before = piece - 9; before <= piece + 1; ++before) {
    const TempDir dir;
    const std::string first = std::string(before - 1, 'x') + "\n";
    spill(dir / "t", first + "=====\r\n" + "second\n");
    const Result result = encode(dir, {dir / "t"}, "=====");
    ASSERT_EQ(result.documents.size(), 2U) << before;
    EXPECT_TRUE(result.documents[0] == first) << before;
    EXPECT_EQ(result.documents[1], "second\n");
  }
}

TEST(Encode, KeepsALineThatOnlyBeginsLikeTheDelimiterAcrossPieces) {
  const TempDir dir;
  const std::string text = std::string((std::size_t{1} << 20) - 4, 'x') + "\n===== no\n=";
  spill(dir / "t", text);
  const Result result = encode(dir, {dir / "t"}, "=====");
  ASSERT_EQ(result.documents.size(), 1U);
  EXPECT_TRUE(result.documents[0] == text);
}

TEST(Encode, SkipsBinaryFilesWhereverTheirNulIs) {
  const TempDir dir;
  spill(dir / "a", "before");
  spill(dir / "late", "x\n%\n" + std::string(3'000'000, 'y') + std::string(1, '\0'));
  spill(dir / "early", std::string("\0abc", 4));
  spill_gz(dir / "packed.gz", std::string("a\0b", 3));
  spill(dir / "b", "after");
  const Result result = encode(dir, {dir / "a", dir / "late", dir / "early", dir / "packed.gz", dir / "b"}, "%");
  EXPECT_THAT(result.documents, testing::ElementsAre("before", "after"));
  EXPECT_EQ(result.report.num_binary_files, 3);
  EXPECT_EQ(result.report.num_files, 2);
  EXPECT_EQ(result.report.text_bytes, 11);
}

TEST(Encode, RefusesDamagedGzip) {
  const TempDir dir;
  std::string noise;
  for (int i = 0; i < 20'000; ++i) noise += std::to_string(i * 7919 % 10'007);
  spill_gz(dir / "good.gz", noise);
  const std::string good = slurp(dir / "good.gz");
  std::string flipped = good;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 0x10);
  for (const std::string& bad : {good.substr(0, good.size() / 2), good.substr(0, good.size() - 3), flipped}) {
    spill(dir / "bad.gz", bad);
    const Error error = thrown_by([&] { encode(dir, {dir / "bad.gz"}); });
    EXPECT_EQ(error.kind(), "data.input");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), testing::HasSubstr("bad.gz"));
  }
  EXPECT_THAT(dir.list(), testing::ElementsAre("bad.gz", "good.gz")) << "something half-written was left";
}

TEST(Encode, ReportsProgressUpToTheEnd) {
  const TempDir dir;
  spill(dir / "a", std::string(3'000'000, 'a'));
  spill_gz(dir / "b.gz", std::string(3'000'000, 'b'));
  std::vector<std::int64_t> done;
  std::int64_t total = 0;
  const std::vector<std::string> files{dir / "a", dir / "b.gz"};
  EncodeOptions options;
  options.progress = [&](std::int64_t done_bytes, std::int64_t total_bytes) {
    done.push_back(done_bytes);
    total = total_bytes;
  };
  encode_bytes(dir, files, options);
  ASSERT_GE(done.size(), 5U);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), total);
}

TEST(Encode, ExpandsDirectoriesInOrder) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "d/sub");
  spill(dir / "d/z", "z");
  spill(dir / "d/sub/a", "a");
  spill(dir / "d/b", "b");
  spill(dir / "x", "x");
  const std::vector<std::string> paths{dir / "x", dir / "d"};
  const Inputs inputs = expand_inputs(paths, true);
  EXPECT_THAT(inputs.files, testing::ElementsAre(dir / "x", dir / "d/b", dir / "d/sub/a", dir / "d/z"));
  EXPECT_THAT(inputs.named, testing::ElementsAre(dir / "x"));
  const Error directory = thrown_by([&] { expand_inputs(paths, false); });
  EXPECT_EQ(directory.blame(), Blame::user);
  EXPECT_THAT(directory.hint(), testing::HasSubstr("--recursive"));
  const std::vector<std::string> missing{dir / "nowhere"};
  const Error error = thrown_by([&] { expand_inputs(missing, true); });
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.message(), testing::HasSubstr("nowhere: No such file"));
}

TEST(Describe, ShowsLengthsAndAPreview) {
  const TempDir dir;
  write_tokens(dir / "bytes", {{'a', '\n', '\t', 27, '\\', 256}, {'b', 256}});
  const TokenFileSummary summary = summarize(TokenFile(dir / "bytes"), {}, 100);
  EXPECT_EQ(summary.longest_document_tokens, 6);
  EXPECT_EQ(summary.shortest_document_tokens, 2);
  EXPECT_EQ(summary.preview, "a\\n\\t\\x1b\\b");
  EXPECT_EQ(summarize(TokenFile(dir / "bytes"), {}, 1).preview, "a");
  write_tokens(dir / "other", {{300, 4}});
  EXPECT_EQ(summarize(TokenFile(dir / "other"), {}, 100).preview, std::nullopt);
}

}  // namespace
}  // namespace ms::data
