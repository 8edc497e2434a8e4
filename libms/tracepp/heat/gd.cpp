#include "tracepp/heat/gd.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <type_traits>

namespace ms::tracepp::gd {
namespace {

struct Opened {
  Api api{};
  std::string why = {};
};

Opened open() {
  Opened opened;
  void* const library = ::dlopen("libgd.so.3", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    opened.why = ::dlerror();
    return opened;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) opened.why = fmt::format("libgd has no {}", name);
  };
  find(opened.api.create, "gdImageCreateTrueColor");
  find(opened.api.destroy, "gdImageDestroy");
  find(opened.api.fill, "gdImageFilledRectangle");
  find(opened.api.text, "gdImageString");
  find(opened.api.font, "gdFontGetLarge");
  find(opened.api.png, "gdImagePngPtr");
  find(opened.api.free, "gdFree");
  return opened;
}

}  // namespace

const Api* api(std::string& why) {
  static const Opened opened = open();  // for the life of the process
  why = opened.why;
  return why.empty() ? &opened.api : nullptr;
}

}  // namespace ms::tracepp::gd
