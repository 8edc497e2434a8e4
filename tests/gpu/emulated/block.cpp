#include "block.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <csetjmp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
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
  ucontext_t context{};  // for the first start of all; later switches are jumps without system calls
  jmp_buf place{};
  Here here;
  uint3 thread{};  // the kernel thread that it runs
  State state = State::done;
  bool has_place = false;
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "emulated GPU: %s\n", what);
  std::abort();
}

// Tells whether to run from the last thread to the first. A GPU defines no order between barriers: a changing order
// exposes code that depends on it.
bool backward() {
  static std::atomic<std::uint64_t> asked = 0;
  return std::popcount(++asked * 0x9E3779B97F4A7C15U) % 2 == 1;
}

class Block {
 public:
  void run(dim3 grid, uint3 block, dim3 block_dim, const std::function<void()>& kernel) {
    kernel_ = &kernel;
    used_ = 0;
    const int threads = static_cast<int>(block_dim.x * block_dim.y * block_dim.z);
    gridDim = grid, blockIdx = block, blockDim = block_dim;
    const int warps = (threads + kWarpSize - 1) / kWarpSize;
    slots_.assign(static_cast<std::size_t>(warps * kWarpSize) * 2, ~0ULL);
    warps_.clear();
    const bool turned = backward();
    for (int i = 0; i < warps; ++i) {
      const int first = (turned ? warps - 1 - i : i) * kWarpSize;
      start_warp(first, std::min(first + kWarpSize, threads));
    }
    while (release()) {
      const bool last_first = backward();
      for (std::size_t i = 0; i < warps_.size(); ++i) resume(warps_[last_first ? warps_.size() - 1 - i : i]);
    }
  }
  Here& here() {
    if (current_ == nullptr) fail("device code outside of a kernel");
    return current_->here;
  }
  const Here* running() const { return current_ != nullptr && current_->here.in_kernel ? &current_->here : nullptr; }
  // Leaves the running fiber in that state, until it is resumed.
  void wait(State state) {
    current_->state = state;
    current_->has_place = true;
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
  // A fiber outlives its block: the next one that it is started for resumes it.
  [[noreturn]] void run_threads() {
    Fiber& me = *current_;
    while (true) {
      while (next_ != end_) {
        const auto index = static_cast<unsigned>(next_);
        next_ += step_;
        me.here = {.index = static_cast<int>(index)};
        me.thread = threadIdx = {index % blockDim.x, index / blockDim.x % blockDim.y, index / blockDim.x / blockDim.y};
        (*kernel_)();
      }
      wait(State::done);
    }
  }
  // The fibers of a warp.
  struct Warp {
    std::size_t begin, end;
  };
  void start_warp(int first, int end) {
    const bool last_first = backward();
    next_ = last_first ? end - 1 : first, end_ = last_first ? first - 1 : end, step_ = last_first ? -1 : 1;
    const std::size_t begin = used_;
    while (next_ != end_) start();
    warps_.push_back({begin, used_});
    resume(warps_.back());
  }
  // Runs a warp until its threads wait for the block, or for lanes that have not arrived; other warps stay where they
  // are.
  void resume(const Warp& warp) {
    for (bool together = true; together;) {
      const bool last_first = backward();
      int waiting = 0;
      for (std::size_t i = warp.begin; i < warp.end; ++i) {
        Fiber& fiber = *fibers_[last_first ? warp.end - 1 - (i - warp.begin) : i];
        if (fiber.state == State::ready) resume(fiber);
        if (fiber.state == State::at_warp_barrier) ++waiting;
      }
      together = waiting == kWarpSize;
      for (std::size_t i = warp.begin; together && i < warp.end; ++i) fibers_[i]->state = State::ready;
    }
  }
  void start() {
    if (used_ == fibers_.size()) {
      Fiber& fiber = *fibers_.emplace_back(std::make_unique<Fiber>());
      getcontext(&fiber.context);
      fiber.context.uc_stack = {.ss_sp = fiber.stack, .ss_flags = 0, .ss_size = kStackBytes};
      const auto self = reinterpret_cast<std::uintptr_t>(this);
      makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Block::enter), 2, static_cast<unsigned>(self >> 32),
                  static_cast<unsigned>(self));
    }
    resume(*fibers_[used_++]);
  }
  void resume(Fiber& fiber) {
    current_ = &fiber;
    fiber.state = State::ready;
    threadIdx = fiber.thread;
    if (_setjmp(scheduler_) == 0) {
      if (fiber.has_place) _longjmp(fiber.place, 1);
      setcontext(&fiber.context);
    }
    current_ = nullptr;
  }
  // Resumes everything at the block's barrier. Returns false when all threads have ended.
  bool release() {
    bool any = false;
    for (std::size_t i = 0; i < used_; ++i) {
      Fiber& fiber = *fibers_[i];
      if (fiber.state == State::done) continue;
      if (fiber.state != State::at_block_barrier)
        fail("threads wait at a barrier that others of their block or warp do not come to");
      fiber.state = State::ready;
      any = true;
    }
    return any;
  }

  jmp_buf scheduler_{};
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::size_t used_ = 0;
  Fiber* current_ = nullptr;
  const std::function<void()>* kernel_ = nullptr;
  std::vector<Warp> warps_;
  int next_ = 0, end_ = 0, step_ = 1;  // threads of a warp that have not started
  std::vector<unsigned long long> slots_;
};

thread_local std::int64_t launches = 0;

Block& block_of_this_thread() {
  static thread_local Block block;
  return block;
}

}  // namespace

void enter_kernel() { block_of_this_thread().here().in_kernel = true; }
void leave_kernel() { block_of_this_thread().here().in_kernel = false; }
const Here* running() { return block_of_this_thread().running(); }
std::int64_t number_of_launch() { return launches; }

void block_barrier() {
  ++block_of_this_thread().here().barriers;
  block_of_this_thread().wait(State::at_block_barrier);
}
// There are two turns of slots, since one barrier separates a write from the next but one.
void exchange(void* value, std::size_t bytes, int mask) {
  Block& block = block_of_this_thread();
  Here& me = block.here();
  const int lane = me.index % kWarpSize;
  const unsigned turn = me.shuffles++ % 2;
  std::memcpy(block.slot(lane, turn), value, bytes);
  block.wait(State::at_warp_barrier);
  std::memcpy(value, block.slot(lane ^ mask, turn), bytes);
}
unsigned atomic_max(unsigned* at, unsigned value) {  // blocks of a grid run one after the other
  return std::exchange(*at, std::max(*at, value));
}

void run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel) {
  ++launches;
  Block& here = block_of_this_thread();
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  const bool turned = backward();
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t at = turned ? blocks - 1 - i : i;
    const auto x = static_cast<unsigned>(at % grid.x), y = static_cast<unsigned>(at / grid.x % grid.y),
               z = static_cast<unsigned>(at / grid.x / grid.y);
    here.run(grid, {x, y, z}, block, kernel);
  }
}

}  // namespace ms::emulated
