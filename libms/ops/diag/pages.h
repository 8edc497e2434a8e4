// Memory whose pages are the kernel's business until they are touched: then they are those of the toucher's node.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <span>

#include "base/error.h"
#include "base/text.h"

namespace ms::diag {

class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED) {
      throw Error(
          "diag.memory", Blame::node,
          fmt::format("cannot have {} of memory: {}", format_size(static_cast<double>(bytes)), errno_text(errno)));
    }
    ::madvise(data_, bytes, MADV_HUGEPAGE);  // only faster
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  template <class T>
  std::span<T> as() const {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace ms::diag
