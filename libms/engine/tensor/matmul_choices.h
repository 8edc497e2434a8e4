// The autotuned matmul algorithms of a device whose library offers several. Timing does not choose the same algorithm
// twice, and algorithms sum in different orders. Ranks and resumed runs compute the same bits only with the same
// algorithms, so the choices are broadcast and saved with checkpoints.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ms::tensor {

struct MatmulChoices {
  std::string library;                            // device and library that they apply to; empty: none
  std::map<std::string, std::string> algorithms;  // by matmul form, serialized as the library does

  bool operator==(const MatmulChoices&) const = default;
  // Returns lines of "form = algorithm" below "library = ..."; empty if there are no choices.
  std::string to_text() const;
  // Returns the choices of each library in such a text. Throws Error("tensor.choices", user) if the text is malformed;
  // `from` names its origin in the message.
  static std::vector<MatmulChoices> parse(std::string_view text, std::string_view from);
};

}  // namespace ms::tensor
