// The JSON of a pickle's values: for pickle.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "unpack/pickle.h"

namespace ms::unpack {

// Throws Error("data.pickle", user): a pickle that `what` at this byte.
[[noreturn]] void refuse_pickle(std::string_view what, std::size_t at);
bool is_pickle_key(const PickledNode& node);  // text or a number
std::string json_of_pickle(const PickledNodes& nodes, std::uint32_t root, std::size_t max_json_bytes, std::size_t at);

}  // namespace ms::unpack
