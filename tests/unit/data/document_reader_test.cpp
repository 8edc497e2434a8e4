// Where documents end, and how long they may be.
#include "data/document_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "token_files.h"

namespace ms::data {
namespace {

// The documents of a file; those of several items are joined.
std::vector<std::string> documents_in(const std::string& path, const ReadOptions& options, bool whole_documents = true,
                                      std::int64_t max_whole_bytes = kMaxWholeBytes) {
  const std::vector<std::string> files{path};
  DocumentReader reader(files, options, whole_documents, {}, max_whole_bytes);
  std::vector<std::string> documents;
  std::string open;
  TextBatch batch;
  while (reader.next(batch)) {
    for (const TextItem& item : batch.items) {
      const bool has_text = item.kind == TextItem::Kind::text || item.kind == TextItem::Kind::json;
      if (has_text) open += batch.text.substr(item.begin, item.end - item.begin);
      if (item.kind != TextItem::Kind::text && !open.empty()) documents.push_back(std::exchange(open, ""));
    }
  }
  return documents;
}

TEST(DocumentReader, MakesADocumentOfEachLine) {
  const TempDir dir;
  spill(dir / "t", "first\n\nsecond\r\n\r\n last");
  ReadOptions options;
  options.by_line = true;
  EXPECT_THAT(documents_in(dir / "t", options), testing::ElementsAre("first", "second", " last"));
  std::string lines;
  std::vector<std::string> expected;
  for (int i = 0; i < 300'000; ++i) lines += expected.emplace_back("line " + std::to_string(i)) + "\n";
  spill(dir / "t", lines);
  EXPECT_TRUE(documents_in(dir / "t", options) == expected) << "lines across pieces and batches";
}

TEST(DocumentReader, GoesOnFromTheEndOfAnyBatch) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += std::to_string(i) + (i % 100'000 == 99 ? "\n%\n" : "\n");
  spill(dir / "t", text);
  const std::vector<std::string> files{dir / "t"};
  for (const bool whole_documents : {true, false}) {
    for (const bool by_line : {true, false}) {
      ReadOptions options;
      if (!by_line) options.split_on = "%";
      options.by_line = by_line;
      DocumentReader reader(files, options, whole_documents);
      TextBatch batch, again;
      InputPosition begin;
      while (reader.next(batch)) {
        DocumentReader other(files, options, whole_documents, begin);
        ASSERT_TRUE(other.next(again));
        EXPECT_EQ(again.items.size(), batch.items.size());
        EXPECT_TRUE(again.text == batch.text);
        begin = batch.end;
        if (again.end != batch.end) break;  // pieces lie elsewhere from there on
      }
    }
  }
}

TEST(DocumentReader, GoesOnBehindAnyElementOfAnArray) {
  const TempDir dir;
  std::string text = "\xef\xbb\xbf[";
  for (int i = 0; i < 150'000; ++i) text += (i == 0 ? "" : ",\n ") + ("{\"text\": \"" + std::to_string(i)) + "\"}";
  spill(dir / "t.json", text + "]\n");
  const std::vector<std::string> files{dir / "t.json"};
  const ReadOptions options;
  DocumentReader reader(files, options, false);
  TextBatch batch, again;
  InputPosition begin;
  int batches = 0;
  while (reader.next(batch)) {
    DocumentReader other(files, options, false, begin);
    ASSERT_TRUE(other.next(again));
    ASSERT_GE(again.items.size(), batch.items.size() - 1);
    const std::size_t at = batch.items.front().kind == TextItem::Kind::file_begin ? 1 : 0;
    EXPECT_EQ(again.items[at].number, batch.items[at].number);
    EXPECT_EQ(again.text.substr(again.items[at].begin, 40), batch.text.substr(batch.items[at].begin, 40));
    begin = batch.end;
    ++batches;
  }
  EXPECT_GE(batches, 2);
  EXPECT_EQ(reader.next(batch), false);
}

TEST(DocumentReader, RefusesDocumentsAndLinesThatAreTooLong) {
  const TempDir dir;
  spill(dir / "t", "short\n%\n" + std::string(3'000'000, 'x') + "\n");
  ReadOptions options;
  options.split_on = "%";
  const auto refusal = [&](const char* name, bool whole_documents) {
    const Error error = thrown_by([&] { documents_in(dir / name, options, whole_documents, 2'000'000); });
    EXPECT_EQ(error.kind(), "data.document");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.hint(), testing::HasSubstr("--split-on LINE"));
    EXPECT_THAT(error.hint(), testing::HasSubstr("--by-line"));
    return error.message();
  };
  EXPECT_THAT(refusal("t", true), testing::HasSubstr("/t: a document has more than 1.9 MiB, and this tokenizer"));
  EXPECT_EQ(documents_in(dir / "t", options, false, 2'000'000).size(), 2U) << "pieces of one may be any number";
  options = {.split_on = {}, .by_line = true, .json_as_text = false, .fields = {}};
  EXPECT_THAT(refusal("t", false), testing::HasSubstr("/t:3: a line has more than 1.9 MiB"));
  options = {};
  spill(dir / "t.jsonl", "{}\n{\"text\": \"" + std::string(3'000'000, 'x') + "\"}\n");
  EXPECT_THAT(refusal("t.jsonl", false), testing::HasSubstr("/t.jsonl:2: a line has more than 1.9 MiB"));
}

}  // namespace
}  // namespace ms::data
