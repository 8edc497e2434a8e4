// An all_to_all over NCCL, which takes the sizes of transfers from the host.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <vector>

#include "comm/row_pieces.h"
#include "tensor/cuda/cuda_check.h"

namespace ms::comm {

// Issues the request of member `me` of `members`. The host waits until the stream has the offsets.
inline ncclResult_t exchange_rows(const Request& request, int me, int members, ncclComm_t comm, cudaStream_t stream) {
  std::vector<std::int32_t> offsets(static_cast<std::size_t>(request.offsets.numel()));
  tensor::check(cudaMemcpyAsync(offsets.data(), request.offsets.data,
                                static_cast<std::size_t>(request.offsets.size_bytes()), cudaMemcpyDeviceToHost, stream),
                "copying from the GPU");
  tensor::check(cudaStreamSynchronize(stream), "waiting for the offsets of experts");
  each_piece(request, offsets.data(), members, me, me, [&](std::int64_t to, std::int64_t from, std::int64_t bytes) {
    tensor::check(cudaMemcpyAsync(request.out.data + to, request.in.data + from, static_cast<std::size_t>(bytes),
                                  cudaMemcpyDeviceToDevice, stream),
                  "copying rows of experts");
  });
  ncclResult_t result = ncclGroupStart();
  const auto note = [&](ncclResult_t code) {
    if (result == ncclSuccess) result = code;
  };
  for (int k = 0; k < members; ++k) {
    if (k == me) continue;
    each_piece(request, offsets.data(), members, me, k, [&](std::int64_t, std::int64_t from, std::int64_t bytes) {
      note(ncclSend(request.in.data + from, static_cast<std::size_t>(bytes), ncclUint8, k, comm, stream));
    });
    each_piece(request, offsets.data(), members, k, me, [&](std::int64_t to, std::int64_t, std::int64_t bytes) {
      note(ncclRecv(request.out.data + to, static_cast<std::size_t>(bytes), ncclUint8, k, comm, stream));
    });
  }
  note(ncclGroupEnd());
  return result;
}

}  // namespace ms::comm
