#include "tracepp/heat/gd.h"

#include "base/optional_library.h"

namespace ms::tracepp::gd {
namespace {

struct Opened {
  Api api{};
  std::string why = {};
};

Opened open() {
  Opened opened;
  OptionalLibrary library({"libgd.so.3"});
  library.find(opened.api.create, "gdImageCreateTrueColor");
  library.find(opened.api.destroy, "gdImageDestroy");
  library.find(opened.api.fill, "gdImageFilledRectangle");
  library.find(opened.api.text, "gdImageString");
  library.find(opened.api.font, "gdFontGetLarge");
  library.find(opened.api.png, "gdImagePngPtr");
  library.find(opened.api.free, "gdFree");
  opened.why = library.why();
  return opened;
}

}  // namespace

const Api* api(std::string& why) {
  static const Opened opened = open();  // for the life of the process
  why = opened.why;
  return why.empty() ? &opened.api : nullptr;
}

}  // namespace ms::tracepp::gd
