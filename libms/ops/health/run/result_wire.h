// How a lane's process hands a Result to its parent through a pipe: same program on both ends, so plain lengths and
// bytes. The parent reads it as it would untrusted input: what does not add up is nullopt.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "health/checks/check.h"

namespace ms::health {

std::string encode(const Result& result);
std::optional<Result> decode(std::string_view bytes);

}  // namespace ms::health
