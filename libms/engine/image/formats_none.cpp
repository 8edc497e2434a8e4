// Where the build has no libjpeg and libpng: require_decoders() refuses before anything is decoded.
#include "base/error.h"
#include "image/formats.h"

namespace ms::image {

void require_decoders() {
  throw user_error("image.build", "this build of ms reads no images, as libjpeg and libpng were not found",
                   "install libjpeg-turbo and libpng (Debian: libjpeg-dev libpng-dev), and build with MS_IMAGES=ON");
}

std::optional<std::string> decode_jpeg(std::string_view, Image&) { return "this build reads no JPEG"; }
std::optional<std::string> decode_png(std::string_view, Image&) { return "this build reads no PNG"; }
std::string encode_png(const Image&) {
  require_decoders();
  return {};
}

}  // namespace ms::image
