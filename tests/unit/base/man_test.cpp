// Snippets of manual pages. cli_test.cpp has the pages of whole tools, and their lint.
#include "base/man.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ms {
namespace {

std::string page_with(const std::string& text) {
  return man::topic_page({.name = "ms-things", .summary = "things", .description = text});
}

// What a reader copies has the characters that a shell wants, whatever the terminal makes of dashes and quotes.
TEST(ManSnippets, AreLiteral) {
  EXPECT_THAT(
      page_with("Set this. Then run:\n\n    export A=/a-b  # two  blanks\n    \n    .x 'a' `b` ^~ \\\n\nIt writes."),
      ::testing::EndsWith("Set this.\nThen run:\n.Bd -literal -offset 2n\nexport A=/a\\-b  # two  blanks\n\n"
                          "\\&.x \\(aqa\\(aq \\(gab\\(ga \\(ha\\(ti \\e\n.Ed\n.Pp\nIt writes.\n"));
}

TEST(ManSnippets, MayStandAloneOrLast) {
  EXPECT_THAT(page_with("    only this"), ::testing::EndsWith(".Bd -literal -offset 2n\nonly this\n.Ed\n"));
  EXPECT_THAT(page_with("Run\n    this"), ::testing::EndsWith("\nRun\n.Bd -literal -offset 2n\nthis\n.Ed\n"));
}

}  // namespace
}  // namespace ms
