// The decoders of the module image, one a vendor's library. Each returns what is wrong, as of decode().
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "image/image.h"

namespace ms::image {

std::optional<std::string> decode_jpeg(std::string_view bytes, Image& image);
std::optional<std::string> decode_png(std::string_view bytes, Image& image);
// Sizes an image; returns what is wrong with its size.
std::optional<std::string> make(Image& image, std::int64_t width, std::int64_t height);

}  // namespace ms::image
