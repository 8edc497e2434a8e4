// Images in the data: from lines of JSON to patches of a batch, packed and merged; what is damaged; what is skipped.
#include "data/image_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/base64.h"
#include "base/json.h"
#include "data/batch_reader.h"
#include "data/check.h"
#include "data/encode.h"
#include "data/eval_set.h"
#include "data/loader.h"
#include "data/loader_process.h"
#include "data/merge.h"
#include "data/pack.h"
#include "data/target_mask.h"
#include "token_files.h"

namespace ms::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kPatchSide = 2, kPatchNumbers = 12;  // pixels a side; numbers of a patch
constexpr std::int32_t kPatchToken = 257, kRowToken = 258;

image::Image picture(std::int64_t width, std::int64_t height, int seed) {
  image::Image image{.width = width, .height = height, .rgb = {}};
  for (std::int64_t i = 0; i < 3 * width * height; ++i)
    image.rgb.push_back(static_cast<std::uint8_t>(i * 31 + seed * 57));
  return image;
}

class Images : public testing::Test {
 protected:
  // Files of images: a.png has 4 x 2 pixels, which are 2 patches; b.png 4 x 4; large.png shrinks to 8 x 4.
  void SetUp() override {
    if (test::error_from(image::require_decoders)) GTEST_SKIP() << "this build reads no images";
    spill(dir_ / "a.png", image::encode_png(picture(4, 2, 1)));
    spill(dir_ / "b.png", image::encode_png(picture(4, 4, 2)));
    spill(dir_ / "large.png", image::encode_png(picture(31, 16, 3)));
  }

  EncodeReport encode(const std::string& prefix, const std::vector<std::string>& lines, bool skips = false) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    spill(dir_ / "lines.jsonl", text);
    const ByteTokenizer tokenizer;
    const ImageEncoder images({.patch = kPatchSide, .longest = 8, .directory = dir_ / ""}, tokenizer);
    EncodeOptions options;
    options.read.fields = {"text"};
    options.read.batch_items = 2;
    options.images = &images;
    options.skip_bad_lines = skips;
    options.replace = true;
    options.workers = 2;
    Note note = note_of(tokenizer, "byte", {});
    note.patch = kPatchSide;
    note.vocab_size += kImageTokens;
    return data::encode(dir_ / prefix, std::vector{dir_ / "lines.jsonl"}, tokenizer, note, options);
  }
  std::vector<std::int32_t> tokens_of(const std::string& prefix) const {
    const TokenFile file(dir_ / prefix);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.num_tokens()));
    file.read(0, tokens);
    file.mark_ignored(0, tokens);
    return tokens;
  }
  ImageFile open(const std::string& prefix) const {
    return *open_images(TokenFile(dir_ / prefix), read_note(dir_ / prefix), kPatchSide);
  }
  // The patches of a whole file by themselves.
  std::vector<std::int8_t> patches_of(const std::string& prefix) const {
    const std::int64_t tokens = TokenFile(dir_ / prefix).num_tokens();
    std::vector<std::int8_t> patches(static_cast<std::size_t>(tokens * kPatchNumbers));
    open(prefix).read({0, tokens}, patches);
    return patches;
  }
  Loader loader(const std::string& prefix, std::int64_t seq, std::int64_t patch = kPatchSide) const {
    return {{.train = {dir_ / prefix}, .valid = {}, .valid_fraction = 0},
            {.seq = seq, .global_batch = 2, .patch = patch},
            259,
            1};
  }

  const std::vector<std::string> lines_ = {R"({"image": "a.png", "text": "xy"})", R"({"text": "no image"})",
                                           R"({"image": ["b.png", "a.png"], "text": "1<image>2<image>"})",
                                           R"({"image": null, "text": "z"})",
                                           R"({"image": "large.png", "text": "large"})"};
  TempDir dir_;
};

TEST_F(Images, StandBeforeTheTextOrInIt) {
  const EncodeReport report = encode("x", lines_);
  EXPECT_EQ(report.num_images, 4);
  EXPECT_EQ(report.num_documents, 5);
  const std::vector<std::int32_t> tokens = tokens_of("x");
  const std::int32_t patch = ignored_target(kPatchToken), row = ignored_target(kRowToken);
  EXPECT_THAT(std::vector(tokens.begin(), tokens.begin() + 6), ElementsAre(patch, patch, row, 'x', 'y', 256));
  EXPECT_THAT(std::vector(tokens.begin() + 15, tokens.begin() + 27),
              ElementsAre('1', patch, patch, row, patch, patch, row, '2', patch, patch, row, 256));
  const ImageFile images = open("x");
  ASSERT_EQ(images.size(), 4);
  EXPECT_EQ(images[0].token, 0);
  EXPECT_EQ(images[1].token, 16);
  EXPECT_EQ(images[3].rows, 2);
  EXPECT_EQ(images[3].cols, 4);
  const image::Image large = image::resize(picture(31, 16, 3), 8, 4);
  EXPECT_EQ(images.image(3).rgb, large.rgb);
  EXPECT_EQ(tokenizer_of(dir_ / "x", std::nullopt)->decode(std::vector<std::int32_t>{257, 257, 258, 'x', 256}),
            "<image>x");
  check_tokens(TokenFile(dir_ / "x"), read_note(dir_ / "x"), std::nullopt);
}

