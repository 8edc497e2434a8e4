// The classes of operations: what timing tables and cluster files tell apart. Room tensor's op list says which class
// each operation has.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ms::cost {

enum class OpClass : std::uint8_t {
  matmul,
  attention,
  norm,
  activation,
  embedding,
  loss,
  elementwise,
  optimizer,
  init
};
inline constexpr int kOpClasses = 9;
inline constexpr std::array<std::string_view, kOpClasses> kOpClassNames{
    "matmul", "attention", "norm", "activation", "embedding", "loss", "elementwise", "optimizer", "init"};
constexpr std::string_view to_string(OpClass op_class) { return kOpClassNames[static_cast<std::size_t>(op_class)]; }

}  // namespace ms::cost
