// Shared by the emulated GPU's parts: work of a stream, run in order by the stream's own thread.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace ms::emulated {

// nullptr is the legacy stream, which here waits for no other stream, as if all streams were non-blocking.
void on_stream(cudaStream_t stream, std::function<void()> work);

// Returns the GPU's status for a call of a library, "matmul", "plan" or "attention": that it is broken or full
// (MS_EMULATED_GPU_FAULT). As with driver calls, it does not become the thread's last error.
cudaError_t begin_call(const char* name);

}  // namespace ms::emulated