TEST_F(Images, OfAllFormsAreTheSame) {
  const std::string base64 = to_base64(slurp(dir_ / "b.png"));
  encode("path", {R"({"image": "b.png", "text": "t"})"});
  encode("base64", {R"({"image": ")" + base64 + R"(", "text": "t"})"});
  encode("url", {R"({"image": "data:image/png;base64,)" + base64 + R"(", "text": "t"})"});
  encode("absolute", {Json{{"image", dir_ / "b.png"}, {"text", "t"}}.dump()});
  for (const char* other : {"base64", "url", "absolute"}) {
    EXPECT_EQ(slurp(dir_ / (std::string(other) + ".images")), slurp(dir_ / "path.images")) << other;
    EXPECT_EQ(slurp(dir_ / (std::string(other) + ".bin")), slurp(dir_ / "path.bin")) << other;
  }
}

TEST_F(Images, ThatCannotBeReadAreRefusedOrSkipped) {
  spill(dir_ / "cut.png", slurp(dir_ / "b.png").substr(0, 60));
  spill(dir_ / "text.png", "this is no image");
  spill(dir_ / "empty.png", "");
  const std::string base64 = to_base64(slurp(dir_ / "b.png"));
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"image": "absent.png", "text": "t"})", "absent.png"},
      {R"({"image": "cut.png", "text": "t"})", "the file ends too early"},
      {R"({"image": "text.png", "text": "t"})", "neither JPEG nor PNG"},
      {R"({"image": "empty.png", "text": "t"})", "it is empty"},
      {R"({"image": ".", "text": "t"})", "'"},
      {R"({"image": "iVBORw0KGgo)" + std::string("!") + R"(", "text": "t"})", "not base64"},
      {R"({"image": ")" + base64.substr(0, 40) + R"(", "text": "t"})", "base64: "},
      {R"({"image": 7, "text": "t"})", "neither a string nor an array"},
      {R"({"image": ["a.png", 7], "text": "t"})", "neither a string nor an array"},
      {R"({"image": "a.png", "text": "<image><image>"})", "2 times"},
      {R"({"text": "one <image>"})", "has 0 images"},
      {R"({"image": "a.png"})", "no field 'text'"},
      {R"({"image": "a.png", "text": "t")", ""},
  };
  std::vector<std::string> lines;
  for (const auto& [line, what] : bad) {
    const Error error = thrown_by([&, &line = line] { encode("bad", {lines_[1], line}); });
    EXPECT_EQ(error.kind(), "data.json") << line;
    EXPECT_THAT(error.message(), HasSubstr("lines.jsonl:2"));
    EXPECT_THAT(error.message(), HasSubstr(what));
    lines.push_back(line);
    lines.push_back(lines_[0]);
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ / "bad.images"));
  const EncodeReport report = encode("good", lines, true);
  EXPECT_EQ(report.num_bad_lines, std::ssize(bad));
  EXPECT_EQ(report.num_documents, std::ssize(bad));
  EXPECT_EQ(report.num_images, std::ssize(bad));
  check_tokens(TokenFile(dir_ / "good"), read_note(dir_ / "good"), std::nullopt);
}

TEST_F(Images, AreReadInAnyPartAsInTheWhole) {
  encode("x", lines_);
  const std::vector<std::int8_t> all = patches_of("x");
  const std::vector<std::int32_t> tokens = tokens_of("x");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto patch = std::span(all).subspan(i * kPatchNumbers, kPatchNumbers);
    EXPECT_EQ(std::ranges::any_of(patch, [](std::int8_t c) { return c != 0; }), token_id(tokens[i]) == kPatchToken)
        << i;
  }
  const ImageFile images = open("x");
  for (std::int64_t begin = 0; begin < std::ssize(tokens); ++begin) {
    for (const std::int64_t count : {1, 2, 5, 9}) {
      if (begin + count > std::ssize(tokens)) continue;
      std::vector<std::int8_t> part(static_cast<std::size_t>(count * kPatchNumbers), 99);
      images.read({begin, begin + count}, part);
      EXPECT_TRUE(std::ranges::equal(
          part, std::span(all).subspan(static_cast<std::size_t>(begin * kPatchNumbers), part.size())))
          << begin;
    }
  }
}

