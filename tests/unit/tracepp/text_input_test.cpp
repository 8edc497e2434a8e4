// Text of files, packed or not, and of files that are damaged.
#include "tracepp/read/text_input.h"

#include <gmock/gmock.h>

#include <random>

#include "foreign_files.h"

namespace ms::tracepp {
namespace {

struct Result {
  std::string text, trouble;
};

Result read_all(const std::string& path, std::int64_t max_bytes = kMaxTextBytes, std::size_t piece = 1000) {
  TextInput input(path, max_bytes);
  Result result;
  std::string buffer(piece, '\0');
  for (std::size_t count = 0; (count = input.read(buffer)) > 0;) result.text.append(buffer, 0, count);
  result.trouble = input.trouble();
  return result;
}

std::string words(int count) {
  std::mt19937 random(7);
  std::string text;
  for (int i = 0; i < count; ++i) text += "word " + std::to_string(random()) + "\n";
  return text;
}

TEST(TextInput, RecognisesPackingByTheFirstBytes) {
  const ForeignFiles files;
  const std::string text = words(50'000);
  for (const auto& [name, bytes] :
       {std::pair{"plain.gz", text}, {"gzip.json", gzipped(text)}, {"zstd", zstd_packed(text)}}) {
    const Result result = read_all(files.put(name, bytes));
    EXPECT_EQ(result.text, text) << name;
    EXPECT_EQ(result.trouble, "") << name;
  }
}

TEST(TextInput, ReadsConcatenatedMembers) {
  const ForeignFiles files;
  const std::string a = words(1000), b = words(20);
  EXPECT_EQ(read_all(files.put("a", gzipped(a) + gzipped(b) + std::string(512, '\0'))).text, a + b);
  EXPECT_EQ(read_all(files.put("b", zstd_packed(a) + zstd_packed(b))).text, a + b);
}

TEST(TextInput, KeepsTheTextBeforeTheDamage) {
  const ForeignFiles files;
  const std::string text = words(100'000);
  for (const std::string& packed : {gzipped(text), zstd_packed(text)}) {
    const Result cut = read_all(files.put("cut", packed.substr(0, packed.size() / 2)));
    EXPECT_EQ(cut.trouble, "compressed data is cut off");
    EXPECT_GT(cut.text.size(), text.size() / 4);
    EXPECT_TRUE(text.starts_with(cut.text));
    std::string damaged = packed;
    damaged.replace(packed.size() / 2, 1000, std::string(1000, '\xff'));
    EXPECT_EQ(read_all(files.put("damaged", damaged)).trouble, "compressed data is damaged");
  }
}

TEST(TextInput, StopsAtTheLimit) {
  const ForeignFiles files;
  const std::string bomb = gzipped(std::string(50 << 20, ' '));
  ASSERT_LT(bomb.size(), 100'000U);
  const Result result = read_all(files.put("bomb", bomb), 1 << 20);
  EXPECT_EQ(result.text.size(), 1U << 20);
  EXPECT_EQ(result.trouble, "file is larger than the limit");
}

TEST(TextInput, PeeksAhead) {
  const ForeignFiles files;
  const std::string text = words(3000);
  for (const std::string& bytes : {text, gzipped(text)}) {
    TextInput input(files.put("file", bytes));
    EXPECT_EQ(input.peek(8), text.substr(0, 8));
    EXPECT_EQ(input.peek(9000), text.substr(0, 9000));
    std::string buffer(10'000, '\0');
    EXPECT_EQ(input.read(buffer), 10'000U);
    EXPECT_EQ(buffer, text.substr(0, 10'000));
  }
  TextInput small(files.put("small", "ab"));
  EXPECT_EQ(small.peek(8), "ab");
}

TEST(TextInput, RefusesPathsThatAreNotFiles) {
  const ForeignFiles files;
  try {
    read_all(files / "absent");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "file.open");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.what(), testing::HasSubstr("No such file"));
  }
  EXPECT_THROW(read_all(files.path()), Error);
  EXPECT_EQ(read_all(files.put("empty", "")).text, "");
}

}  // namespace
}  // namespace ms::tracepp
