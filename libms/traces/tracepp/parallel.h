// Analyses ranks in parallel: a few threads, each with a block of neighbouring ranks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <future>
#include <thread>
#include <vector>

namespace ms::tracepp {

// Calls body(begin, end) for blocks that together are [0, count), on up to as many threads as the machine has cores. An
// exception of a body is rethrown here once all are done. Bodies must write to separate places.
template <typename Body>
void in_blocks(std::size_t count, const Body& body) {
  constexpr std::size_t kBlocksAThread = 8;  // blocks are not equally long, nor cores equally fast
  const std::size_t threads = std::min<std::size_t>(count, std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
  if (threads <= 1) {
    if (count > 0) body(std::size_t{0}, count);
    return;
  }
  const std::size_t blocks = std::min(count, threads * kBlocksAThread);
  std::atomic<std::size_t> next{0};
  std::vector<std::future<void>> running;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    running.push_back(std::async(std::launch::async, [&] {
      for (std::size_t block = next++; block < blocks; block = next++)
        body(block * count / blocks, (block + 1) * count / blocks);
    }));
  }
  for (const std::future<void>& one : running) one.wait();
  for (std::future<void>& one : running) one.get();
}

}  // namespace ms::tracepp
