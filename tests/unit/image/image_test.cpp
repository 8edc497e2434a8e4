// Decoding, resizing and patches, against Pillow's pixels; and images that are damaged, each in every place.
#include "image/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/base64.h"
#include "pillow_images.h"

namespace ms::image {
namespace {

std::string bytes_of(const char* base64) { return from_base64(base64).value(); }

Image decoded(std::string_view bytes) {
  Image image;
  EXPECT_EQ(decode(bytes, image).value_or(""), "");
  return image;
}

// The largest difference of two colours; 256: the sizes differ.
int difference(const Image& image, const PillowImage& pillow) {
  const std::string rgb = bytes_of(pillow.rgb);
  if (image.width != pillow.width || image.height != pillow.height || image.rgb.size() != rgb.size()) return 256;
  int most = 0;
  for (std::size_t i = 0; i < rgb.size(); ++i)
    most = std::max(most, std::abs(int{image.rgb[i]} - int{static_cast<unsigned char>(rgb[i])}));
  return most;
}

TEST(Image, IsDecodedAsByPillow) {
  for (const PillowImage& pillow : kPillowImages) {
    const std::string file = bytes_of(pillow.file);
    const bool is_exact = file.starts_with("\x89PNG");  // of JPEG, each library may round in its own way
    EXPECT_LE(difference(decoded(file), pillow), is_exact ? 0 : 1) << pillow.name;
  }
}

TEST(Image, IsResizedAsByPillow) {
  const Image image = decoded(bytes_of(kResizedPng));
  for (const PillowImage& pillow : kPillowResized)
    EXPECT_LE(difference(resize(image, pillow.width, pillow.height), pillow), 0) << pillow.name;
  EXPECT_EQ(resize(image, image.width, image.height).rgb, image.rgb);
}

TEST(Image, ThatIsCutAnywhereIsRefused) {
  for (const PillowImage& pillow : kPillowImages) {
    const std::string file = bytes_of(pillow.file);
    const std::size_t end = file.starts_with("\x89PNG") ? file.size() : file.size() - 2;  // JPEG's mark of its end
    for (std::size_t size = 0; size < end; ++size) {
      Image image;
      ASSERT_TRUE(decode(std::string_view(file).substr(0, size), image)) << pillow.name << " cut at " << size;
    }
  }
}

TEST(Image, WithAnyWrongByteIsRefusedOrHasItsSize) {
  int refused = 0;
  for (const PillowImage& pillow : kPillowImages) {
    const std::string file = bytes_of(pillow.file);
    for (std::size_t at = 0; at < file.size(); ++at) {
      std::string wrong = file;
      wrong[at] = static_cast<char>(wrong[at] ^ 0x55);
      Image image;
      if (decode(wrong, image)) {
        ++refused;
      } else {
        ASSERT_EQ(std::ssize(image.rgb), 3 * image.width * image.height) << pillow.name << " at " << at;
      }
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(Image, OfAnotherKindIsRefused) {
  Image image;
  EXPECT_EQ(decode("", image), "it is empty");
  EXPECT_EQ(decode("GIF89a", image), "it is neither JPEG nor PNG");
  EXPECT_TRUE(decode(bytes_of(kCmykJpeg), image));
  std::string huge = bytes_of(kPillowImages[3].file);
  huge[17] = '\x7f';  // its width, and so a wrong checksum, too
  EXPECT_TRUE(decode(huge, image));
}

TEST(Image, IsWrittenAsPng) {
  const Image image = decoded(bytes_of(kResizedPng));
  EXPECT_EQ(decoded(encode_png(image)).rgb, image.rgb);
}

TEST(Patches, CoverAnImageInItsShape) {
  EXPECT_EQ(grid_of(224, 224, 16, 224), (Grid{14, 14}));
  EXPECT_EQ(grid_of(640, 480, 16, 224), (Grid{11, 14}));  // 168 pixels are 10.5 patches
  EXPECT_EQ(grid_of(480, 640, 16, 224), (Grid{14, 11}));
  EXPECT_EQ(grid_of(40, 20, 16, 224), (Grid{1, 3}));  // it is not enlarged, but to whole patches
  EXPECT_EQ(grid_of(65'500, 1, 16, 224), (Grid{1, 14}));
  EXPECT_EQ(grid_of(1, 1, 16, 224), (Grid{1, 1}));
}

TEST(Patches, AreRowsOfPixelsAround0) {
  Image image{.width = 4, .height = 2, .rgb = {}};
  for (int i = 0; i < 24; ++i) image.rgb.push_back(static_cast<std::uint8_t>(i * 10));
  std::vector<std::int8_t> patch(static_cast<std::size_t>(patch_size(2)));
  copy_patch(image, 2, 1, patch);
  std::vector<int> expected;
  for (const int pixel : {6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23}) expected.push_back(pixel * 10 - 128);
  EXPECT_EQ(std::vector<int>(patch.begin(), patch.end()), expected);
}

}  // namespace
}  // namespace ms::image
