// A block of threads on the CPU: each thread of the kernel is a fiber, and all fibers run on the stream's thread. A
// fiber runs until it ends or reaches a barrier, so a kernel without barriers needs only one. A warp runs ahead of the
// others as far as barriers allow; which warp and which lane come first changes all the time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>

// CUDA's built-in variables, set by the code that runs the block.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

namespace ms::emulated {

constexpr int kWarpSize = 32;

// State of the running thread: its number in the block, and how many shuffles it has executed.
struct Here {
  int index = 0;
  unsigned shuffles = 0;
};
Here& here();  // call inside a kernel only

// Waits for all threads of the block that have not ended.
void block_barrier();
// Waits for the warp's lanes; all 32 must arrive.
void warp_barrier();
// Slots through which lanes exchange values. There are two turns, since one barrier separates a write from the next but
// one.
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

// Runs `kernel` once for every thread of every block. A barrier that not all threads reach ends the program.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel);

}  // namespace ms::emulated
