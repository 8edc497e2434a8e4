#include "data/tar_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/base64.h"
#include "base/json.h"
#include "support/errors.h"

namespace ms::data {
namespace {

using testing::ElementsAre;

constexpr std::size_t kBlock = 512;

std::string member(const std::string& name, std::string bytes, char type = '0',
                   std::optional<std::size_t> size_bytes = std::nullopt) {
  std::string header(kBlock, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name);
  put(124, fmt::format("{:011o}", size_bytes.value_or(bytes.size())));
  header[156] = type;
  put(257, std::string("ustar\00000", 8));
  put(148, "        ");
  int sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + '\0');
  bytes.resize((bytes.size() + kBlock - 1) / kBlock * kBlock);
  return header + bytes;
}

std::string archive() {
  const std::string long_name = std::string(120, 'd') + "/c.jpg";
  return member("d", "", '5') + member("d/a.jpg", "one") + member("d/a.cls", "7") +
         member("d/a.PNG", std::string(600, 'x')) + member("d/._a.txt", "of another program") +
         member("d/a.txt", "two\n") + member("b.v1.json", R"({"text": "three"})") +
         member("././@LongLink", long_name + '\0', 'L') + member(long_name.substr(0, 100), "four") +
         member("p", fmt::format("{} path=e.txt\n", 14), 'x') + member("somewhere", "") + std::string(2 * kBlock, '\0');
}

std::vector<Json> samples_of(std::string_view bytes, std::size_t piece, const std::string& text = "text") {
  std::vector<Json> samples;
  TarSamples reader("a.tar", text, "image");
  const auto sink = [&](std::string_view line) { samples.push_back(Json::parse(line)); };
  for (std::size_t at = 0; at < bytes.size(); at += piece) reader.feed(bytes.substr(at, piece), sink);
  reader.end(sink);
  return samples;
}

Json sample(const std::string& text, const std::vector<std::string>& images) {
  Json json = Json::object();
  json["text"] = text;
  json["image"] = Json::array();
  for (const std::string& image : images) json["image"].push_back(to_base64(image));
  return json;
}

TEST(TarSamples, AreMembersOfOneNameHoweverTheyAreRead) {
  EXPECT_TRUE(is_tar(archive()));
  EXPECT_FALSE(is_tar("ustar"));
  for (const std::size_t piece : {std::size_t{1}, kBlock - 1, kBlock, kBlock + 1, std::size_t{1} << 20}) {
    EXPECT_THAT(samples_of(archive(), piece), ElementsAre(sample("two\n", {"one", std::string(600, 'x')}),
                                                          sample("three", {}), sample("", {"four"}), sample("", {})))
        << piece;
  }
}

TEST(TarSamples, TakeTextsFromJsonWhereTheirFieldIsInside) {
  const std::string bytes = member("a.txt", "not this") + member("a.json", R"({"meta": {"body": "this"}})") +
                            member("b.json", "[1]") + std::string(2 * kBlock, '\0');
  const std::vector<Json> samples = samples_of(bytes, bytes.size(), "");
  ASSERT_EQ(samples.size(), 2);
  EXPECT_EQ(samples[0].at("meta").at("body"), Json("this"));
  EXPECT_EQ(samples[1], Json::parse("[1]")) << "the line, which is refused there";
}

TEST(TarSamples, RefuseWhatIsCutOffOrDamaged) {
  const std::string whole = member("a.txt", "one") + member("b.txt", "two") + std::string(2 * kBlock, '\0');
  for (const std::size_t bytes : {std::size_t{100}, kBlock + 2, kBlock + 9, 2 * kBlock, 2 * kBlock + 100, 4 * kBlock}) {
    EXPECT_EQ(test::thrown_by([&] { samples_of(whole.substr(0, bytes), kBlock); }).kind(), "data.input") << bytes;
  }
  for (const std::size_t at : {std::size_t{0}, std::size_t{124}, std::size_t{148}, 2 * kBlock}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    EXPECT_EQ(test::thrown_by([&] { samples_of(damaged, kBlock); }).kind(), "data.input") << at;
  }
  const std::string large = member("a.jpg", "", '0', std::size_t{1} << 30);
  EXPECT_EQ(test::thrown_by([&] { samples_of(large, kBlock); }).kind(), "data.input");
}

}  // namespace
}  // namespace ms::data
