// A cable that is too long: two TAP devices, eth0 in a node's network namespace and one here, and frames between them
// that arrive so much later.   usage: delay_line NETNS DEVICE DELAY_US JITTER_US   (prints "ready" when both are there)
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace {

using Time = std::chrono::steady_clock;

int make_tap(const char* name) {
  const int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0) {
    std::perror(name);
    std::exit(1);
  }
  return fd;
}

struct Frame {
  Time::time_point due;
  std::vector<char> bytes;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  // A cable waits for no CPU: on a busy machine frames would be late beyond the delay, and lost where a queue is full.
  const sched_param first{.sched_priority = 1};
  sched_setscheduler(0, SCHED_FIFO, &first);
  const int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = open((std::string("/run/netns/") + argv[1]).c_str(), O_RDONLY | O_CLOEXEC);
  if (there < 0 || setns(there, CLONE_NEWNET) != 0) return 1;
  std::array<int, 2> taps{make_tap("eth0"), -1};
  if (setns(here, CLONE_NEWNET) != 0) return 1;
  taps[1] = make_tap(argv[2]);
  std::puts("ready");
  std::fflush(stdout);

  const std::chrono::microseconds delay(std::atoi(argv[3]));
  std::uniform_int_distribution<int> jitter_us(0, std::max(0, std::atoi(argv[4])));
  std::mt19937 random(1);
  std::array<std::deque<Frame>, 2> queues;  // by the tap that they came from; in the order of their coming
  std::array<char, 65536> buffer;
  while (true) {
    Time::time_point next = Time::now() + std::chrono::seconds(1);
    for (const auto& queue : queues)
      if (!queue.empty()) next = std::min(next, queue.front().due);
    const auto wait = std::max(Time::duration(0), next - Time::now());
    const timespec time{.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(wait).count(),
                        .tv_nsec = (wait % std::chrono::seconds(1)).count()};
    std::array<pollfd, 2> polls{
        {{.fd = taps[0], .events = POLLIN, .revents = 0}, {.fd = taps[1], .events = POLLIN, .revents = 0}}};
    ppoll(polls.data(), polls.size(), &time, nullptr);
    for (std::size_t side = 0; side < 2; ++side) {
      for (ssize_t got = 0; (got = read(taps[side], buffer.data(), buffer.size())) > 0;) {
        Time::time_point due = Time::now() + delay + std::chrono::microseconds(jitter_us(random));
        if (!queues[side].empty()) due = std::max(due, queues[side].back().due);  // frames do not overtake each other
        queues[side].push_back({due, {buffer.data(), buffer.data() + got}});
      }
      while (!queues[side].empty() && queues[side].front().due <= Time::now()) {
        const Frame& frame = queues[side].front();
        const auto ignored = write(taps[1 - side], frame.bytes.data(), frame.bytes.size());
        static_cast<void>(ignored);  // a device that is down drops it, as cables do
        queues[side].pop_front();
      }
    }
  }
}
