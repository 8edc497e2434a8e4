// A block of threads on the CPU: each thread of the kernel is a fiber, all of them on the thread that runs the stream.
// Threads go on until they end or meet at a barrier, so a kernel without barriers needs one fiber. A warp
// runs ahead of the others as far as barriers let it; which one, and which lane is first, changes all the time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>

// As kernels know them; kept by whoever runs the block.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

namespace ms::emulated {

constexpr int kWarpSize = 32;

// Of the thread that is running: its number in the block, and how many shuffles it has been in.
struct Here {
  int index = 0;
  unsigned shuffles = 0;
};
Here& here();  // a bug outside of a kernel

// Meets all threads of the block that have not ended.
void block_barrier();
// Meets the warp's lanes; all 32 must be there.
void warp_barrier();
// Where lanes leave what others read: two turns, since one barrier parts a write from the next but one.
void* warp_slot(int lane, unsigned turn);  // 8 bytes

template <class T>
T shuffle_xor(T value, int mask) {
  static_assert(sizeof(T) <= 8);
  Here& me = here();
  const int lane = me.index % kWarpSize;
  const unsigned turn = me.shuffles++ % 2;
  std::memcpy(warp_slot(lane, turn), &value, sizeof value);
  warp_barrier();
  std::memcpy(&value, warp_slot(lane ^ mask, turn), sizeof value);
  return value;
}

// Runs `kernel` once for every thread of every block. A barrier that not all come to ends the program.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel);

}  // namespace ms::emulated
