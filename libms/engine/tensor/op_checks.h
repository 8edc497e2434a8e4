// Checks the shapes and types that the op list requires (ops.h). What an engine issues is a function of its
// configuration, so a violation is a bug of ours: MS_ASSERT. Every device calls this before it computes.
#pragma once

#include "tensor/ops.h"

namespace ms::tensor {

void check_op(const Matmul& op);
void check_op(const GroupedMatmul& op);
void check_op(const Op& op);

}  // namespace ms::tensor
