// Which algorithm multiplies matrices of a form, where a device's library has several. They are chosen by timing, which
// never comes out twice the same, and add up in orders of their own: ranks, and runs that go on, compute the same bits
// only with the same algorithms, so choices are handed on.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ms::tensor {

struct MatmulChoices {
  std::string library;                            // the device and library that they are of; empty: nothing is chosen
  std::map<std::string, std::string> algorithms;  // by form, as the library writes them

  bool operator==(const MatmulChoices&) const = default;
  // Lines of "form = algorithm" below "library = ..."; empty where nothing is chosen.
  std::string to_text() const;
  // Of each library in such a text. Throws Error("tensor.choices", user) where it is none; `from` is for the message.
  static std::vector<MatmulChoices> parse(std::string_view text, std::string_view from);
};

}  // namespace ms::tensor
