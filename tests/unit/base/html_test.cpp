#include "base/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ms {
namespace {

using testing::HasSubstr;
using testing::Not;

// printf 'alert(1)' | sha256sum; the same with openssl dgst -sha256 -binary | base64.
constexpr PagePart kScript{.text = "alert(1)",
                           .sha256 = "6e11c72f7cf6bc383152dd16ddd5903aba6bb1c99d6b6639a4bb0b838185fa92"};

TEST(Html, APageAllowsItsOwnScriptsOnly) {
  const std::string page = html_page({.title = "a <b> & \"c\"", .body = "<p>text</p>\n", .scripts = {&kScript}});
  EXPECT_THAT(page, HasSubstr("script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='; base-uri 'none'"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'; style-src 'sha256-"));
  EXPECT_THAT(page, HasSubstr("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>"));
  EXPECT_THAT(page, HasSubstr("<script>alert(1)</script>"));
  EXPECT_THAT(page, Not(HasSubstr("unsafe")));
}

TEST(Html, APageWithoutScriptsAllowsNone) {
  const std::string page = html_page({.title = "t", .body = ""});
  EXPECT_THAT(page, HasSubstr("script-src 'none';"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

TEST(Html, DataCannotEndItsElement) {
  const std::string name = "</script><script>alert(1)</script><!--\xe2\x80\xa8";
  const std::string element = page_data("run", Json{{"name", name}});
  EXPECT_EQ(element.find("</script"), element.size() - std::string_view("</script>\n").size());
  EXPECT_THAT(element, Not(HasSubstr("<!--")));
  const std::size_t begin = element.find('>') + 1;
  EXPECT_EQ(Json::parse(element.substr(begin, element.rfind('<') - begin)).get<std::string>("name"), name);
}

TEST(Html, BytesAreBase64) {  // the examples of RFC 4648
  for (const auto& [bytes, text] :
       {std::pair("", ""), {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"\xff\xfe", "//4="}})
    EXPECT_THAT(page_bytes("n", bytes), HasSubstr(std::string("id=\"n\">") + text + "</script>"));
}

TEST(Html, LongTextIsShortenedBetweenCharacters) {
  EXPECT_EQ(page_text("<b>", 3), "&lt;b&gt;");
  EXPECT_EQ(page_text("ab\xc3\xa9z", 3), "ab...");
  EXPECT_EQ(page_text(std::string(1 << 20, '<'), 2), "&lt;&lt;...");
}

}  // namespace
}  // namespace ms
