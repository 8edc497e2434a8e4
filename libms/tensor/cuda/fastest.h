// Which of several ways to compute the same thing takes least time on the GPU.
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace ms::tensor {

// Lets `launch(i)` issue way i of [0, count) on the stream, in turns, so that a clock that changes is the same for all;
// false: that way is not taken. The way whose median is least; the first, which is the library's own choice, unless
// another takes at least a hundredth less. Blocks. Throws Error("cuda.*"); -1 where no way is taken.
int fastest(int count, cudaStream_t stream, const std::function<bool(int)>& launch);

}  // namespace ms::tensor
