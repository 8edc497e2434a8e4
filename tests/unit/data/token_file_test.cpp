// Token files: the exact bytes, round trips, and what is refused.
#include "data/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "data/token_writer.h"
#include "token_files.h"

namespace ms::data {
namespace {

using Documents = std::vector<std::vector<std::int32_t>>;

std::vector<std::int32_t> read_all(const TokenFile& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.num_tokens()));
  file.read(0, tokens);
  return tokens;
}

TEST(TokenWriter, WritesTheExactBytesOfU16) {
  const TempDir dir;
  write_tokens(dir / "t", {{1, 2, 256}, {0xABCD}});
  EXPECT_EQ(slurp(dir / "t.bin"), std::string("\x01\x00\x02\x00\x00\x01\xCD\xAB", 8));
  const unsigned char expected[] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,  // magic, version
                                    8,                                                                // u16
                                    2,   0,   0,   0,   0,   0,   0,   0, 3, 0, 0, 0, 0, 0, 0, 0,     // counts
                                    3,   0,   0,   0,   1,   0,   0,   0,                             // lengths
                                    0,   0,   0,   0,   0,   0,   0,   0, 6, 0, 0, 0, 0, 0, 0, 0,     // offsets
                                    0,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0, 0, 0, 0, 0, 2,
                                    0,   0,   0,   0,   0,   0,   0};
  EXPECT_EQ(slurp(dir / "t.idx"), std::string(reinterpret_cast<const char*>(expected), sizeof expected));
  EXPECT_THAT(dir.list(), testing::ElementsAre("t.bin", "t.idx"));
}

