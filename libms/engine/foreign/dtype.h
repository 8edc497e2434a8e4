// The element types of PyTorch's tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ms::foreign {

struct NonFinite {
  std::int64_t nan = 0, infinite = 0;
  bool others = false;  // a finite value that is not 0
  void add(const NonFinite& more) {
    nan += more.nan;
    infinite += more.infinite;
    others = others || more.others;
  }
};

struct Dtype {
  std::string_view name, storage;  // "float32", "FloatStorage"
  std::string_view safetensors;    // "F32"; empty: it has no such type
  std::int64_t size_bytes = 0;
  NonFinite (*count)(std::span<const std::byte>) = nullptr;  // nullptr: all of its values are finite
};

// The type of "torch.float32" or "torch.FloatStorage"; nullptr: not known.
const Dtype* dtype_of(std::string_view global);
// The type of "F32"; nullptr: not known.
const Dtype* dtype_of_safetensors(std::string_view name);

}  // namespace ms::foreign
