#include "base/escape.h"

#include <gtest/gtest.h>

#include "base/finding.h"
#include "base/json.h"
#include "base/text.h"

namespace ms {
namespace {

TEST(Escape, TextFromOutsideStaysOnItsLine) {
  struct Row {
    std::string_view text, line, lines;
  };
  const Row rows[] = {
      {"", "", ""},
      {"node-7_a.b", "node-7_a.b", "node-7_a.b"},
      {"a\nb\tc", "a\\nb\\tc", "a\nb\tc"},
      {"50%\r100%", "50%\\r100%", "50%\\r100%"},
      {"\x1b[2J\x1b]0;title\a", "\\x1b[2J\\x1b]0;title\\x07", "\\x1b[2J\\x1b]0;title\\x07"},
      {std::string_view("a\0b", 3), "a\\x00b", "a\\x00b"},
      {"\x7f", "\\u007f", "\\u007f"},
      {"\xc2\x9b"
       "2J \xc2\xa0",
       "\\u009b2J \xc2\xa0", "\\u009b2J \xc2\xa0"},  // the control of one byte, in UTF-8
      {"caf\xc3\xa9 \xf0\x9f\x9a\x80", "caf\xc3\xa9 \xf0\x9f\x9a\x80", "caf\xc3\xa9 \xf0\x9f\x9a\x80"},
      {"\xe2\x80\xaegnp.exe", "\\u202egnp.exe", "\\u202egnp.exe"},          // right to left
      {"\xe2\x81\xa6x\xe2\x80\xa8", "\\u2066x\\u2028", "\\u2066x\\u2028"},  // an isolate, a line's end
      {"\x9b\xff\xc3", "\\x9b\\xff\\xc3", "\\x9b\\xff\\xc3"},               // not UTF-8
      {"\xed\xa0\x80\xc0\x8a", "\\xed\\xa0\\x80\\xc0\\x8a",
       "\\xed\\xa0\\x80\\xc0\\x8a"},  // a surrogate, a long newline
  };
  for (const Row& row : rows) {
    EXPECT_EQ(safe_line(row.text), row.line);
    EXPECT_EQ(safe_lines(row.text), row.lines);
  }
}

TEST(Escape, JsonThatIsPrintedIsTheSameDocument) {
  const Json json{{"name", "a\x7f\xc2\x9b\xe2\x80\xae\n\x1b"}};
  EXPECT_NE(safe_lines(json.dump()), json.dump());
  EXPECT_EQ(Json::parse(safe_lines(json.dump())), json);
}

TEST(Escape, PagesAndLabels) {
  EXPECT_EQ(safe_html("<a href=\"x\">'&'\n"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;\\n");
  EXPECT_EQ(safe_label("a\"b\\c\nd\xc3\xa9"), "a\\\"b\\\\c?d??");
}

TEST(Escape, CharactersOfUtf8) {
  EXPECT_EQ(utf8_bytes(""), 0U);
  EXPECT_EQ(utf8_bytes("ab"), 1U);
  EXPECT_EQ(utf8_bytes("\xc3\xa9x"), 2U);
  EXPECT_EQ(utf8_bytes("\xe2\x82\xac"), 3U);
  EXPECT_EQ(utf8_bytes("\xf0\x9f\x9a\x80"), 4U);
  for (const char* wrong : {"\x80", "\xc0\xaf", "\xc3", "\xe2\x82", "\xe0\x80\xaf", "\xf4\x90\x80\x80", "\xff"})
    EXPECT_EQ(utf8_bytes(wrong), 0U) << wrong;

  EXPECT_EQ(whole_utf8_bytes(""), 0U);
  EXPECT_EQ(whole_utf8_bytes("ab"), 2U);
  EXPECT_EQ(whole_utf8_bytes("a\xc3\xa9"), 3U);
  EXPECT_EQ(whole_utf8_bytes("a\xc3"), 1U);
  EXPECT_EQ(whole_utf8_bytes("a\xe2\x82"), 1U);
  EXPECT_EQ(whole_utf8_bytes("a\xf0\x9f\x9a"), 1U);
  EXPECT_EQ(whole_utf8_bytes("a\x80\x80\x80\x80"), 5U) << "the rest of no character";
}

TEST(Escape, FindingsAndTablesForgeNoLines) {
  const Finding finding{.code = "net.slow", .entity = "n1\ncritical net.silent n2", .message = "said \x1b[2J"};
  EXPECT_EQ(finding.str(), "critical net.slow n1\\ncritical net.silent n2: said \\x1b[2J");
  TextTable table({{"node\n"}});
  table.row({"n1\nn2"});
  EXPECT_EQ(table.str(), "node\\n\nn1\\nn2\n");
}

}  // namespace
}  // namespace ms
