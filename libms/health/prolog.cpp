// The entry points: the real world around flow.h, and the last catch before Slurm.
#include "health/prolog.h"

#include <sys/random.h>
#include <syslog.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "health/decide.h"
#include "health/flow.h"

namespace ms::health {
namespace {

constexpr std::size_t kMaxLine = 1000;  // a policy's problems come all at once

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

std::vector<Result> run_level_1(const Policy& policy, const RunOptions& options) {
  std::vector<Check> checks;
  std::copy_if(all_checks().begin(), all_checks().end(), std::back_inserter(checks),
               [](const Check& check) { return check.level == 1 && check.run != nullptr; });
  return run_checks(checks, policy, options);
}

World real_world(const Policy& policy, Clock& clock) {
  return {.clock = clock,
          .random = random_fraction,
          .log = to_syslog,
          .run_checks = [&policy](const RunOptions& options) { return run_level_1(policy, options); },
          .slurm = slurm_calls(policy, clock)};
}

// Whatever is thrown, the job starts.
int guarded(const std::string& policy_path, int (*flow)(const Policy&, const World&, const slurm::JobEnv&),
            const slurm::JobEnv& job) noexcept {
  try {
    SystemClock clock;
    const Policy policy = load_policy_as_root(policy_path);
    return flow(policy, real_world(policy, clock), job);
  } catch (const std::exception& error) {
    to_syslog(log::Level::error, plain_text(fmt::format("nothing is done: {}", error.what()), kMaxLine));
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

int run_undrain(const Policy& policy, const std::string& node, bool verified) {
  SystemClock clock;
  const UndrainResult result = undrain_flow(policy, node, verified, real_world(policy, clock));
  fmt::print("{}", result.text);
  return result.status;
}

}  // namespace ms::health
