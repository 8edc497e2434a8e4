// Guards the memory of the emulated GPU against the host: if enabled, an access while the GPU is idle ends the program
// by a signal.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>

namespace ms::emulated {

// Allows accesses while work of the GPU is running.
class Guard {
 public:
  explicit Guard(bool on) : on_(on) {}
  void enter() {
    if (!on_) return;
    const std::lock_guard lock(mutex_);
    if (at_work_++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void leave() {
    if (!on_) return;
    const std::lock_guard lock(mutex_);
    if (--at_work_ == 0) protect(PROT_NONE);
  }
  void* take(std::size_t size) {
    void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    std::memset(data, 0xff, size);
    const std::lock_guard lock(mutex_);
    all_[data] = size;
    if (on_ && at_work_ == 0) mprotect(data, size, PROT_NONE);
    return data;
  }
  void free(void* data) {
    const std::lock_guard lock(mutex_);
    const auto at = all_.find(data);
    munmap(data, at->second);
    all_.erase(at);
  }

 private:
  void protect(int how) {
    for (const auto& [data, size] : all_) mprotect(data, size, how);
  }

  const bool on_;
  std::mutex mutex_;
  std::map<void*, std::size_t> all_;
  int at_work_ = 0;
};

}  // namespace ms::emulated
