// The part of XGBoost's C interface that trains, declared by ourselves so that neither building nor running needs its
// header: only training looks for the library. Names and types are those of c_api.h 1.7.4; later versions keep them.
// Private to trees.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace ms::predict::xgboost {

using Matrix = void*;
using Booster = void*;
using Length = std::uint64_t;  // bst_ulong

struct Api {
  const char* (*last_error)();
  int (*matrix)(const float* data, Length rows, Length columns, float missing, Matrix* out);
  int (*matrix_free)(Matrix);
  int (*set_float_info)(Matrix, const char* field, const float* values, Length count);
  int (*booster)(const Matrix matrices[], Length count, Booster* out);
  int (*booster_free)(Booster);
  int (*set_param)(Booster, const char* name, const char* value);
  int (*update)(Booster, int iteration, Matrix);
  int (*save)(Booster, const char* config, Length* length, const char** bytes);
};

// The library where this machine has it, opened once; else nullptr, and `why` says so.
const Api* api(std::string* why);

}  // namespace ms::predict::xgboost
