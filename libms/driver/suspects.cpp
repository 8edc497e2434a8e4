#include "driver/suspects.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "driver/launch.h"

namespace ms::driver {
namespace {

constexpr int kCritical = 2;  // ms-diag's exit status; 3 is that it could not look

}  // namespace

std::string Suspects::file(const std::string& node, const char* suffix) const {
  return fmt::format("{}/check-{}.{}", dir_, node, suffix);
}

void Suspects::look(const std::string& node, int level) {
  const bool waits = std::ranges::any_of(waiting_, [&](const auto& entry) { return entry.first == node; });
  if (running_.contains(node) || waits) return;
  waiting_.emplace_back(node, level);
  begin_waiting();
}

void Suspects::begin_waiting() {
  while (!waiting_.empty() && running_.size() < kAtATime) {
    const auto [node, level] = waiting_.front();
    waiting_.pop_front();
    unlink(file(node, "log").c_str());  // of an earlier check
    try {
      running_.emplace(
          node, LongCommand::start(srun_beside({node}, {diag_, "run", "--level", std::to_string(level), "--verbose"}),
                                   environment_with({}), file(node, "log"), file(node, "status")));
      log::info("driver", "{} is looked at: ms-diag run --level {}", node, level);
    } catch (const Error& error) { log::warn("driver", "{} is not looked at: {}", node, error.message()); }
  }
}

std::vector<Checkup> Suspects::take() {
  std::vector<Checkup> done;
  for (auto check = running_.begin(); check != running_.end();) {
    if (!check->second.ended()) {
      ++check;
      continue;
    }
    Checkup checkup{.node = check->first, .well = true, .said = ""};
    for (const std::string& line : Tail(file(check->first, "log"), 0).lines(true)) {
      if (line.starts_with("critical ")) checkup.said = plain_text(line, 200);
    }
    // srun ends with the same status where there is no such program.
    checkup.well = check->second.status() != kCritical || checkup.said.empty();
    done.push_back(std::move(checkup));
    check = running_.erase(check);
  }
  begin_waiting();
  return done;
}

void Suspects::stop() {
  for (const auto& [node, check] : running_) check.signal(SIGKILL);
  running_.clear();
  waiting_.clear();
}

}  // namespace ms::driver
