// A CPU with so many users that whoever comes to it waits for a long time.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace ms::health {

inline void move_to_busy_cpu() {
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  ::sched_setaffinity(0, sizeof first, &first);
}

class BusyCpu {
 public:
  explicit BusyCpu(int processes) {
    for (int i = 0; i < processes; ++i) {
      const pid_t process = ::fork();
      if (process == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        move_to_busy_cpu();
        for (;;) ::sched_getcpu();
      }
      if (process > 0) processes_.push_back(process);
    }
  }
  ~BusyCpu() {
    for (const pid_t process : processes_) ::kill(process, SIGKILL);
    for (const pid_t process : processes_) ::waitpid(process, nullptr, 0);
  }
  BusyCpu(const BusyCpu&) = delete;
  BusyCpu& operator=(const BusyCpu&) = delete;

 private:
  std::vector<pid_t> processes_;
};

}  // namespace ms::health
