#include "predict/xgboost.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <type_traits>

namespace ms::predict::xgboost {
namespace {

// Debian's name, and that of the library in PyPI's wheel, which needs LD_LIBRARY_PATH.
constexpr std::array<const char*, 2> kNames{"libxgboost.so.0", "libxgboost.so"};

struct Opened {
  Api api{};
  std::string why = {};
};

Opened open() {
  Opened opened;
  void* library = nullptr;
  for (const char* name : kNames) {
    if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr && opened.why.empty()) opened.why = ::dlerror();
  }
  if (library == nullptr) {
    opened.why += "; install libxgboost0 (Debian), or set LD_LIBRARY_PATH to the lib of the Python package xgboost";
    return opened;
  }
  opened.why.clear();
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) opened.why = fmt::format("libxgboost has no {}: it is older than 1.6", name);
  };
  find(opened.api.last_error, "XGBGetLastError");
  find(opened.api.matrix, "XGDMatrixCreateFromMat");
  find(opened.api.matrix_free, "XGDMatrixFree");
  find(opened.api.set_float_info, "XGDMatrixSetFloatInfo");
  find(opened.api.booster, "XGBoosterCreate");
  find(opened.api.booster_free, "XGBoosterFree");
  find(opened.api.set_param, "XGBoosterSetParam");
  find(opened.api.update, "XGBoosterUpdateOneIter");
  find(opened.api.save, "XGBoosterSaveModelToBuffer");
  return opened;
}

}  // namespace

const Api* api(std::string* why) {
  static const Opened opened = open();  // for the life of the process
  if (opened.why.empty()) return &opened.api;
  if (why != nullptr) *why = opened.why;
  return nullptr;
}

}  // namespace ms::predict::xgboost
