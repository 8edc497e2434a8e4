#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace ms {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Text, ParsesDurations) {
  const struct {
    const char* text;
    std::optional<double> seconds;
  } rows[] = {{"30s", 30},   {"5m", 300},        {"1h30m", 5400},   {"250ms", 0.25}, {"3ms", 0.003},
              {"7us", 7e-6}, {"12ns", 12e-9},    {"1.5h", 5400},    {" 1d ", 86400}, {"1m0s", 60},
              {"0s", 0},     {"", std::nullopt}, {"30", {}},        {"s", {}},       {"-3s", {}},
              {"30 s", {}},  {"1m1h", {}},       {"1s1s", {}},      {"1h30", {}},    {"3S", {}},
              {"1e3s", {}},  {"1..5s", {}},      {"5 minutes", {}}, {"1h 30m", {}},  {"infs", {}}};
  for (const auto& row : rows) EXPECT_EQ(parse_duration_s(row.text), row.seconds) << row.text;
}

TEST(Text, ParsesSizes) {
  const struct {
    const char* text;
    std::optional<std::int64_t> size_bytes;
  } rows[] = {{"64MiB", 64 << 20},
              {"1GB", 1'000'000'000},
              {"1.5KiB", 1536},
              {"512B", 512},
              {"3kB", 3000},
              {"3KB", 3000},
              {"2 TiB", std::int64_t{2} << 40},
              {"1PiB", std::int64_t{1} << 50},
              {"0B", 0},
              {"0.3B", {}},
              {"64", {}},
              {"64M", {}},
              {"64mib", {}},
              {"MiB", {}},
              {"-1B", {}},
              {"10000PiB", {}},
              {"", {}}};
  for (const auto& row : rows) EXPECT_EQ(parse_size_bytes(row.text), row.size_bytes) << row.text;
}

TEST(Text, FormatsForReading) {
  const struct {
    double seconds;
    const char* text;
  } durations[] = {{0, "0s"},        {3e-9, "3ns"},      {2.5e-6, "2.5us"}, {0.25, "250ms"},
                   {0.9999, "1.0s"}, {12.34, "12.3s"},   {59.96, "1m00s"},  {125, "2m05s"},
                   {5400, "1h30m"},  {86399.9, "1d00h"}, {273600, "3d04h"}, {-12.34, "-12.3s"}};
  for (const auto& row : durations) EXPECT_EQ(format_duration(row.seconds), row.text);
  const struct {
    double bytes;
    const char* text;
  } sizes[] = {{0, "0 B"},         {1000, "1000 B"}, {1536, "1.5 KiB"}, {64 << 20, "64.0 MiB"}, {1073741823, "1.0 GiB"},
               {0x1p52, "4.0 PiB"}};
  for (const auto& row : sizes) EXPECT_EQ(format_size(row.bytes), row.text);
  const struct {
    double count;
    const char* text;
  } counts[] = {{0, "0"},         {7, "7"},         {999, "999"},      {999.9, "1.00k"},  {1234, "1.23k"},
                {12345, "12.3k"}, {123456, "123k"}, {999999, "1.00M"}, {1.2e12, "1.20T"}, {-1234, "-1.23k"}};
  for (const auto& row : counts) EXPECT_EQ(format_count(row.count), row.text);
}

TEST(Text, ExactTextsParseBack) {
  const double durations[] = {0, 0.25, 0.003, 1, 59, 60, 61.5, 5400, 93784.567};
  for (const double seconds : durations) {
    const auto text = exact_duration(seconds);
    ASSERT_TRUE(text) << seconds;
    EXPECT_EQ(parse_duration_s(*text), seconds) << *text;
  }
  EXPECT_EQ(exact_duration(5400), "1h30m");
  EXPECT_EQ(exact_duration(61.5), "1m1s500ms");
  for (const double seconds : {1.0 / 3, 1e-4, -1.0, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(exact_duration(seconds), std::nullopt) << seconds;
  }
  EXPECT_FALSE(exact_duration(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(exact_size(64 << 20), "64MiB");
  EXPECT_EQ(exact_size(1536), std::nullopt);
  EXPECT_EQ(exact_size(3 * 1024), "3KiB");
  EXPECT_EQ(exact_size(0), std::nullopt);
  EXPECT_EQ(exact_size(-1024), std::nullopt);
}

TEST(Text, FindsTheNearestName) {
  const struct {
    const char* a;
    const char* b;
    std::size_t distance;
  } distances[] = {{"", "", 0},           {"", "abc", 3},    {"kitten", "sitting", 3},
                   {"modle", "model", 1}, {"abc", "abc", 0}, {"ab", "ba", 1}};
  for (const auto& row : distances) {
    EXPECT_EQ(edit_distance(row.a, row.b), row.distance) << row.a;
    EXPECT_EQ(edit_distance(row.b, row.a), row.distance) << row.a;
  }
  const std::vector<std::string> names{"model.layers", "model.heads", "train.steps", "x"};
  EXPECT_EQ(nearest_name("modle.layers", names), "model.layers");
  EXPECT_EQ(nearest_name("train.step", names), "train.steps");
  EXPECT_EQ(nearest_name("entirely.different", names), std::nullopt);
  const std::vector<std::string> sections{"model", "train", "optim", "run"};
  EXPECT_EQ(nearest_name("optimizer", sections), "optim") << "a beginning that is all of one";
  EXPECT_EQ(nearest_name("mod", sections), "model");
  EXPECT_EQ(nearest_name("ru", sections), "run");
  EXPECT_EQ(nearest_name("optional", sections), std::nullopt);
  EXPECT_EQ(nearest_name("y", names), std::nullopt) << "one letter is no evidence";
  EXPECT_EQ(nearest_name("", names), std::nullopt);
  EXPECT_EQ(nearest_name("a", {}), std::nullopt);
}

TEST(Text, SplitsTrimsAndWraps) {
  EXPECT_THAT(split("a, b ,,c", ','), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(split("a", ','), ElementsAre("a"));
  EXPECT_THAT(split("  ", ','), IsEmpty());
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(""), "");
  EXPECT_THAT(wrap("one two  three four", 9), ElementsAre("one two", "three", "four"));
  EXPECT_THAT(wrap("unbreakable", 3), ElementsAre("unbreakable"));
  EXPECT_THAT(wrap("", 3), IsEmpty());
}

TEST(Text, Counts) {
  EXPECT_EQ(plural(0, "mount"), "0 mounts");
  EXPECT_EQ(plural(1, "mount"), "1 mount");
  EXPECT_EQ(plural(1, "process"), "1 process");
  EXPECT_EQ(plural(2, "process"), "2 processes");
  EXPECT_EQ(plural(2, "memory controller"), "2 memory controllers");
}

TEST(Text, PrintableKeepsEveryBytesPlace) {
  EXPECT_EQ(printable(" a\t\n  b~ ", 100), " a??  b~ ");
  EXPECT_EQ(printable("\x7f\x80\x1f", 8), "???");
  EXPECT_EQ(printable(std::string_view("a\0b", 3), 8), "a?b");
  EXPECT_EQ(printable("abcdefghi", 8), "abcdefgh");
  EXPECT_EQ(printable("abc", std::string::npos), "abc");
  EXPECT_EQ(printable("abc", 0), "");
}

TEST(Text, WithoutColours) {
  std::string kept;
  EXPECT_EQ(without_colours("\x1b[1;31mKeyError\x1b[0m: 'x'", kept), "KeyError: 'x'");
  EXPECT_EQ(without_colours("no colour", kept), "no colour");
  EXPECT_EQ(without_colours("cut \x1b[31", kept), "cut ");
  EXPECT_EQ(without_colours("\x1b]title", kept), "\x1b]title");
}

TEST(Text, PlainIsOneLine) {
  EXPECT_EQ(plain_text(" a\t\nb ", 100), "a b");
  EXPECT_EQ(plain_text("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(plain_text("abcdefghi", 8), "abcde...");
  EXPECT_EQ(plain_text("abcd fghi", 8), "abcd...") << "no blank before the dots";
  EXPECT_EQ(plain_text("abcdefghi", 2), "..");
  EXPECT_EQ(plain_text("\x7f\x80\x01", 8), "???");
  EXPECT_EQ(plain_text("\x80\x80\x80\x80\x80", 4), "?...");
  EXPECT_EQ(plain_text("", 8), "");
}

TEST(Text, AlignsTables) {
  TextTable table(columns("name|size>|note"));
  table.row({"a", "1", ""});
  table.row({"longer", "1234567", "x"});
  EXPECT_EQ(table.str(),
            "name       size  note\n"
            "a             1\n"
            "longer  1234567  x\n");
  EXPECT_DEATH(table.row({"too few"}), "a table of 3 columns got a row of 1 cells");
}

}  // namespace
}  // namespace ms
