// Scratch memory of a stable sort of numbers with what they number, by CUB.
#pragma once

#include <cstdint>
#include <cub/device/device_radix_sort.cuh>

namespace ms::kernels {

inline std::size_t sort_bytes(std::int64_t pairs) {
  std::size_t bytes = 0;
  const std::int32_t* in = nullptr;
  std::int32_t* out = nullptr;
  cub::DeviceRadixSort::SortPairs(nullptr, bytes, in, out, in, out, static_cast<int>(pairs));
  return bytes;
}
// Returns the bytes up to where the next array may begin.
inline std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace ms::kernels
