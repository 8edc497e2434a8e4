#include "tensor/matmul_choices.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace ms::tensor {
namespace {

constexpr std::string_view kLibrary = "library", kIs = " = ";

}  // namespace

std::string MatmulChoices::to_text() const {
  if (algorithms.empty()) return "";
  std::string text = fmt::format("{}{}{}\n", kLibrary, kIs, library);
  for (const auto& [form, algorithm] : algorithms) text += fmt::format("{}{}{}\n", form, kIs, algorithm);
  return text;
}

std::vector<MatmulChoices> MatmulChoices::parse(std::string_view text, std::string_view from) {
  std::vector<MatmulChoices> all;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    const std::size_t is = line.find(kIs);
    const std::string name = line.substr(0, is);
    if (is == std::string::npos || (all.empty() && name != kLibrary)) {
      throw user_error("tensor.choices",
                       fmt::format("{} is not a file of matmul algorithms: '{}'", from, line.substr(0, 60)));
    }
    const std::string value = line.substr(is + kIs.size());
    if (name == kLibrary) {
      all.push_back({.library = value, .algorithms = {}});
    } else {
      all.back().algorithms[name] = value;
    }
  }
  return all;
}

}  // namespace ms::tensor
