// Interprets the names of kernels of GPUs: whether they use tensor cores, and a name short enough to read. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ms::tracepp {

// Whether a kernel runs on the units for matrix multiplication: tensor cores, on AMD MFMA. `unknown`: its name does not
// tell.
enum class TensorCores : std::uint8_t { unknown, used, not_used };
TensorCores tensor_cores_of(std::string_view kernel);

// "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, ...>(int, ...)" ->
// "vectorized_elementwise_kernel<AddFunctor>": without types, namespaces and arguments. Of templates only what tells
// the operation. Names of several kernels may become equal.
std::string short_kernel_name(std::string_view kernel);

}  // namespace ms::tracepp
