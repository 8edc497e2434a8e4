#include "base/base64.h"

#include <gtest/gtest.h>

namespace ms {
namespace {

TEST(Base64, IsThatOfTheStandard) {
  const std::pair<std::string, std::string> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};  // RFC 4648, section 10
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
    EXPECT_EQ(from_base64(text.substr(0, text.find('='))), bytes);
  }
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  EXPECT_EQ(from_base64(to_base64(all)), all);
}

TEST(Base64, RefusesOtherTexts) {
  for (const char* text : {"Z", "Zm9vY", "Zm 9v", "Zm9v\n", "Z===", "Zm8=Zm8=", "Zm9-"})
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
}

}  // namespace
}  // namespace ms
