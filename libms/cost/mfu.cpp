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
};

// The first row that fits: variants come before the plain model.
constexpr std::array<Peak, 8> kPeaks{{
    {"A100", "", 312.0},
    {"A800", "", 312.0},
    {"H100", "PCIe", 756.0},
    {"H100", "NVL", 835.0},
    {"H100", "", 989.0},
    {"H200", "NVL", 835.0},
    {"H200", "", 989.0},
    {"GH200", "", 989.0},
}};

bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Whole words only: an "RTX A1000" is no A100, and a GH200 has its own row.
bool has_word(std::string_view text, std::string_view word) {
  auto at = text.begin();
  while (at != text.end()) {
    const auto begin = std::find_if(at, text.end(), is_word_char);
    const auto end = std::find_if_not(begin, text.end(), is_word_char);
    if (std::string_view(begin, end) == word) return true;
    at = end;
  }
  return false;
}

}  // namespace

std::optional<double> known_peak_flops(std::string_view device_name) {
  if (has_word(device_name, "MIG")) return std::nullopt;
  for (const Peak& peak : kPeaks) {
    if (has_word(device_name, peak.model) && (peak.variant.empty() || has_word(device_name, peak.variant))) {
      return peak.tflops * 1e12;
    }
  }
  return std::nullopt;
}

}  // namespace ms::cost
