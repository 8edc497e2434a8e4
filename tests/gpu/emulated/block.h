// A block of threads on the CPU: each thread of the kernel is a fiber, and all fibers run on the stream's thread. A
// fiber runs until it ends or reaches a barrier, so a kernel without barriers needs only one. A warp runs ahead of the
// others as far as barriers allow; which warp and which lane come first changes all the time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

// CUDA's built-in variables, set by the code that runs the block.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

namespace ms::emulated {

constexpr int kWarpSize = 32;

// State of the running thread: its number in the block, and how many shuffles and barriers it has passed.
struct Here {
  int index = 0;
  unsigned shuffles = 0, barriers = 0;
  bool in_kernel = false;  // between enter_kernel() and leave_kernel()
};
// What surrounds a kernel calls these; running() is null outside of them.
void enter_kernel();
void leave_kernel();
const Here* running();
std::int64_t number_of_launch();  // of this stream's thread

// Waits for all threads of the block that have not ended.
void block_barrier();
// Replaces a value of at most 8 bytes by that of the lane whose number differs in the bits of `mask`. All 32 lanes of
// the warp must arrive.
void exchange(void* value, std::size_t bytes, int mask);

template <class T>
T shuffle_xor(T value, int mask) {
  static_assert(sizeof(T) <= 8);
  exchange(&value, sizeof value, mask);
  return value;
}

unsigned atomic_max(unsigned* at, unsigned value);

// Runs `kernel` once for every thread of every block. A barrier that not all threads reach ends the program.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel);

}  // namespace ms::emulated
