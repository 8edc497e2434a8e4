#include "health/evidence/busy.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "base/number.h"
#include "base/sysroot.h"
#include "base/text.h"

namespace ms::health {

bool control_is_late() {
  const double end_s = monotonic_s() + kControl_s;
  const pid_t control = ::fork();
  if (control == 0) _exit(0);
  if (control < 0) return true;  // whoever asks needs a process too
  while (::waitpid(control, nullptr, WNOHANG) == 0) {
    if (monotonic_s() >= end_s) {
      ::kill(control, SIGKILL);
      ::waitpid(control, nullptr, 0);  // it is in no call that could hold it
      return true;
    }
    const timespec pause{0, 500'000};
    ::nanosleep(&pause, nullptr);
  }
  return monotonic_s() >= end_s;  // or this process was late itself
}

namespace {

CpuTime thread_time(const std::string& thread) {
  const std::string text = Sysroot().read(thread + "/schedstat", 256).value_or("");
  const std::vector<std::string> words = split(text, ' ');  // ns on a CPU, ns waiting for one, time slices
  const auto seconds = [&](std::size_t word) {
    const std::string_view ns = word < words.size() ? words[word] : std::string_view();
    return static_cast<double>(leading_number<std::int64_t>(ns).value_or(0)) * 1e-9;
  };
  const std::string stat = Sysroot().read(thread + "/stat", 4096).value_or("");
  const std::size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return {};
  const std::vector<std::string> fields = split(std::string_view(stat).substr(name_end), ' ');  // ")" state ppid ...
  constexpr std::size_t kState = 1, kUserTicks = 12;
  if (fields.size() <= kUserTicks) return {};
  const double user_s = std::strtod(fields[kUserTicks].c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return {.run_s = seconds(0), .user_s = user_s, .wait_s = seconds(1), .runnable = fields[kState] == "R"};
}

}  // namespace

CpuTime cpu_time(pid_t process) {
  const std::string threads = fmt::format("/proc/{}/task", process);
  CpuTime most;
  for (const std::string& thread : Sysroot().list(threads)) {
    const CpuTime time = thread_time(threads + "/" + thread);
    most.run_s = std::max(most.run_s, time.run_s);
    most.user_s = std::max(most.user_s, time.user_s);
    most.wait_s = std::max(most.wait_s, time.wait_s);
    most.runnable |= time.runnable;
  }
  return most;
}

bool lacked_cpu(const CpuTime& before, const CpuTime& now, double elapsed_s) {
  constexpr double kWaitShare = 0.25, kRunShare = 0.5;
  if (now.wait_s - before.wait_s >= kWaitShare * elapsed_s) return true;
  return now.runnable && now.run_s - before.run_s < kRunShare * elapsed_s;
}

bool computed(const CpuTime& before, const CpuTime& now, double elapsed_s) {
  constexpr double kShare = 0.5;
  return now.user_s - before.user_s >= kShare * elapsed_s;
}

}  // namespace ms::health
