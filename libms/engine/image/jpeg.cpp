// The only file that knows libjpeg.
#include <cstdio>

#include <jerror.h>
#include <jpeglib.h>  // after <cstdio>, which it needs

#include <csetjmp>

#include "image/formats.h"

namespace ms::image {
namespace {

constexpr int kMaxScans = 500;  // of a progressive file: each takes as long as the whole image

// The error manager, where a failed call of libjpeg leaves by the jump.
struct JpegFailure {
  jpeg_error_mgr manager{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX] = {};
};

[[noreturn]] void fail(j_common_ptr info) {
  auto* const failure = reinterpret_cast<JpegFailure*>(info->err);
  info->err->format_message(info, failure->message);
  std::longjmp(failure->jump, 1);
}

// A warning (level below 0) tells of damage, but for bytes between segments, which many writers leave.
void on_jpeg_message(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code != JWRN_EXTRANEOUS_DATA) fail(info);
}

void on_jpeg_progress(j_common_ptr info) {
  if (reinterpret_cast<jpeg_decompress_struct*>(info)->input_scan_number <= kMaxScans) return;
  info->err->msg_code = JERR_BAD_PROGRESSION;
  fail(info);
}

// No object with a destructor lives where libjpeg may jump over its end.
std::optional<std::string> read_jpeg(jpeg_decompress_struct& info, JpegFailure& failure, std::string_view bytes,
                                     Image& image) {
  if (setjmp(failure.jump) != 0) return failure.message;
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(&info, TRUE);
  if (info.num_components != 1 && info.num_components != 3)
    return "it has CMYK or other colours than grey and RGB: convert it";
  info.out_color_space = JCS_RGB;
  if (auto problem = make(image, info.image_width, info.image_height)) return problem;
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = image.rgb.data() + std::size_t{3} * info.output_width * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> decode_jpeg(std::string_view bytes, Image& image) {
  JpegFailure failure;
  jpeg_progress_mgr progress{};
  progress.progress_monitor = on_jpeg_progress;
  jpeg_decompress_struct info{};
  info.err = jpeg_std_error(&failure.manager);
  failure.manager.error_exit = fail;
  failure.manager.emit_message = on_jpeg_message;
  if (setjmp(failure.jump) != 0) return failure.message;  // no memory, or another version of the library
  jpeg_create_decompress(&info);
  info.progress = &progress;
  std::optional<std::string> problem = read_jpeg(info, failure, bytes, image);
  jpeg_destroy_decompress(&info);
  return problem;
}

}  // namespace ms::image
