#include "diag/in_step.h"

#include <barrier>
#include <future>

#include "base/clock.h"
#include "diag/share.h"

namespace ms::diag {

void in_step(const std::vector<int>& cpus, Pace& pace, const std::function<double()>& left_s,
             const std::function<void(std::size_t thread, std::int64_t size)>& round,
             const std::function<void(std::size_t thread)>& after) {
  double begun_s = monotonic_s();
  // Called when all threads have arrived.
  const auto ended = [&]() noexcept {
    const double now_s = monotonic_s();
    pace.ended(now_s - begun_s, left_s());
    begun_s = now_s;
  };
  std::barrier barrier(static_cast<std::ptrdiff_t>(cpus.size()), ended);
  const auto work = [&](std::size_t thread) {
    const OnCpus bound({cpus[thread]});
    while (pace.more()) {
      try {
        round(thread, pace.size());
      } catch (...) {
        barrier.arrive_and_drop();  // the others need not wait for it
        throw;
      }
      barrier.arrive_and_wait();
    }
    after(thread);
  };
  std::vector<std::future<void>> threads;
  for (std::size_t i = 0; i < cpus.size(); ++i) threads.push_back(std::async(std::launch::async, work, i));
  for (auto& thread : threads) thread.get();
}

}  // namespace ms::diag
