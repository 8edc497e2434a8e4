// The entry points: the real world around flow.h, and the last catch before Slurm.
#include "health/act/prolog.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/print.h"
#include "base/text.h"
#include "health/act/decide.h"
#include "health/act/flow.h"
#include "health/act/load_policy.h"
#include "health/act/memory.h"
#include "health/act/prolog_time.h"
#include "health/act/site_check.h"
#include "health/checks/registry.h"

namespace ms::health {
namespace {

// How long Slurm may take: all its commands together, from the start of a World on, and one of them.
struct SlurmTime {
  double total_s, command_s;
};

constexpr std::size_t kMaxProblems = 1000;  // a policy's problems come all at once
constexpr SlurmTime kOperatorsPatience{.total_s = 60, .command_s = 10};
constexpr SlurmTime kAfterwardsPatience{.total_s = 180, .command_s = 10};

// Facility daemon, so that a site finds it where its other daemons write. The one place that knows syslog.
void to_syslog(log::Level level, const std::string& text) {
  constexpr int kPriorities[] = {LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_DEBUG};
  ::openlog("ms-diag", LOG_PID | LOG_NDELAY, LOG_DAEMON);
  ::syslog(kPriorities[static_cast<int>(level)], "%s", text.c_str());
}

// From the system, because nodes that start one job at one moment must not draw alike.
double random_fraction() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) {
    bits = static_cast<std::uint64_t>(SystemClock().wall_s() * 1e9) * 0x9E3779B97F4A7C15U;
  }
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

std::string host_name() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return host;
}

World real_world(const Policy& policy, Clock& clock, const SlurmTime& time);

// Closes all that the prolog has open, so that no process waits for it: pipes to the plugin, the lock of who decides.
void let_go_of_all() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd) ::dup2(null, fd);
  ::close_range(3, ~0U, 0);
  if (::chdir("/") != 0) _exit(1);
}

// In the child: nothing may leave it, or the prolog would go on in two processes.
[[noreturn]] void work_and_exit(const Policy& policy, const std::function<void(const World&)>& work) noexcept {
  ::closelog();  // its descriptor is ours to close
  let_go_of_all();
  if (::setsid() < 0) _exit(1);
  const pid_t grandchild = ::fork();
  if (grandchild != 0) _exit(grandchild < 0 ? 1 : 0);
  SystemClock clock;
  const World world = real_world(policy, clock, kAfterwardsPatience);
  world.attempt("afterwards", [&] { work(world); });
  _exit(0);
}

// In a grandchild with a session of its own: the plugin ends the process group of ms-diag when its time is over, and
// no process waits for a grandchild. What can still end it, and leaves the work undone, as a reboot does: a slurmd
// that is stopped by systemd with all of its cgroup, and a Slurm that ends what its prolog leaves by cgroup or by
// container; the log and the history have said by then that the drain may stand.
void do_afterwards(const Policy& policy, const std::function<void(const World&)>& work) {
  const pid_t child = ::fork();
  if (child < 0) throw Error("prolog.fork", Blame::node, fmt::format("fork: {}", errno_text(errno)));
  if (child > 0) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (status != 0) throw Error("prolog.fork", Blame::node, "no process could be made that outlives this one");
    return;
  }
  work_and_exit(policy, work);
}

World real_world(const Policy& policy, Clock& clock, const SlurmTime& time) {
  const auto slurm = std::make_shared<slurm::Commands>(slurm::CommandOptions{
      .scontrol = policy.paths.scontrol,
      .conf = policy.paths.slurm_conf,
      .deadline_s = time.command_s,
      .left_s = [&clock, end_s = clock.now_s() + time.total_s] { return std::max(0.0, end_s - clock.now_s()); }});
  return {.clock = clock,
          .random = random_fraction,
          .log = to_syslog,
          .run_checks = [&policy](const RunOptions& options) { return run_checks(passive_checks(), policy, options); },
          .slurm = slurm,
          .site_facts = [&policy, slurm] { return site_facts(policy, *slurm); },
          .host = host_name(),
          .afterwards = [&policy](const std::function<void(const World&)>& work) { do_afterwards(policy, work); }};
}

// Without a policy nothing is checked, and jobs start. That is said where operators look: in the history and to who
// listens to ms-diag notify, in the default places, since the policy's own are not known; and on standard error, which
// the plugin writes into slurmd's log.
void tell_of_no_policy(const std::string& why, const slurm::JobEnv& job) {
  const Policy defaults;
  SystemClock clock;
  const World world{.clock = clock, .random = random_fraction, .log = to_syslog, .run_checks = {}, .slurm = {}};
  if (::access(defaults.paths.state.c_str(), F_OK) == 0) {
    Memory(defaults, world, job.node)
        .remember_and_spool({.event = "no-policy", .code = "policy", .message = why, .job_id = job.job_id},
                            Memory::Tell::hourly);
  }
  print_err("no policy, nothing is checked: {}\n", why);
}

// Returns the policy; nullopt: it cannot be used, which is said.
std::optional<Policy> policy_or_said(const std::string& path, const slurm::JobEnv& job) {
  try {
    return load_policy_as_root(path);
  } catch (const Error& error) {
    const std::string why = plain_text(error.what(), kMaxProblems);
    to_syslog(log::Level::error, "nothing is done: " + why);
    tell_of_no_policy(why, job);
    return std::nullopt;
  }
}

// Whatever is thrown, the job starts.
int guarded(const std::string& policy_path, int (*flow)(const Policy&, const World&, const slurm::JobEnv&),
            const slurm::JobEnv& job) noexcept {
  try {
    SystemClock clock;
    const std::optional<Policy> policy = policy_or_said(policy_path, job);
    if (!policy) return 0;
    const SlurmTime time{.total_s = time_for_slurm_s(policy->prolog), .command_s = kSlurmCall_s};
    return flow(*policy, real_world(*policy, clock, time), job);
  } catch (const std::exception& error) {
    to_syslog(log::Level::error, plain_text(fmt::format("nothing is done: {}", error.what()), kMaxProblems));
  } catch (...) { ::syslog(LOG_DAEMON | LOG_ERR, "nothing is done: unknown exception"); }
  return 0;
}

}  // namespace

int run_prolog(const std::string& policy_path, const slurm::JobEnv& job) noexcept {
  return guarded(
      policy_path,
      [](const Policy& policy, const World& world, const slurm::JobEnv& of) { return prolog_flow(policy, of, world); },
      job);
}

int run_epilog(const std::string& policy_path, const slurm::JobEnv& job) noexcept {
  return guarded(
      policy_path,
      [](const Policy& policy, const World& world, const slurm::JobEnv& of) {
        epilog_flow(policy, of, world);
        return 0;
      },
      job);
}

int run_health(const std::string& policy_path, const std::string& node) noexcept {
  slurm::JobEnv no_job;
  no_job.node = node;
  return guarded(
      policy_path,
      [](const Policy& policy, const World& world, const slurm::JobEnv& of) {
        health_flow(policy, of, world);
        return 0;
      },
      no_job);
}

World operators_world(const Policy& policy, Clock& clock) { return real_world(policy, clock, kOperatorsPatience); }

int run_undrain(const Policy& policy, const std::string& node, bool verified) {
  SystemClock clock;
  const UndrainResult result = undrain_flow(policy, node, verified, operators_world(policy, clock));
  write_out(result.text);
  return result.status;
}

}  // namespace ms::health
