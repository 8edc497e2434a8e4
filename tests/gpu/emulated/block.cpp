#include "block.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <csetjmp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace ms::emulated {
namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 10;

enum class State { ready, at_block_barrier, at_warp_barrier, done };

class Block;

// A stack that runs one thread of the kernel after the other, until one of them waits.
struct Fiber {
  Fiber() : stack(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (stack == MAP_FAILED) std::abort();
  }
  ~Fiber() { munmap(stack, kStackBytes); }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void* stack;
  ucontext_t context{};  // to begin with; then jumps, which leave the kernel alone
  jmp_buf place{};
  Here here;
  uint3 thread{};  // that it runs
  State state = State::done;
  bool begun = false;
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "emulated GPU: %s\n", what);
  std::abort();
}

class Block {
 public:
  void run(dim3 grid, uint3 block, dim3 block_dim, const std::function<void()>& kernel) {
    kernel_ = &kernel;
    next_ = 0, used_ = 0;
    threads_ = static_cast<int>(block_dim.x * block_dim.y * block_dim.z);
    gridDim = grid, blockIdx = block, blockDim = block_dim;
    slots_.assign(static_cast<std::size_t>((threads_ + kWarpSize - 1) / kWarpSize * kWarpSize) * 2, ~0ULL);
    while (next_ < threads_) start();
    while (release()) {
      for (std::size_t i = 0; i < used_; ++i) {
        if (fibers_[i]->state == State::ready) resume(*fibers_[i]);
      }
    }
  }
  Here& here() {
    if (current_ == nullptr) fail("device code outside of a kernel");
    return current_->here;
  }
  void wait(State state) {
    current_->state = state;
    if (_setjmp(current_->place) == 0) _longjmp(scheduler_, 1);
  }
  void* slot(int lane, unsigned turn) {
    const int warp = current_->here.index / kWarpSize;
    return &slots_[static_cast<std::size_t>((warp * kWarpSize + lane) * 2) + turn];
  }

 private:
  static void enter(unsigned high, unsigned low) {
    reinterpret_cast<Block*>((static_cast<std::uintptr_t>(high) << 32) | low)->run_threads();
  }
  void run_threads() {
    Fiber& me = *current_;
    while (next_ < threads_) {
      const auto index = static_cast<unsigned>(next_++);
      me.here = {.index = static_cast<int>(index)};
      me.thread = threadIdx = {index % blockDim.x, index / blockDim.x % blockDim.y, index / blockDim.x / blockDim.y};
      (*kernel_)();
    }
    me.state = State::done;
    _longjmp(scheduler_, 1);
  }
  void start() {
    if (used_ == fibers_.size()) fibers_.push_back(std::make_unique<Fiber>());
    Fiber& fiber = *fibers_[used_++];
    getcontext(&fiber.context);
    fiber.context.uc_stack = {.ss_sp = fiber.stack, .ss_flags = 0, .ss_size = kStackBytes};
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Block::enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
    fiber.begun = false;
    resume(fiber);
  }
  void resume(Fiber& fiber) {
    current_ = &fiber;
    fiber.state = State::ready;
    threadIdx = fiber.thread;
    if (_setjmp(scheduler_) == 0) {
      if (fiber.begun) _longjmp(fiber.place, 1);
      fiber.begun = true;
      setcontext(&fiber.context);
    }
    current_ = nullptr;
  }
  // Lets those go on whose barrier is complete. False when all threads have ended.
  bool release() {
    std::size_t at_block = 0, waiting = 0;
    for (std::size_t i = 0; i < used_; ++i) {
      if (fibers_[i]->state == State::done) continue;
      ++waiting;
      if (fibers_[i]->state == State::at_block_barrier) ++at_block;
    }
    if (waiting == 0) return false;
    bool any = at_block == waiting;
    if (any) {
      for (std::size_t i = 0; i < used_; ++i) {
        if (fibers_[i]->state == State::at_block_barrier) fibers_[i]->state = State::ready;
      }
    } else {
      std::vector<int> lanes(static_cast<std::size_t>(threads_ / kWarpSize + 1), 0);
      const auto warp = [](const Fiber& fiber) { return static_cast<std::size_t>(fiber.here.index / kWarpSize); };
      for (std::size_t i = 0; i < used_; ++i) {
        if (fibers_[i]->state == State::at_warp_barrier) ++lanes[warp(*fibers_[i])];
      }
      for (std::size_t i = 0; i < used_; ++i) {
        if (fibers_[i]->state == State::at_warp_barrier && lanes[warp(*fibers_[i])] == kWarpSize) {
          fibers_[i]->state = State::ready;
          any = true;
        }
      }
    }
    if (!any) fail("threads wait at a barrier that others of their block or warp do not come to");
    return true;
  }

  jmp_buf scheduler_{};
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::size_t used_ = 0;
  Fiber* current_ = nullptr;
  const std::function<void()>* kernel_ = nullptr;
  int next_ = 0, threads_ = 0;
  std::vector<unsigned long long> slots_;
};

Block& block_of_this_thread() {
  static thread_local Block block;
  return block;
}

}  // namespace

Here& here() { return block_of_this_thread().here(); }
void block_barrier() { block_of_this_thread().wait(State::at_block_barrier); }
void warp_barrier() { block_of_this_thread().wait(State::at_warp_barrier); }
void* warp_slot(int lane, unsigned turn) { return block_of_this_thread().slot(lane, turn); }

void run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel) {
  Block& here = block_of_this_thread();
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) here.run(grid, {x, y, z}, block, kernel);
    }
  }
}

}  // namespace ms::emulated