TEST(TokenWriter, WritesTheExactBytesOfI32) {
  const TempDir dir;
  write_tokens(dir / "t", {{70'000}}, TokenType::i32);
  EXPECT_EQ(slurp(dir / "t.bin"), le(70'000, 4));
  EXPECT_EQ(slurp(dir / "t.idx"), index_of({1}, {0, 1}, 4, 4));
}

TEST(TokenWriter, TakesTheWidthFromTheVocabulary) {
  EXPECT_EQ(token_type_for_vocab(257), TokenType::u16);
  EXPECT_EQ(token_type_for_vocab(65'499), TokenType::u16);
  EXPECT_EQ(token_type_for_vocab(65'500), TokenType::i32);
}

TEST(TokenWriter, RoundTripsManyDocuments) {
  const TempDir dir;
  Documents documents;
  std::vector<std::int32_t> stream;
  for (std::uint64_t d = 0; d < 2000; ++d) {  // beyond the writer's buffer of 1 MiB
    auto& document = documents.emplace_back();
    for (std::uint64_t i = 0; i <= uniform_below(1, 2, d, 1000); ++i) {
      document.push_back(static_cast<std::int32_t>(uniform_below(d, 3, i, 65'000)));
    }
    stream.insert(stream.end(), document.begin(), document.end());
  }
  for (const TokenType type : {TokenType::u16, TokenType::i32}) {
    write_tokens(dir / "t", documents, type);  // the second one over the first
    const TokenFile file(dir / "t");
    EXPECT_EQ(file.type(), type);
    EXPECT_EQ(file.num_documents(), 2000);
    EXPECT_EQ(file.num_sequences(), 2000);
    EXPECT_EQ(file.size_bytes(), static_cast<std::int64_t>(slurp(dir / "t.bin").size()));
    EXPECT_EQ(read_all(file), stream);
    std::int64_t begin = 0;
    for (std::int64_t d = 0; d < 2000; ++d) {
      const auto size = static_cast<std::int64_t>(documents[static_cast<std::size_t>(d)].size());
      ASSERT_EQ(file.document(d).begin, begin);
      ASSERT_EQ(file.document(d).size(), size);
      ASSERT_EQ(file.sequence(d).end, begin + size);
      begin += size;
    }
    std::vector<std::int32_t> middle(777);
    file.read(123'456, middle);
    EXPECT_TRUE(std::equal(middle.begin(), middle.end(), stream.begin() + 123'456));
  }
}

TEST(TokenWriter, LeavesNothingBehindWithoutCommit) {
  const TempDir dir;
  {
    TokenWriter writer(dir / "t", TokenType::u16);
    writer.append(std::vector<std::int32_t>{1, 2});
    writer.end_document();
    EXPECT_THAT(dir.list(), testing::ElementsAre("t.bin.part"));
    EXPECT_FALSE(std::filesystem::exists(dir / "t.bin"));
  }
  EXPECT_TRUE(dir.list().empty());
  {
    TokenWriter writer(dir / "t", TokenType::u16);
    const Error error = thrown_by([&] { writer.commit(); });
    EXPECT_EQ(error.kind(), "data.empty");
    EXPECT_EQ(error.blame(), Blame::user);
  }
  EXPECT_TRUE(dir.list().empty());
}

TEST(TokenWriter, KeepsTheOldFilesUntilCommit) {
  const TempDir dir;
  write_tokens(dir / "t", {{1}});
  const std::string old_idx = slurp(dir / "t.idx");
  {
    TokenWriter writer(dir / "t", TokenType::u16);
    writer.append(std::vector<std::int32_t>{5, 6, 7});
  }
  EXPECT_EQ(slurp(dir / "t.idx"), old_idx);
  EXPECT_THAT(read_all(TokenFile(dir / "t")), testing::ElementsAre(1));
}

TEST(TokenWriter, RefusesADirectoryThatIsNotThere) {
  const TempDir dir;
  const Error error = thrown_by([&] { TokenWriter(dir / "no/such/t", TokenType::u16); });
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.message(), testing::HasSubstr("no/such/t.bin"));
}

TEST(TokenWriter, TakesBackWhatFollowsAMark) {
  const TempDir dir;
  TokenWriter writer(dir / "t", TokenType::u16);
  const auto document = [&](const std::vector<std::int32_t>& tokens) {
    writer.append(tokens);
    writer.end_document();
  };
  document({1, 2});
  const TokenWriter::Mark mark = writer.mark();
  document({3});
  writer.append(std::vector<std::int32_t>(1'000'000, 4));  // more than the buffer, and not ended
  writer.rollback(mark);
  document({5, 6});
  writer.commit();
  const TokenFile file(dir / "t");
  EXPECT_THAT(read_all(file), testing::ElementsAre(1, 2, 5, 6));
  EXPECT_EQ(file.num_documents(), 2);
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(TokenFile, ReadsEveryTokenType) {
  struct Row {
    int code;
    int token_bytes;
    std::string bin;
    std::vector<std::int32_t> tokens;
  };
  const std::vector<Row> rows{
      {1, 1, raw<std::uint8_t>({0, 7, 255}), {0, 7, 255}},
      {2, 1, raw<std::int8_t>({0, 7, -1}), {0, 7, -1}},
      {3, 2, raw<std::int16_t>({0, 32767, -2}), {0, 32767, -2}},
      {4, 4, raw<std::int32_t>({0, 70'000, 2147483647}), {0, 70'000, 2147483647}},
      {5, 8, raw<std::int64_t>({0, 70'000, 2147483647}), {0, 70'000, 2147483647}},
      {6, 8, raw<double>({0, 70'000, 2147483647}), {0, 70'000, 2147483647}},
      {7, 4, raw<float>({0, 70'000, 16777216}), {0, 70'000, 16777216}},
      {8, 2, raw<std::uint16_t>({0, 7, 65535}), {0, 7, 65535}},
  };
  for (const Row& row : rows) {
    const TempDir dir;
    spill(dir / "t.bin", row.bin);
    spill(dir / "t.idx", index_of({1, 2}, {0, 2}, row.code, row.token_bytes));  // one document of two sequences
    const TokenFile file(dir / "t");
    EXPECT_EQ(read_all(file), row.tokens) << to_string(file.type());
    EXPECT_EQ(file.num_documents(), 1);
    EXPECT_EQ(file.num_sequences(), 2);
    EXPECT_EQ(file.document(0).size(), 3);
    EXPECT_EQ(file.sequence(1).begin, 1);
  }
}

TEST(TokenFile, RefusesTokensThatAreNoIntegers) {
  const std::vector<std::pair<int, std::string>> rows{{5, raw<std::int64_t>({1, std::int64_t{1} << 31})},
                                                      {6, raw<double>({1, 1.5})},
                                                      {6, raw<double>({1, std::nan("")})},
                                                      {6, raw<double>({1, 1e300})},
                                                      {5, raw<std::int64_t>({1, -(std::int64_t{1} << 40)})}};
  for (const auto& [code, bin] : rows) {
    const TempDir dir;
    spill(dir / "t.bin", bin);
    spill(dir / "t.idx", index_of({2}, {0, 1}, code, 8));
    const TokenFile file(dir / "t");
    const Error error = thrown_by([&] { read_all(file); });
    EXPECT_EQ(error.kind(), "data.token");
    EXPECT_EQ(error.blame(), Blame::storage);
    EXPECT_THAT(error.message(), testing::HasSubstr("position 1"));
  }
}

TEST(TokenFile, TakesEmptySequencesAndModes) {
  const TempDir dir;
  spill(dir / "t.bin", raw<std::uint16_t>({1, 2}));
  spill(dir / "t.idx", index_of({0, 2, 0}, {0, 0, 2, 3}, 8, 2) + std::string(3, '\0'));
  const TokenFile file(dir / "t");
  EXPECT_EQ(file.num_documents(), 3);
  EXPECT_EQ(file.document(0).size(), 0);
  EXPECT_EQ(file.document(1).size(), 2);
  EXPECT_EQ(file.document(2).begin, 2);
}

TEST(TokenFile, RefusesAMissingFileAsTheUsersMistake) {
  const TempDir dir;
  Error error = thrown_by([&] { TokenFile(dir / "t"); });
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.message(), testing::HasSubstr("t.idx"));
  EXPECT_THAT(error.hint(), testing::HasSubstr("prefix"));
  spill(dir / "t.idx", index_of({1}, {0, 1}, 8, 2));
  error = thrown_by([&] { TokenFile(dir / "t"); });
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.message(), testing::HasSubstr("t.bin"));
}

TEST(TokenFile, SaysWhatADirectoryHolds) {
  const TempDir dir;
  EXPECT_THAT(thrown_by([&] { TokenFile(dir.path()); }).hint(), testing::HasSubstr("named by its prefix"));
  write_tokens(dir / "a", {{1}});
  for (const std::string& prefix : {dir.path(), dir / ""}) {
    const Error error = thrown_by([&] { TokenFile{prefix}; });
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), testing::HasSubstr("is a directory, expected the prefix"));
    EXPECT_THAT(error.hint(), testing::EndsWith("/a"));
  }
  spill(dir / "half.bin.part", "");
  EXPECT_THAT(thrown_by([&] { TokenFile(dir / "half"); }).hint(),
              testing::HasSubstr("the same ms-data encode to resume it"));
}

TEST(TokenFile, RefusesWhatIsDamagedAndSaysWhat) {
  const std::string good = index_of({3, 1}, {0, 1, 2}, 8, 2);  // offsets at 42, boundaries at 58
  const auto with = [&](std::size_t at, const std::string& bytes) {
    return std::string(good).replace(at, bytes.size(), bytes);
  };
  struct Row {
    std::string idx;
    std::size_t bin_bytes;
    std::string message;
    Blame blame = Blame::storage;  // exit code 74
  };
  const std::vector<Row> rows{
      {"", 8, "expected a header of 34 bytes, found 0"},
      {good.substr(0, 33), 8, "expected a header of 34 bytes, found 33"},
      {with(0, "X"), 8, "magic", Blame::user},
      {with(9, le(2, 8)), 8, "leave 0 of its 82 bytes unexplained"},  // no modes
      {with(9, le(3, 8)), 8, "expected version 1 or 2, found 3", Blame::user},
      {with(17, le(0, 1)), 8, "expected a token type of 1 to 8, found 0", Blame::user},
      {with(17, le(9, 1)), 8, "found 9", Blame::user},
      {with(17, le(4, 1)), 8, "sequence 0 ends at byte 12"},  // another width
      {with(18, le(~std::uint64_t{0}, 8)), 8, "do not fit"},
      {with(18, le(0x1555555555555556, 8)), 8, "do not fit"},  // 12 x this overflows to 8
      {with(26, le(~std::uint64_t{0}, 8)), 8, "do not fit"},
      {with(26, le(0x2000000000000003, 8)), 8, "do not fit"},  // 8 x this overflows to 24
      {with(26, le(2, 8)), 8, "unexplained"},
      {good.substr(0, good.size() - 1), 8, "do not fit"},
      {good + "x", 8, "unexplained"},
      {index_of({}, {0}, 8, 2), 0, "expected at least one document"},
      {index_of({1}, {0}, 8, 2), 2, "expected at least one document"},
      {index_of({0}, {0, 1}, 8, 2), 0, "only empty sequences"},
      {with(34, le(0xFFFFFFFF, 4)), 8, "sequence 0 has -1 tokens"},
      {with(34, le(2, 4)), 8, "sequence 1 begins at byte 6 of the .bin, expected 4"},
      {with(38, le(0x7FFFFFFF, 4)), 8, "sequence 1 ends at byte 4294967300"},
      {with(42, le(2, 8)), 8, "sequence 0 begins at byte 2"},
      {with(50, le(~std::uint64_t{0}, 8)), 8, "sequence 1 begins at byte -1"},
      {with(58, le(1, 8)), 8, "document 0 begins at sequence 1, expected 0 to 0"},
      {with(66, le(3, 8)), 8, "document 1 begins at sequence 3"},
      {with(66, le(~std::uint64_t{0}, 8)), 8, "document 1 begins at sequence -1"},
      {with(74, le(1, 8)), 8, "the documents end at sequence 1, expected 2"},
      {good, 7, "has 7 bytes"},
      {good, 6, "has 6 bytes"},
      {good, 10, "has 10 bytes"},
      {good, 0, "has 0 bytes"},
  };
  for (const Row& row : rows) {
    const TempDir dir;
    spill(dir / "t.idx", row.idx);
    spill(dir / "t.bin", std::string(row.bin_bytes, 'x'));
    const Error error = thrown_by([&] { TokenFile(dir / "t"); });
    EXPECT_EQ(error.kind(), "data.index");
    EXPECT_EQ(error.blame(), row.blame) << row.message;
    EXPECT_THAT(error.message(), testing::HasSubstr(row.message));
    EXPECT_THAT(error.message(), testing::HasSubstr(dir / "t.idx"));
  }
}

// Whatever is flipped or cut, opening either throws ms::Error or gives a file all of whose ranges can be read. Run
// under the address sanitizer, this shows that nothing outside is touched.
TEST(TokenFile, SurvivesFlippedAndCutIndexes) {
  const TempDir dir;
  write_tokens(dir / "t", {{1, 2, 3}, {4}, {5, 6, 7, 8}, {9, 10}});
  const std::string good = slurp(dir / "t.idx");
  int accepted = 0;
  const auto try_index = [&](const std::string& idx) {
    // In place: truncating to nothing first makes some file systems write to disk at once, thousands of times.
    std::fstream(dir / "t.idx", std::ios::binary | std::ios::in | std::ios::out) << idx;
    std::filesystem::resize_file(dir / "t.idx", idx.size());
    try {
      const TokenFile file(dir / "t");
      ++accepted;
      EXPECT_EQ(static_cast<std::int64_t>(read_all(file).size()), file.num_tokens());
      for (std::int64_t i = 0; i < file.num_documents(); ++i) {
        const TokenRange range = file.document(i);
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(range.size()));
        file.read(range.begin, tokens);
      }
      for (std::int64_t i = 0; i < file.num_sequences(); ++i) EXPECT_LE(file.sequence(i).end, file.num_tokens());
    } catch (const Error& error) { EXPECT_EQ(error.kind(), "data.index"); }
  };
  for (std::size_t size = 0; size < good.size(); ++size) try_index(good.substr(0, size));
  EXPECT_EQ(accepted, 0) << "a cut index was accepted";
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string idx = good;
    idx[bit / 8] = static_cast<char>(idx[bit / 8] ^ (1 << bit % 8));
    try_index(idx);
  }
  // What remains possible: a boundary of documents that moved to another sequence in order, and a type code of the
  // same width (u16 and i16 differ in more bits than one).
  EXPECT_LT(accepted, 10) << "of " << good.size() * 8 << " flipped bits";
  for (std::uint64_t trial = 0; trial < 3000; ++trial) {
    std::string idx = good;
    for (std::uint64_t flip = 0; flip < 3; ++flip) {
      idx[uniform_below(trial, 1, 2 * flip, idx.size())] = static_cast<char>(random_u64(trial, 1, 2 * flip + 1));
    }
    try_index(idx);
  }
}

}  // namespace
}  // namespace ms::data
