// Counts the FLOPs and bytes of an operator of PyTorch, from the shapes that torch.profiler records. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ms::tracepp {

struct OpWork {
  double flops = 0;            // a multiply-add counts twice; attention counts the pairs that the mask leaves
  std::int64_t bytes = -1;     // inputs read once, the output written once; -1: not known
  std::string_view type = {};  // of the first operand: "c10::BFloat16"
};

// Returns whether a formula for this operator is known: "aten::mm".
bool has_formula(std::string_view op);
// Takes the values of Kineto's "Input Dims", "Input type" and "Concrete Inputs" as they are written; the last may be
// empty. nullopt: there is no formula, or the values do not suffice. Each operator counts what it does itself:
// backward operators by their own shapes.
std::optional<OpWork> op_work(std::string_view op, std::string_view dims, std::string_view types,
                              std::string_view concrete);

}  // namespace ms::tracepp
