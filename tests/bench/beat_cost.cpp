// Times heartbeats as ms-train sends them at every step, to a listener that reads each at once: beat_cost BEATS sends
// that many, a millisecond apart. Prints the mean, the median and the 99th percentile of the microseconds that each
// took its thread, the microseconds of a processor that the listener spent on each, and how many it heard. beat_cost.sh
// runs it.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/handle.h"
#include "watch/beat.h"

namespace {

// Hears beats on a socket until it is told to stop.
class Listener {
 public:
  explicit Listener(const std::string& path) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strncpy(at.sun_path, path.c_str(), sizeof at.sun_path - 1);
    if (bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) std::perror("bind"), std::exit(1);
    thread_ = std::thread([this] { hear(); });
  }
  ~Listener() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int heard() const { return heard_; }
  double processor_s() const { return processor_s_; }

 private:
  void hear() {
    std::array<char, ms::watch::kMaxBeatBytes> text{};
    while (!stop_) {
      pollfd ready{.fd = fd_.get(), .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 50) <= 0) continue;
      const ssize_t size = recv(fd_.get(), text.data(), text.size(), 0);
      if (size > 0 && ms::watch::parse_beat({text.data(), static_cast<std::size_t>(size)})) ++heard_;
    }
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    processor_s_ = static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
  }

  ms::UniqueFd fd_;
  std::atomic<bool> stop_{false};
  int heard_ = 0;  // by the thread; read after stop()
  double processor_s_ = 0;
  std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  const int beats = argc == 2 ? std::atoi(argv[1]) : 0;
  if (beats <= 0) {
    fmt::print(stderr, "usage: beat_cost BEATS\n");
    return 2;
  }
  const std::string path = fmt::format("/tmp/ms-beat-cost-{}", getpid());
  Listener listener(path);
  const ms::watch::Heartbeat heartbeat(path.c_str());
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
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  listener.stop();
  unlink(path.c_str());
  const double mean_us = std::accumulate(took_us.begin(), took_us.end(), 0.0) / beats;
  std::ranges::sort(took_us);
  const auto at = [&](double share) { return took_us[static_cast<std::size_t>(share * (beats - 1))]; };
  fmt::print("{:.2f} {:.2f} {:.2f} {:.2f} {}\n", mean_us, at(0.5), at(0.99),
             1e6 * listener.processor_s() / std::max(listener.heard(), 1), listener.heard());
  return 0;
}
