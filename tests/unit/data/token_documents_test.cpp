// The documents of a range of tokens: found by blocks of the index, whatever their sizes, and never from an index that
// changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "data/token_file.h"
#include "token_files.h"

namespace ms::data {
namespace {

// What document_begins() and document_of() say, of every range of `step` tokens, beside documents that are looked at
// one by one.
void expect_documents(const TokenFile& file, std::int64_t step) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < file.num_documents(); ++i) all.push_back(file.document(i).begin);
  for (std::int64_t begin = 0; begin < file.num_tokens(); begin += step) {
    const std::int64_t end = std::min(begin + 3 * step, file.num_tokens());
    const auto from = std::ranges::upper_bound(all, begin) - 1, to = std::ranges::lower_bound(all, end);
    ASSERT_EQ(file.document_of(begin), from - all.begin()) << begin;
    ASSERT_EQ(file.document_begins({begin, end}), std::vector(from, to)) << begin;
  }
}

TEST(TokenDocuments, FindsTheDocumentsOfARange) {
  const TempDir dir;
  std::vector<std::vector<std::int32_t>> documents;
  for (std::int32_t i = 0; i < 1000; ++i) documents.emplace_back(static_cast<std::size_t>(1 + i * 7919 % 23), i);
  documents[700].assign(5000, 1);
  write_tokens(dir / "plain", documents, TokenType::u16);
  expect_documents(TokenFile(dir / "plain"), 31);
  const TokenFile whole(dir / "plain");
  EXPECT_EQ(whole.document_begins({0, whole.num_tokens()}).size(), 1000);

  // Documents of many sequences of a token, too many to read at once; in the middle and at the end some of none.
  constexpr std::int64_t kSequences = 40, kAll = 600 * kSequences;
  for (const std::size_t empty : {0, 600, 256}) {
    std::vector<std::int64_t> bounds;
    for (std::int64_t i = 0; i < 300; ++i) bounds.push_back(kSequences * i);
    bounds.insert(bounds.end(), empty, kSequences * 300);
    for (std::int64_t i = 300; i <= 600; ++i) bounds.push_back(kSequences * i);
    bounds.insert(bounds.end(), empty, kAll);
    spill(dir / "t.bin", std::string(kAll * 2, '\1'));
    spill(dir / "t.idx", index_of(std::vector<std::int32_t>(kAll, 1), bounds, 8, 2));
    expect_documents(TokenFile(dir / "t"), 389);
  }
}

TEST(TokenDocuments, NoticesAnIndexThatChangesUnderIt) {
  const TempDir dir;
  spill(dir / "t.bin", std::string(8, '\1'));
  const std::string sound = index_of({1, 1, 1, 1}, {0, 1, 2, 3, 4}, 8, 2);
  spill(dir / "t.idx", sound);
  const TokenFile file(dir / "t");
  const std::size_t offsets = 34 + 4 * 4, boundaries = offsets + 4 * 8;
  for (const auto& [at, value] :
       std::vector<std::pair<std::size_t, std::int64_t>>{{offsets, 2},
                                                         {offsets + 8, -2},
                                                         {offsets + 24, 1'000'000},
                                                         {boundaries, 1},
                                                         {boundaries, -1},
                                                         {boundaries + 8, 1'000'000},
                                                         {boundaries + 16, -1},
                                                         {boundaries + 24, std::int64_t{1} << 62}}) {
    std::fstream index(dir / "t.idx", std::ios::in | std::ios::out | std::ios::binary);
    index.seekp(static_cast<std::streamoff>(at)) << le(static_cast<std::uint64_t>(value), 8) << std::flush;
    const Error error = thrown_by([&] { file.document_begins({0, 4}); });
    EXPECT_EQ(error.kind(), "data.index") << at << ' ' << value;
    EXPECT_EQ(error.blame(), Blame::storage);
    EXPECT_THAT(error.message(), testing::HasSubstr("not those that it had when it was opened"));
    index.seekp(0) << sound << std::flush;
    EXPECT_EQ(file.document_begins({1, 3}), (std::vector<std::int64_t>{1, 2}));
  }
}

}  // namespace
}  // namespace ms::data
