// Files of text, packed and not: every member and frame of them, and what is damaged.
#include "unpack/input_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "packed.h"
#include "token_files.h"

namespace ms::data {
namespace {

std::string text_of(const std::string& path, std::int64_t skipped = 0) {
  unpack::InputFile input(path);
  input.skip(skipped);
  std::string text;
  for (std::string_view piece = input.next(); !piece.empty(); piece = input.next()) text += piece;
  EXPECT_EQ(input.position_bytes(), static_cast<std::int64_t>(std::filesystem::file_size(path)));
  return text;
}

TEST(InputFile, ReadsWhatIsPackedWhateverItsNameIs) {
  const TempDir dir;
  const std::string a = numbers(200'000), b = "the second part\n";  // a is longer than a piece
  const std::string skippable = std::string("\x50\x2a\x4d\x18\x03\0\0\0abc", 11);
  for (const std::string& packed :
       {a + b, gzipped(a) + gzipped(b), gzipped(a) + gzipped("") + gzipped(b) + "\0\0\0"s,
        zstd_packed(a) + zstd_packed(b), skippable + zstd_packed(a + b) + skippable, xz_packed(a) + xz_packed(b),
        xz_packed(a + b) + "\0\0\0\0"s, bzip2_packed(a) + bzip2_packed(b), bzip2_packed("") + bzip2_packed(a + b)}) {
    spill(dir / "file", packed);
    EXPECT_TRUE(text_of(dir / "file") == a + b);
    for (const std::int64_t skipped : {1, 1'048'576, 1'200'000})
      EXPECT_TRUE(text_of(dir / "file", skipped) == (a + b).substr(static_cast<std::size_t>(skipped))) << skipped;
  }
  for (const std::string& packed : {""s, gzipped(""), zstd_packed(""), xz_packed(""), bzip2_packed("")}) {
    spill(dir / "file", packed);
    EXPECT_EQ(text_of(dir / "file"), "");
  }
  spill(dir / "file", "ab");  // shorter than what tells a format
  EXPECT_EQ(text_of(dir / "file"), "ab");
}

TEST(InputFile, RefusesWhatIsDamaged) {
  const TempDir dir;
  for (const std::string& good : {gzipped(numbers(20'000)), zstd_packed(numbers(20'000), true),
                                  xz_packed(numbers(20'000)), bzip2_packed(numbers(20'000))}) {
    std::string flipped = good;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 0x10);
    for (const std::string& bad :
         {good.substr(0, good.size() / 2), good.substr(0, good.size() - 3), flipped, good + "more"}) {
      spill(dir / "bad", bad);
      const Error error = thrown_by([&] { text_of(dir / "bad"); });
      EXPECT_EQ(error.kind(), "data.input");
      EXPECT_EQ(error.blame(), Blame::user);
      EXPECT_THAT(error.message(), testing::HasSubstr("bad: compressed data is "));
    }
  }
}

TEST(InputFile, RefusesWindowsThatTakeMuchMemory) {
  const TempDir dir;
  std::string frame = "\x28\xb5\x2f\xfd"s;
  frame += '\0';                        // no content size, a window descriptor
  frame += static_cast<char>(22 << 3);  // 4 GiB
  frame += std::string("\x01\0\0", 3);  // the last block, empty
  spill(dir / "wide", frame);
  EXPECT_THAT(thrown_by([&] { text_of(dir / "wide"); }).message(), testing::HasSubstr("more memory"));
  frame[5] = static_cast<char>(21 << 3);
  spill(dir / "fits", frame);
  EXPECT_EQ(text_of(dir / "fits"), "");
}

TEST(InputFile, BlamesTheUserForAPathThatIsNotThere) {
  const Error error = thrown_by([] { unpack::InputFile("nowhere"); });
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.message(), testing::HasSubstr("cannot open nowhere: No such file"));
}

}  // namespace
}  // namespace ms::data
