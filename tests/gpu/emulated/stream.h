// What the emulated GPU's parts share: work of a stream, done by the stream's own thread in order.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace ms::emulated {

// nullptr is the legacy stream, which here, as for streams that do not block, waits for nobody.
void on_stream(cudaStream_t stream, std::function<void()> work);

// What the GPU says to a call of a library's, "product", "plan" or "attention": that it is broken or full
// (MS_EMULATED_GPU_FAULT). As with a driver's calls, it is not the thread's last error.
cudaError_t begin_call(const char* name);

}  // namespace ms::emulated
