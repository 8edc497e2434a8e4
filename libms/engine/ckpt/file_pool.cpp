#include "ckpt/file_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ms::ckpt {

void for_each_file(std::span<const std::int64_t> blocks, int threads,
                   const std::function<void(std::size_t, int)>& body) {
  MS_ASSERT(threads >= 1, "{} threads to read files", threads);
  std::vector<std::size_t> small;
  for (std::size_t file = 0; file < blocks.size(); ++file) {
    if (blocks[file] >= threads) {
      body(file, threads);
    } else if (blocks[file] > 0) {
      small.push_back(file);
    }
  }

  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // guards first
  std::exception_ptr first;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < small.size(); i = next++) body(small[i], 1);
    } catch (...) {
      next = small.size();
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> pool;
    for (std::size_t i = 1; i < std::min(static_cast<std::size_t>(threads), small.size()); ++i) {
      pool.emplace_back([&work] {
        pthread_setname_np(pthread_self(), "ms-ckpt-files");
        work();
      });
    }
    work();
  }
  if (first) std::rethrow_exception(first);
}

struct ProgressSum::State {
  explicit State(std::function<void(std::int64_t)> to) : report(std::move(to)) {}
  std::function<void(std::int64_t)> report;
  std::mutex mutex;  // guards sum, and what each file has said
  std::int64_t sum = 0;
};

ProgressSum::ProgressSum(std::function<void(std::int64_t)> sum) {
  if (sum) state_ = std::make_shared<State>(std::move(sum));
}

std::function<void(std::int64_t)> ProgressSum::of_file() const {
  if (!state_) return {};
  return [state = state_, said = std::make_shared<std::int64_t>(0)](std::int64_t so_far) {
    const std::lock_guard lock(state->mutex);
    if (so_far <= *said) return;  // another thread of the file came before
    state->sum += so_far - *said;
    *said = so_far;
    state->report(state->sum);
  };
}

}  // namespace ms::ckpt
