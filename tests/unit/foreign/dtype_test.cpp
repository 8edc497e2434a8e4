// What is not finite is counted wherever it stands: in the blocks that are only looked at and behind the last of them.
#include "foreign/dtype.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace ms::foreign {
namespace {

struct Case {
  const char* type;
  std::uint64_t nan, infinite;  // bits; 0: it has no infinity
  std::uint64_t sign;
};
constexpr Case kCases[] = {{"torch.float32", 0x7f800001, 0x7f800000, 0x80000000},
                           {"torch.float64", 0x7ff0000000000001, 0x7ff0000000000000, 0x8000000000000000},
                           {"torch.float16", 0x7c01, 0x7c00, 0x8000},
                           {"torch.bfloat16", 0x7f81, 0x7f80, 0x8000},
                           {"torch.float8_e5m2", 0x7d, 0x7c, 0x80},
                           {"torch.float8_e4m3fn", 0x7f, 0, 0x80}};

TEST(Dtype, CountsWhatIsNotFinite) {
  constexpr std::size_t kElements = 1500;
  for (const Case& c : kCases) {
    const Dtype& type = *dtype_of(c.type);
    const auto size = static_cast<std::size_t>(type.size_bytes);
    for (const std::uint64_t others : {c.infinite / 2, std::uint64_t{0}}) {
      std::vector<std::byte> bytes(kElements * size);
      const auto set = [&](std::size_t i, std::uint64_t bits) { std::memcpy(&bytes[i * size], &bits, size); };
      for (std::size_t i = 0; i < kElements; ++i) set(i, i % 3 == 0 ? others | c.sign : others);
      NonFinite counts = type.count(bytes);
      EXPECT_EQ(counts.nan + counts.infinite, 0) << c.type;
      EXPECT_EQ(counts.others, others != 0) << c.type;
      for (const std::size_t i : {std::size_t{0}, std::size_t{511}, std::size_t{512}, kElements - 1})
        set(i, c.nan | c.sign);
      set(600, c.nan);
      set(601, c.infinite | c.sign);
      set(1499 - 1, c.infinite);
      counts = type.count(bytes);
      EXPECT_EQ(counts.nan, 5) << c.type;
      EXPECT_EQ(counts.infinite, c.infinite == 0 ? 0 : 2) << c.type;
      EXPECT_EQ(counts.others, others != 0) << c.type;
    }
  }
}

}  // namespace
}  // namespace ms::foreign
