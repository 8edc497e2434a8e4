#include "health/run/runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <exception>

#include "base/clock.h"
#include "base/text.h"
#include "health/evidence/busy.h"
#include "health/run/result_wire.h"

namespace ms::health {
namespace {

constexpr std::uint32_t kMaxMessageBytes = 1 << 20;
constexpr double kEndedGrace_s = 0.2;    // a process that closed its pipe may take so long to be gone
constexpr double kKilledGrace_s = 0.02;  // and one that was killed, unless it sleeps uninterruptibly

constexpr std::string_view kDriverHangs =
    "Nothing is known of the GPUs: their driver does not answer, so their checks are skipped, and nvidia-smi will "
    "hang, too. Look for an Xid in dmesg, which names a GPU, and write it down. If the driver hangs when you look "
    "again, cancel the jobs that use the GPUs (scancel), as they may never end, and reboot the node, even if they "
    "stay. If it hangs after the reboot, have the GPU that the Xid names tested; without an Xid, install the driver "
    "anew.";

// One lane: its checks, the process that runs them, and which one it is at.
struct LaneRun {
  Lane lane = Lane::files;
  Resources takes = 0;
  bool begun = false;
  std::vector<std::size_t> checks;  // indices
  std::size_t next = 0;             // the check that the process is at
  pid_t process = -1;
  int pipe = -1;
  std::string received;
  double started_s = 0;  // of the check it is at
  CpuTime cpu;           // before that check
  bool finished() const { return next == checks.size(); }
};

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(1);  // the parent has given us up
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

class Runner {
 public:
  Runner(const std::vector<Check>& checks, const Policy& policy, const RunOptions& options)
      : checks_(checks), policy_(policy), options_(options), end_s_(monotonic_s() + options.deadline_s) {
    results_.resize(checks.size());
    for (std::size_t i = 0; i < checks.size(); ++i) {
      MS_ASSERT(checks[i].run != nullptr, "check {} has no function", checks[i].code);
      lane_of(checks[i]).checks.push_back(i);
    }
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() {
    for (LaneRun& lane : lanes_) end_process(lane);
  }

  std::vector<Result> run() {
    begin_lanes();
    while (std::any_of(lanes_.begin(), lanes_.end(), [](const LaneRun& lane) { return !lane.finished(); })) {
      wait();
      begin_lanes();
    }
    return std::move(results_);
  }

 private:
  LaneRun& lane_of(const Check& check) {
    for (LaneRun& lane : lanes_) {
      if (lane.lane == check.lane && check.lane != Lane::active) return lane;
    }
    LaneRun& lane = lanes_.emplace_back();
    lane.lane = check.lane;
    lane.takes = check.takes;
    return lane;
  }

  void begin_lanes() {
    Resources taken = 0;
    for (const LaneRun& lane : lanes_) {
      if (lane.begun && !lane.finished()) taken |= lane.takes;
    }
    for (LaneRun& lane : lanes_) {
      if (lane.begun || (lane.takes & taken) != 0) continue;
      lane.begun = true;
      start(lane);
      if (!lane.finished()) taken |= lane.takes;
    }
  }

  double deadline_of(const Check& check) const { return check.deadline_s + (check.soaks ? options_.asked.soak_s : 0); }
  double deadline_of(const LaneRun& lane) const { return deadline_of(checks_[lane.checks[lane.next]]); }

  // From the check it is at, in a new process; if there is no time left for it, it and those behind it are skipped.
  void start(LaneRun& lane) {
    if (lane.finished()) return;
    if (monotonic_s() >= end_s_) {
      return skip_rest(lane, fmt::format("there was no time left of {}", format_duration(options_.deadline_s)));
    }
    std::array<int, 2> ends{};
    lane.received.clear();
    lane.started_s = monotonic_s();
    lane.cpu = {};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return give_up(lane, "pipe: " + errno_text(errno));
    const pid_t parent = ::getpid();
    const pid_t process = ::fork();
    if (process < 0) {
      const int error = errno;
      ::close(ends[0]);
      ::close(ends[1]);
      return give_up(lane, "fork: " + errno_text(error));
    }
    if (process == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) _exit(1);  // it was gone before it could be told
      ::setpgid(0, 0);
      ::close(ends[0]);
      run_lane(lane, ends[1]);
    }
    ::setpgid(process, process);
    ::close(ends[1]);
    lane.process = process;
    lane.pipe = ends[0];
  }

