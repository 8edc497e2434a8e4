// Times heartbeats as ms-train sends them at every step: beat_cost SOCKET BEATS sends that many, a millisecond apart,
// and prints the mean, the median and the 99th percentile of the microseconds that each took its thread. beat_cost.sh
// runs it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "watch/beat.h"

int main(int argc, char** argv) {
  const int beats = argc == 3 ? std::atoi(argv[2]) : 0;
  if (beats <= 0) {
    fmt::print(stderr, "usage: beat_cost SOCKET BEATS\n");
    return 2;
  }
  const ms::watch::Heartbeat heartbeat(argv[1]);
  std::vector<double> took_us;
  for (int step = 0; step < beats; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto begin = std::chrono::steady_clock::now();
    heartbeat.send(
        {.rank = 0,
         .step = step,
         .section = "step",
         .numbers = {{"loss", 2.4183}, {"grad_norm", 0.7312}, {"step_s", 0.4512}, {"tokens_per_s", 61432.5}}});
    took_us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  const double mean_us = std::accumulate(took_us.begin(), took_us.end(), 0.0) / beats;
  std::ranges::sort(took_us);
  const auto at = [&](double share) { return took_us[static_cast<std::size_t>(share * (beats - 1))]; };
  fmt::print("{:.2f} {:.2f} {:.2f}\n", mean_us, at(0.5), at(0.99));
  return 0;
}
