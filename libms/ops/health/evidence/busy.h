// Tells a node that is too busy from a thing that does not answer: users may start as many processes as they like, and
// then whatever asks is late. Used wherever a deadline leads to a finding.
#pragma once

#include <sys/types.h>

namespace ms::health {

// The CPU time of a process since it began: of the thread that ran longest, and of the one that waited longest, since
// the main thread of a check may only wait for others. Where the kernel does not say, all is 0.
struct CpuTime {
  double run_s = 0;
  double user_s = 0;      // outside the kernel
  double wait_s = 0;      // for a CPU, up to when it last got one
  bool runnable = false;  // it runs, or waits for a CPU now
};
CpuTime cpu_time(pid_t process);

// Whether the lack of a CPU explains why a process is late, `elapsed_s` after `before`: it waited for one for a quarter
// of that time, or it could run and did not for half of it. One that spins is not excused.
bool lacked_cpu(const CpuTime& before, const CpuTime& now, double elapsed_s);

// Whether a process is late because it computed outside the kernel for half of the time: what it asked, if it asked at
// all, has answered. A library of a driver may wait like that, too.
bool computed(const CpuTime& before, const CpuTime& now, double elapsed_s);

// Whether a control child, which asks nothing, does not end within kControl_s either.
inline constexpr double kControl_s = 0.1;
bool control_is_late();

}  // namespace ms::health
