#include "image/image.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "image/formats.h"

namespace ms::image {
namespace {

constexpr int kWeightBits = 22;  // 255 x the weights of a pixel, some of them negative, fit 32 bits

// The source pixels of each pixel along one dim, and their weights.
struct Taps {
  std::int64_t width = 0;             // of a pixel, at most
  std::vector<std::int64_t> first;    // source pixel
  std::vector<std::int32_t> weights;  // `width` for each pixel; they add up to about 1 << kWeightBits
};

double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

Taps taps_of(std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), wide = std::max(scale, 1.0);
  const double reach = 2 * wide;
  Taps taps{.width = static_cast<std::int64_t>(std::ceil(reach)) * 2 + 1, .first = {}, .weights = {}};
  std::vector<double> weights;
  for (std::int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(center - reach + 0.5), 0);
    const auto last = std::min(static_cast<std::int64_t>(center + reach + 0.5), from);
    weights.assign(static_cast<std::size_t>(taps.width), 0);
    double sum = 0;
    for (std::int64_t k = first; k < last; ++k)
      sum += weights[static_cast<std::size_t>(k - first)] = cubic((static_cast<double>(k) - center + 0.5) / wide);
    for (const double weight : weights)
      taps.weights.push_back(static_cast<std::int32_t>(std::lround(weight / sum * (1 << kWeightBits))));
    taps.first.push_back(first);
  }
  return taps;
}

std::uint8_t to_byte(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }

// Resizes the rows of an image.
Image resize_rows(const Image& image, std::int64_t width) {
  const Taps taps = taps_of(image.width, width);
  Image out{.width = width, .height = image.height, .rgb = {}};
  out.rgb.resize(static_cast<std::size_t>(3 * width * image.height));
  std::uint8_t* to = out.rgb.data();
  for (std::int64_t y = 0; y < image.height; ++y) {
    const std::uint8_t* const row = image.rgb.data() + 3 * image.width * y;
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t first = taps.first[static_cast<std::size_t>(x)];
      const std::int32_t* const weights = taps.weights.data() + x * taps.width;
      const std::int64_t count = std::min(taps.width, image.width - first);
      std::int32_t sums[3] = {1 << (kWeightBits - 1), 1 << (kWeightBits - 1), 1 << (kWeightBits - 1)};
      const std::uint8_t* from = row + 3 * first;
      for (std::int64_t k = 0; k < count; ++k, from += 3) {
        for (int c = 0; c < 3; ++c) sums[c] += weights[k] * from[c];
      }
      for (const std::int32_t sum : sums) *to++ = to_byte(sum);
    }
  }
  return out;
}

// Resizes the columns of an image.
Image resize_columns(const Image& image, std::int64_t height) {
  const Taps taps = taps_of(image.height, height);
  const auto row_bytes = static_cast<std::size_t>(3 * image.width);
  Image out{.width = image.width, .height = height, .rgb = {}};
  out.rgb.resize(row_bytes * static_cast<std::size_t>(height));
  std::vector<std::int32_t> sums;
  for (std::int64_t y = 0; y < height; ++y) {
    const std::int64_t first = taps.first[static_cast<std::size_t>(y)];
    const std::int64_t count = std::min(taps.width, image.height - first);
    sums.assign(row_bytes, 1 << (kWeightBits - 1));
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int32_t weight = taps.weights[static_cast<std::size_t>(y * taps.width + k)];
      const std::uint8_t* const from = image.rgb.data() + row_bytes * static_cast<std::size_t>(first + k);
      for (std::size_t i = 0; i < row_bytes; ++i) sums[i] += weight * from[i];
    }
    std::ranges::transform(sums, out.rgb.begin() + static_cast<std::ptrdiff_t>(row_bytes) * y, to_byte);
  }
  return out;
}

}  // namespace

std::optional<std::string> make(Image& image, std::int64_t width, std::int64_t height) {
  if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide || width * height > kMaxPixels)
    return fmt::format("it has {} x {} pixels, and at most {} are read", width, height, kMaxPixels);
  image.width = width;
  image.height = height;
  image.rgb.resize(static_cast<std::size_t>(3 * width * height));
  return std::nullopt;
}

std::optional<std::string> decode(std::string_view bytes, Image& image) {
  if (bytes.starts_with("\xff\xd8\xff")) return decode_jpeg(bytes, image);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return decode_png(bytes, image);
  return bytes.empty() ? "it is empty" : "it is neither JPEG nor PNG";
}

Image resize(const Image& image, std::int64_t width, std::int64_t height) {
  const std::int64_t lost_rows = image.height - height, lost_columns = image.width - width;
  if (lost_rows > 0 && lost_rows > 2 * lost_columns) {
    Image columns = resize_columns(image, height);
    return lost_columns == 0 ? columns : resize_rows(columns, width);
  }
  Image rows = lost_columns == 0 ? image : resize_rows(image, width);
  return lost_rows == 0 ? rows : resize_columns(rows, height);
}

Grid grid_of(std::int64_t width, std::int64_t height, std::int64_t patch, std::int64_t longest) {
  MS_ASSERT(width > 0 && height > 0 && patch > 0 && longest % patch == 0, "{} x {} pixels in patches of {}, at most {}",
            width, height, patch, longest);
  const std::int64_t longer = std::max(width, height), shrunk = std::min(longer, longest);
  // side x shrunk / longer pixels, in patches, rounded to the nearest.
  const auto patches = [&](std::int64_t side) {
    return std::clamp<std::int64_t>((2 * side * shrunk + longer * patch) / (2 * longer * patch), 1, longest / patch);
  };
  return {patches(height), patches(width)};
}

void copy_patch(const Image& image, std::int64_t patch, std::int64_t index, std::span<std::int8_t> to) {
  const std::int64_t cols = image.width / patch, row = index / cols * patch, col = index % cols * patch;
  MS_ASSERT(std::ssize(to) == patch_size(patch) && row + patch <= image.height, "patch {} of {} x {} pixels", index,
            image.width, image.height);
  constexpr std::uint8_t kSign = 128;
  for (std::int64_t y = 0; y < patch; ++y) {
    const std::uint8_t* const from = image.rgb.data() + 3 * (image.width * (row + y) + col);
    std::int8_t* const out = to.data() + 3 * patch * y;
    for (std::int64_t i = 0; i < 3 * patch; ++i) out[i] = static_cast<std::int8_t>(from[i] ^ kSign);
  }
}

}  // namespace ms::image