TEST_F(Images, ReachTheRanksThroughTheRing) {
  encode("x", lines_);
  constexpr std::int64_t kSeq = 8;
  const Loader alone = loader("x", kSeq);
  const std::vector<std::int8_t> all = patches_of("x");
  LoaderProcess process([this] { return std::make_unique<Loader>(loader("x", kSeq)); });
  EXPECT_EQ(process.open(60, [] {}), alone.facts());
  BatchRing ring({.parts = 2, .rows = 1, .seq = kSeq, .patch_size = kPatchNumbers});
  process.run(ring, {.order = {.end = 4}, .dp_ranks = {0, 1}, .division = {.dp = 2}});
  BatchReader reader(ring, 0, 1, 60, [&] { process.check(); });
  for (std::int64_t step = 0; step < 4; ++step) {
    const Batch batch = reader.next({.step = step});
    const auto begin = static_cast<std::size_t>(alone.window(step, 1).begin * kPatchNumbers);
    EXPECT_TRUE(std::ranges::equal(batch.patches, std::span(all).subspan(begin, kSeq * kPatchNumbers))) << step;
  }
}

TEST_F(Images, NeedAModelWithTheirPatches) {
  encode("x", lines_);
  for (const std::int64_t patch : {0, 3}) {
    const Error error = thrown_by([&] { loader("x", 8, patch); });
    EXPECT_EQ(error.kind(), "data.image");
    EXPECT_EQ(error.blame(), Blame::user);
  }
  EXPECT_EQ(thrown_by([&] { EvalSet({"x", dir_ / "x"}, 8, 259, 0); }).kind(), "data.image");
  EvalSet set({"x", dir_ / "x"}, 8, 259, 0, kPatchSide);
  std::vector<std::int32_t> row(9);
  std::vector<std::int8_t> patches(8 * kPatchNumbers);
  set.read(0, row, {}, patches);
  const std::vector<std::int8_t> all = patches_of("x");
  EXPECT_TRUE(std::ranges::equal(patches, std::span(all).first(patches.size())));
}

TEST_F(Images, ArePackedAndMergedWithTheirTokens) {
  encode("x", lines_);
  encode("y", {lines_[4], lines_[2]});
  merge({dir_ / "x", dir_ / "y"}, dir_ / "both");
  std::vector<std::int8_t> expected = patches_of("x");
  const std::vector<std::int8_t> second = patches_of("y");
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(patches_of("both"), expected);
  check_tokens(TokenFile(dir_ / "both"), read_note(dir_ / "both"), std::nullopt);

  pack(dir_ / "both", dir_ / "packed", {.seq = 24});
  EXPECT_EQ(open("packed").size(), open("both").size());
  check_tokens(TokenFile(dir_ / "packed"), read_note(dir_ / "packed"), std::nullopt);
  loader("packed", 24);
  // 9 tokens hold neither the large image nor the second one of a text, and 5 not even its first.
  for (const auto& [seq, images] : std::map<std::int64_t, std::int64_t>{{12, 7}, {9, 3}, {5, 1}}) {
    pack(dir_ / "both", dir_ / "cut", {.seq = seq, .too_long = TooLong::truncate});
    EXPECT_EQ(open("cut").size(), images) << seq;
    check_tokens(TokenFile(dir_ / "cut"), read_note(dir_ / "cut"), std::nullopt);
    std::vector<std::int32_t> tokens = tokens_of("cut");
    remove_marks(tokens);
    const std::vector<std::int8_t> patches = patches_of("cut");
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto patch = std::span(patches).subspan(i * kPatchNumbers, kPatchNumbers);
      EXPECT_EQ(std::ranges::any_of(patch, [](std::int8_t c) { return c != 0; }), tokens[i] == kPatchToken) << i;
    }
  }
}

TEST_F(Images, ThatAreDamagedAreNamed) {
  encode("x", lines_);
  const std::string whole = slurp(dir_ / "x.images");
  const TokenFile file(dir_ / "x");
  const std::optional<Note> note = read_note(dir_ / "x");
  const auto check = [&] { check_tokens(file, note, std::nullopt); };
  for (const std::size_t size : {std::size_t{0}, std::size_t{31}, whole.size() / 2, whole.size() - 1}) {
    spill(dir_ / "x.images", whole.substr(0, size));
    EXPECT_EQ(thrown_by(check).kind(), "data.image") << size;
  }
  const std::size_t index = whole.size() - 32 - 4 * 24;
  for (std::size_t at = index; at < whole.size(); ++at) {
    std::string wrong = whole;
    wrong[at] = static_cast<char>(wrong[at] ^ 0x10);
    spill(dir_ / "x.images", wrong);
    const Error error = thrown_by(check);
    EXPECT_TRUE(error.kind() == "data.image" || error.kind() == "data.token") << at;
    EXPECT_EQ(error.blame(), Blame::storage) << at;
  }
  std::string wrong = whole;
  wrong[60] = static_cast<char>(wrong[60] ^ 1);
  spill(dir_ / "x.images", wrong);
  const Error error = thrown_by(check);
  EXPECT_EQ(error.kind(), "data.image");
  EXPECT_THAT(error.message(), HasSubstr("image 0: "));
  std::filesystem::remove(dir_ / "x.images");
  EXPECT_EQ(thrown_by(check).kind(), "file.open");
}

}  // namespace
}  // namespace ms::data
