#include "cost/mfu.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace ms::cost {
namespace {

struct Peak {
  std::string_view model;    // a whole word of the device's name
  std::string_view variant;  // another one; empty: any
  double tflops;             // bf16, dense, as NVIDIA's data sheets say (half of the number "with sparsity")
  double fp8_tflops;         // likewise
  double tb_per_s;           // of the largest memory that it is sold with
};

// The first row that fits: variants come before the plain model.
constexpr std::array<Peak, 8> kPeaks{{
    {"A100", "", 312.0, 312.0, 2.039},
    {"A800", "", 312.0, 312.0, 2.039},
    {"H100", "PCIe", 756.0, 1513.0, 2.0},
    {"H100", "NVL", 835.0, 1671.0, 3.9},
    {"H100", "", 989.0, 1979.0, 3.35},
    {"H200", "NVL", 835.0, 1671.0, 4.8},
    {"H200", "", 989.0, 1979.0, 4.8},
    {"GH200", "", 989.0, 1979.0, 4.9},
}};

bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

// Whole words only, in either case: an "RTX A1000" is not an A100, and a GH200 has its own row.
bool has_word(std::string_view text, std::string_view word) {
  auto at = text.begin();
  while (at != text.end()) {
    const auto begin = std::find_if(at, text.end(), is_word_char);
    const auto end = std::find_if_not(begin, text.end(), is_word_char);
    if (std::equal(begin, end, word.begin(), word.end(), same_letter)) return true;
    at = end;
  }
  return false;
}

const Peak* peak_of(std::string_view device_name) {
  if (has_word(device_name, "MIG")) return nullptr;
  const auto found = std::find_if(kPeaks.begin(), kPeaks.end(), [&](const Peak& peak) {
    return has_word(device_name, peak.model) && (peak.variant.empty() || has_word(device_name, peak.variant));
  });
  return found == kPeaks.end() ? nullptr : &*found;
}

}  // namespace

std::optional<double> known_peak_flops(std::string_view device_name) {
  const Peak* peak = peak_of(device_name);
  return peak == nullptr ? std::nullopt : std::optional(peak->tflops * 1e12);
}

std::optional<Ceilings> known_ceilings(std::string_view device_name) {
  const Peak* peak = peak_of(device_name);
  if (peak == nullptr) return std::nullopt;
  return Ceilings{
      .bf16_flops = peak->tflops * 1e12, .fp8_flops = peak->fp8_tflops * 1e12, .bytes_per_s = peak->tb_per_s * 1e12};
}

}  // namespace ms::cost
