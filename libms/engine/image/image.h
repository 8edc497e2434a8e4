// Pictures as pixels: decodes JPEG and PNG, resizes, and counts and cuts patches. All of it is a pure function of its
// arguments, in integers behind the weights of a resize, so that the same bytes give the same patches everywhere. Any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ms::image {

struct Image {
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // row after row, three bytes a pixel
};

// Images beyond these are refused.
inline constexpr std::int64_t kMaxSide = 65'500, kMaxPixels = std::int64_t{1} << 26;

// Throws Error("image.build", user) if this build has no libjpeg and libpng.
void require_decoders();

// Decodes a JPEG or PNG to RGB, as Pillow's convert("RGB"): grey and palettes become RGB, alpha is dropped, of 16 bits
// the high 8 stay, and EXIF orientation and colour profiles are not applied. Returns what is wrong, such as a file that
// is cut, damaged, too large, CMYK or of another format; nullopt: `image` is complete.
std::optional<std::string> decode(std::string_view bytes, Image& image);
// Returns the image as PNG.
std::string encode_png(const Image& image);

// Bicubic convolution with a = -0.5 (Keys, 1981), widened by the scale when an image shrinks, along rows and along
// columns, rounded to bytes after each: the filter of Pillow's Image.BICUBIC, with the order of its release 13. Columns
// are first if the height loses more than twice as many pixels as the width.
Image resize(const Image& image, std::int64_t width, std::int64_t height);

// The patches that an image becomes, in rows.
struct Grid {
  std::int64_t rows = 0, cols = 0;
  std::int64_t patches() const { return rows * cols; }
  friend bool operator==(const Grid&, const Grid&) = default;
};
// Returns the grid of an image, as whole patches of `patch` pixels a side: an image whose longer side has more than
// `longest` pixels shrinks to that, keeping its shape as nearly as whole patches allow. `longest` is a multiple of
// `patch`.
Grid grid_of(std::int64_t width, std::int64_t height, std::int64_t patch, std::int64_t longest);

// Returns the numbers of a patch, a multiple of 3.
constexpr std::int64_t patch_size(std::int64_t patch) { return 3 * patch * patch; }
// Writes patch `index` of an image of whole patches, row after row of its pixels, three numbers a pixel: a colour c
// becomes c - 128. 0 is so left for positions without an image.
void copy_patch(const Image& image, std::int64_t patch, std::int64_t index, std::span<std::int8_t> to);

}  // namespace ms::image
