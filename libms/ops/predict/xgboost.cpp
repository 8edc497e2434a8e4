#include "predict/xgboost.h"

#include "base/optional_library.h"

namespace ms::predict::xgboost {
namespace {

struct Opened {
  Api api{};
  std::string why = {};
};

Opened open() {
  Opened opened;
  // Debian's name, and that of the library in PyPI's wheel, which needs LD_LIBRARY_PATH.
  OptionalLibrary library({"libxgboost.so.0", "libxgboost.so"});
  library.find(opened.api.last_error, "XGBGetLastError");
  library.find(opened.api.matrix, "XGDMatrixCreateFromMat");
  library.find(opened.api.matrix_free, "XGDMatrixFree");
  library.find(opened.api.set_float_info, "XGDMatrixSetFloatInfo");
  library.find(opened.api.booster, "XGBoosterCreate");
  library.find(opened.api.booster_free, "XGBoosterFree");
  library.find(opened.api.set_param, "XGBoosterSetParam");
  library.find(opened.api.update, "XGBoosterUpdateOneIter");
  library.find(opened.api.save, "XGBoosterSaveModelToBuffer");
  if (!library.is_open()) {
    opened.why = library.why() +
                 "; install libxgboost0 (Debian), or set LD_LIBRARY_PATH to the lib of the Python package xgboost";
  } else if (!library.why().empty()) {
    opened.why = library.why() + ": it is older than 1.6";
  }
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
