// The only file that knows libpng.
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "image/formats.h"

namespace ms::image {

void require_decoders() {}

namespace {

// The bytes that libpng reads, and where a failed call leaves by the jump.
struct PngSource {
  std::string_view bytes;
  std::jmp_buf jump{};
  char message[256] = {};
};

[[noreturn]] void on_png_error(png_structp png, png_const_charp message) {
  auto* const source = static_cast<PngSource*>(png_get_error_ptr(png));
  std::snprintf(source->message, sizeof source->message, "%s", message);
  std::longjmp(source->jump, 1);
}

void on_png_warning(png_structp, png_const_charp) {}  // of chunks that are not pixels

void read_png_bytes(png_structp png, png_bytep to, std::size_t size) {
  auto* const source = static_cast<PngSource*>(png_get_io_ptr(png));
  if (source->bytes.size() < size) png_error(png, "the file ends too early");
  std::memcpy(to, source->bytes.data(), size);
  source->bytes.remove_prefix(size);
}

// No object with a destructor lives where libpng may jump over its end.
std::optional<std::string> read_png(png_structp png, png_infop info, PngSource& source, Image& image,
                                    std::vector<png_bytep>& rows) {
  if (setjmp(source.jump) != 0) return source.message;
  png_set_user_limits(png, kMaxSide, kMaxSide);
  png_set_read_fn(png, &source, read_png_bytes);
  png_read_info(png, info);
  const auto width = png_get_image_width(png, info), height = png_get_image_height(png, info);
  if (auto problem = make(image, width, height)) return problem;
  png_set_strip_16(png);
  png_set_palette_to_rgb(png);
  if (png_get_bit_depth(png, info) < 8) png_set_expand_gray_1_2_4_to_8(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_rowbytes(png, info) != std::size_t{3} * width) png_error(png, "its pixels do not become RGB");
  for (png_uint_32 y = 0; y < height; ++y) rows.push_back(image.rgb.data() + std::size_t{3} * width * y);
  png_read_image(png, rows.data());
  png_read_end(png, nullptr);
  return std::nullopt;
}

void append_png_bytes(png_structp png, png_bytep from, std::size_t size) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(from), size);
}

}  // namespace

std::optional<std::string> decode_png(std::string_view bytes, Image& image) {
  PngSource source{.bytes = bytes};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, on_png_error, on_png_warning);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  MS_ASSERT(info != nullptr, "libpng {} makes no reader", PNG_LIBPNG_VER_STRING);
  std::vector<png_bytep> rows;
  std::optional<std::string> problem = read_png(png, info, source, image, rows);
  png_destroy_read_struct(&png, &info, nullptr);
  return problem;
}

std::string encode_png(const Image& image) {
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  MS_ASSERT(info != nullptr, "libpng {} makes no writer", PNG_LIBPNG_VER_STRING);
  png_set_write_fn(png, &bytes, append_png_bytes, [](png_structp) {});
  constexpr int kBits = 8;
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), kBits,
               PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (std::int64_t y = 0; y < image.height; ++y) png_write_row(png, image.rgb.data() + 3 * image.width * y);
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

}  // namespace ms::image