  // In the lane's process: every result is on its way before the next check begins.
  [[noreturn]] void run_lane(const LaneRun& lane, int fd) {
    const SystemClock clock;
    Evidence evidence(policy_, clock.wall_s(), options_.not_before_wall_s, options_.before, options_.asked);
    for (std::size_t i = lane.next; i < lane.checks.size(); ++i) {
      const Check& check = checks_[lane.checks[i]];
      const double before_s = clock.now_s();
      evidence.begin_check(clock, work_s(check, options_.asked, end_s_ - before_s));
      Result result;
      try {
        result = check.run(evidence);
      } catch (const NotMeasured& late) { result = not_measured(late.what()); } catch (const std::exception& error) {
        result = broken(error.what());
      }
      result.wall_s = clock.now_s() - before_s;
      const std::string bytes = encode(result);
      const auto size = static_cast<std::uint32_t>(bytes.size());
      write_all(fd, std::string(reinterpret_cast<const char*>(&size), sizeof size) + bytes);
    }
    _exit(0);
  }

  void wait() {
    std::vector<pollfd> polled;
    std::vector<LaneRun*> of;
    double next_end_s = end_s_;
    for (LaneRun& lane : lanes_) {
      if (!lane.begun || lane.finished()) continue;
      polled.push_back({lane.pipe, POLLIN, 0});
      of.push_back(&lane);
      next_end_s = std::min(next_end_s, lane.started_s + deadline_of(lane));
    }
    const double left_ms = std::max(0.0, (next_end_s - monotonic_s()) * 1000);
    const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(std::ceil(left_ms)));
    for (std::size_t i = 0; i < of.size(); ++i) {
      LaneRun& lane = *of[i];
      if (ready > 0 && polled[i].revents != 0) receive(lane);
      if (!lane.finished()) cut_if_late(lane);
    }
  }

  void receive(LaneRun& lane) {
    std::array<char, 16384> buffer;
    const ssize_t count = ::read(lane.pipe, buffer.data(), buffer.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count > 0) lane.received.append(buffer.data(), static_cast<std::size_t>(count));
    while (take_message(lane)) {}
    if (lane.finished()) return end_process(lane);
    if (count <= 0) {  // it ended in the middle of a check
      const std::string how = last_words(lane);
      deliver(lane, broken(how));
      ++lane.next;
      start(lane);
    }
  }

  bool take_message(LaneRun& lane) {
    std::uint32_t size = 0;
    if (lane.finished() || lane.received.size() < sizeof size) return false;
    std::memcpy(&size, lane.received.data(), sizeof size);
    if (size > kMaxMessageBytes || lane.received.size() < sizeof size + size) return false;
    std::optional<Result> result = decode(std::string_view(lane.received).substr(sizeof size, size));
    lane.received.erase(0, sizeof size + size);
    deliver(lane, result ? std::move(*result) : broken("its result could not be read"));
    ++lane.next;
    lane.started_s = monotonic_s();
    lane.cpu = cpu_time(lane.process);
    return true;
  }

