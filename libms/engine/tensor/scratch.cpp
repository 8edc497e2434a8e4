// Working memory of ops. Large blocks are kept for later calls, as the kernel would clear fresh pages for each, and
// consist of huge pages where there are some, as the TLB covers few others.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "tensor/cpu/kernels.h"

namespace ms::tensor {
namespace {

constexpr std::size_t kLine = 64, kHugePage = std::size_t{2} << 20;

std::size_t whole(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* allocate(std::size_t alignment, std::size_t bytes) {
  void* memory = std::aligned_alloc(alignment, bytes);
  if (memory != nullptr) return memory;
  throw Error("tensor.memory", Blame::user, fmt::format("cannot allocate {} bytes of working memory for an op", bytes));
}

class Pool {
 public:
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto fit = free_.end();
    for (auto block = free_.begin(); block != free_.end(); ++block) {
      if (block->bytes >= bytes && (fit == free_.end() || block->bytes < fit->bytes)) fit = block;
    }
    if (fit == free_.end()) {
      // The free blocks are all too small, so that another size of work has begun.
      for (const Block& block : free_) std::free(block.memory);
      free_.clear();
      const std::size_t size = whole(bytes, kHugePage);
      free_.push_back({allocate(kHugePage, size), size});
      madvise(free_.back().memory, size, MADV_HUGEPAGE);  // a hint; failure costs only speed
      fit = free_.begin();
    }
    used_.push_back(*fit);
    free_.erase(fit);
    free_.reserve(free_.size() + used_.size());  // so that give() need not allocate
    return used_.back().memory;
  }
  // Returns whether the memory is of this pool.
  bool give(void* memory) noexcept {
    const std::lock_guard lock(mutex_);
    const auto block = std::ranges::find(used_, memory, &Block::memory);
    if (block == used_.end()) return false;
    free_.push_back(*block);
    used_.erase(block);
    return true;
  }

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };
  std::mutex mutex_;
  std::vector<Block> free_, used_;
};

// Smaller ones come from the C library's own lists.
#if defined(MS_ONE_ISA)
constexpr std::size_t kPooledFrom = SIZE_MAX;  // sanitizers find what is beyond a block, or used after its end
#else
constexpr std::size_t kPooledFrom = 1 << 17;
#endif

Pool& pool() {
  static auto* const kPool = new Pool;  // never destroyed: threads may end after static objects
  return *kPool;
}

}  // namespace

void* scratch_allocate(std::size_t bytes) {
  return bytes >= kPooledFrom ? pool().take(bytes) : allocate(kLine, whole(bytes + 1, kLine));  // never of size 0
}
void scratch_free(void* memory) noexcept {
  if (memory != nullptr && !pool().give(memory)) std::free(memory);
}

}  // namespace ms::tensor
