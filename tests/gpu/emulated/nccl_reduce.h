// Sums and maxima of the emulated NCCL, in rank order: bf16 in f32, rounded once.
#pragma once

#include <nccl.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace ms::emulated::nccl {

using Bytes = std::vector<std::byte>;

struct Bf16 {
  std::uint16_t bits;
};
inline float widen(Bf16 value) {
  const std::uint32_t bits = std::uint32_t{value.bits} << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}
template <class T>
T widen(T value) {
  return value;
}
inline void narrow(float value, Bf16& to) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  to.bits = value != value ? 0x7fff : static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
template <class T>
void narrow(T value, T& to) {
  to = value;
}

template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {  // sums wrap around
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  } else {
    return a + b;
  }
}
template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
  return a < b ? b : a;
}

template <class T>
Bytes reduce_as(const std::vector<Bytes>& inputs, ncclRedOp_t how) {
  Bytes result(inputs[0].size());
  T* to = reinterpret_cast<T*>(result.data());
  for (std::size_t i = 0; i < result.size() / sizeof(T); ++i) {
    auto all = widen(reinterpret_cast<const T*>(inputs[0].data())[i]);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      const auto next = widen(reinterpret_cast<const T*>(inputs[rank].data())[i]);
      all = how == ncclMax ? larger(all, next) : add(all, next);
    }
    narrow(all, to[i]);
  }
  return result;
}
inline Bytes reduce(const std::vector<Bytes>& inputs, ncclDataType_t type, ncclRedOp_t how) {
  switch (type) {
    case ncclInt8: return reduce_as<std::int8_t>(inputs, how);
    case ncclUint8: return reduce_as<std::uint8_t>(inputs, how);
    case ncclInt32: return reduce_as<std::int32_t>(inputs, how);
    case ncclFloat32: return reduce_as<float>(inputs, how);
    case ncclFloat64: return reduce_as<double>(inputs, how);
    default: return reduce_as<Bf16>(inputs, how);
  }
}
inline std::size_t size_of(ncclDataType_t type) {  // 0 for types that are not emulated
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclFloat64: return 8;
    default: return 0;
  }
}

}  // namespace ms::emulated::nccl