  void cut_if_late(LaneRun& lane) {
    const Check& check = checks_[lane.checks[lane.next]];
    const double now = monotonic_s();
    const double deadline_s = deadline_of(lane);
    const bool hung = now >= lane.started_s + deadline_s;
    if (!hung && now < end_s_) return;
    const CpuTime cpu = cpu_time(lane.process);
    const bool node_late = hung && (lacked_cpu(lane.cpu, cpu, now - lane.started_s) || control_is_late());
    const bool asks_gpus = lane.lane == Lane::gpu || (check.takes & kGpus) != 0;
    const bool slow = !check.on_hang || (!asks_gpus && computed(lane.cpu, cpu, now - lane.started_s));
    end_process(lane);
    if (node_late) {
      deliver(lane, skipped(fmt::format("it was not done within {}, but this node is too busy to tell: a process that "
                                        "asks nothing was late too, or the check got no CPU",
                                        format_duration(deadline_s))));
    } else if (hung && slow) {
      deliver(lane, not_measured(fmt::format("it was not done within {}", format_duration(deadline_s))));
    } else if (hung) {
      deliver(lane, judged({{.severity = *check.on_hang,
                             .blame = lane.lane == Lane::gpu ? Blame::gpu : check.blame,
                             .entity = lane.lane == Lane::gpu ? "GPU driver" : "the check",
                             .message = fmt::format("did not answer within {}", format_duration(deadline_s)),
                             .measured = now - lane.started_s,
                             .limit = deadline_s,
                             .unit = "s",
                             .remedy = std::string(lane.lane == Lane::gpu ? kDriverHangs : check.remedy)}}));
      results_[lane.checks[lane.next]].wall_s = now - lane.started_s;
    } else {
      deliver(lane, skipped(fmt::format("it was not done when {} were over", format_duration(options_.deadline_s))));
    }
    ++lane.next;
    // All of that lane ask the same driver: each would wait for its own deadline, and accuse something else.
    if (hung && !node_late && lane.lane == Lane::gpu)
      skip_rest(lane, "the driver had not answered " + std::string(check.code));
    start(lane);
  }

  void skip_rest(LaneRun& lane, const std::string& why) {
    for (; !lane.finished(); ++lane.next) deliver(lane, skipped(why));
  }

  // The result of the check the lane is at, completed from its row.
  void deliver(LaneRun& lane, Result result) {
    const std::size_t index = lane.checks[lane.next];
    const Check& check = checks_[index];
    result.code = check.code;
    for (Finding& finding : result.findings) {
      finding.code = check.code;
      if (finding.blame == Blame::bug) finding.blame = check.blame;
      if (finding.remedy.empty()) finding.remedy = check.remedy;
    }
    result.level = check.level;
    results_[index] = std::move(result);
    if (options_.ended) options_.ended(results_[index]);
  }

  void give_up(LaneRun& lane, const std::string& why) {
    for (; !lane.finished(); ++lane.next) deliver(lane, broken(why));
  }

  // Kills what is left of it, grandchildren too. What does not die (uninterruptible sleep) is left behind.
  void end_process(LaneRun& lane) {
    if (lane.process < 0) return;
    ::kill(-lane.process, SIGKILL);
    ::close(lane.pipe);
    reap(lane.process, kKilledGrace_s);
    lane.process = -1;
    lane.pipe = -1;
  }

  // Its wait status; nullopt: it is still there.
  static std::optional<int> reap(pid_t process, double patience_s) {
    for (const double end_s = monotonic_s() + patience_s;;) {
      int status = 0;
      if (::waitpid(process, &status, WNOHANG) == process) return status;
      if (monotonic_s() >= end_s) return std::nullopt;
      const timespec pause{0, 200'000};
      ::nanosleep(&pause, nullptr);
    }
  }

  std::string last_words(LaneRun& lane) {
    const std::optional<int> status = reap(lane.process, kEndedGrace_s);
    std::string how = "the check ended without a result";
    if (status && WIFSIGNALED(*status)) {
      how = fmt::format("the check was killed by signal {} ({})", WTERMSIG(*status), strsignal(WTERMSIG(*status)));
    } else if (status) {
      how = fmt::format("the check ended with status {} and no result", WEXITSTATUS(*status));
    }
    end_process(lane);
    return how;
  }

  const std::vector<Check>& checks_;
  const Policy& policy_;
  const RunOptions& options_;
  const double end_s_;
  std::vector<Result> results_;
  std::vector<LaneRun> lanes_;
};

}  // namespace

double work_s(const Check& check, const Asked& asked, double all_s) {
  constexpr double kKept = 0.2;
  const double own_s = check.deadline_s + (check.soaks ? asked.soak_s : 0);
  return std::min(own_s, all_s) - kKept * std::min(check.deadline_s, all_s);
}

std::vector<Result> run_checks(const std::vector<Check>& checks, const Policy& policy, const RunOptions& options) {
  return Runner(checks, policy, options).run();
}

}  // namespace ms::health
