// Finds the fastest of several variants of a computation on the GPU.
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace ms::tensor {

// Times variants [0, count) of a computation: launch(i) issues variant i on the stream, or returns false to exclude it.
// The variants take turns, so that a changing clock affects all alike. Returns the variant with the least median, but
// the first one, which is the library's own choice, unless another is at least 1 % faster; -1 if all are excluded.
// Blocks. Throws Error("cuda.*").
int autotune(int count, cudaStream_t stream, const std::function<bool(int)>& launch);

}  // namespace ms::tensor
