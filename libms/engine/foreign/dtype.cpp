#include "foreign/dtype.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace ms::foreign {
namespace {

// `exponent`: the bits that are all set in what is not finite; `sign`: that of the sign.
template <class Bits, Bits exponent, Bits sign>
NonFinite count_each(std::span<const std::byte> bytes) {
  std::int64_t nan = 0, infinite = 0;
  Bits others = 0;
  const std::size_t count = bytes.size() / sizeof(Bits);
  for (std::size_t i = 0; i < count; ++i) {
    Bits value;
    std::memcpy(&value, bytes.data() + i * sizeof(Bits), sizeof value);
    const auto magnitude = static_cast<Bits>(value & static_cast<Bits>(~sign));
    nan += magnitude > exponent ? 1 : 0;
    infinite += magnitude == exponent ? 1 : 0;
    others |= magnitude < exponent ? magnitude : Bits{0};
  }
  return {.nan = nan, .infinite = infinite, .others = others != 0};
}

// Counts only in blocks that hold something that is not finite: finding their amax takes few instructions,
// which a compiler turns into vectors, as it knows the number of elements.
template <class Bits, Bits exponent, Bits sign>
NonFinite count_of(std::span<const std::byte> bytes) {
  using Signed = std::make_signed_t<Bits>;
  std::array<Bits, 512> block;
  NonFinite counts;
  while (bytes.size() >= sizeof block) {
    std::memcpy(block.data(), bytes.data(), sizeof block);
    Signed most = 0;
    Bits any = 0;
    for (const Bits value : block) {
      const auto magnitude = static_cast<Bits>(value & static_cast<Bits>(~sign));
      most = std::max(most, static_cast<Signed>(magnitude));
      any |= magnitude;
    }
    if (most < static_cast<Signed>(exponent)) {
      counts.others = counts.others || any != 0;
    } else {
      counts.add(count_each<Bits, exponent, sign>(bytes.first(sizeof block)));
    }
    bytes = bytes.subspan(sizeof block);
  }
  counts.add(count_each<Bits, exponent, sign>(bytes));
  return counts;
}

constexpr auto kCount32 = count_of<std::uint32_t, 0x7f800000U, 0x80000000U>;
constexpr auto kCount64 = count_of<std::uint64_t, 0x7ff0000000000000U, 0x8000000000000000U>;
constexpr auto kCountHalf = count_of<std::uint16_t, 0x7c00U, 0x8000U>;
constexpr auto kCountE4m3 = count_of<std::uint8_t, 0x7eU, 0x80U>;  // its largest number is not infinite

NonFinite count_e4m3fn(std::span<const std::byte> bytes) {
  NonFinite counts = kCountE4m3(bytes);
  counts.others = counts.others || counts.infinite > 0;
  counts.infinite = 0;
  return counts;
}

constexpr std::array kDtypes{
    Dtype{"float32", "FloatStorage", "F32", 4, kCount32},
    Dtype{"float64", "DoubleStorage", "F64", 8, kCount64},
    Dtype{"float16", "HalfStorage", "F16", 2, kCountHalf},
    Dtype{"bfloat16", "BFloat16Storage", "BF16", 2, count_of<std::uint16_t, 0x7f80U, 0x8000U>},
    Dtype{"int64", "LongStorage", "I64", 8},
    Dtype{"int32", "IntStorage", "I32", 4},
    Dtype{"int16", "ShortStorage", "I16", 2},
    Dtype{"int8", "CharStorage", "I8", 1},
    Dtype{"uint8", "ByteStorage", "U8", 1},
    Dtype{"bool", "BoolStorage", "BOOL", 1},
    Dtype{"uint16", "", "U16", 2},
    Dtype{"uint32", "", "U32", 4},
    Dtype{"uint64", "", "U64", 8},
    Dtype{"complex64", "ComplexFloatStorage", "C64", 8, kCount32},
    Dtype{"complex128", "ComplexDoubleStorage", "", 16, kCount64},
    Dtype{"complex32", "", "", 4, kCountHalf},
    Dtype{"float8_e4m3fn", "", "F8_E4M3", 1, count_e4m3fn},
    Dtype{"float8_e5m2", "", "F8_E5M2", 1, count_of<std::uint8_t, 0x7cU, 0x80U>},
    Dtype{"float8_e4m3fnuz", "", "F8_E4M3FNUZ", 1},
    Dtype{"float8_e5m2fnuz", "", "F8_E5M2FNUZ", 1},
    Dtype{"float8_e8m0fnu", "", "F8_E8M0", 1},
};

}  // namespace

const Dtype* dtype_of(std::string_view global) {
  constexpr std::string_view kTorch = "torch.";
  if (!global.starts_with(kTorch)) return nullptr;
  global.remove_prefix(kTorch.size());
  const auto* const row =
      std::ranges::find_if(kDtypes, [&](const Dtype& d) { return d.name == global || d.storage == global; });
  return row == kDtypes.end() || global.empty() ? nullptr : row;
}

const Dtype* dtype_of_safetensors(std::string_view name) {
  const auto* const row = std::ranges::find(kDtypes, name, &Dtype::safetensors);
  return row == kDtypes.end() || name.empty() ? nullptr : row;
}

}  // namespace ms::foreign
