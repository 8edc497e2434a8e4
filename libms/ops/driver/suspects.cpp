#include "driver/suspects.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "driver/findings.h"
#include "slurm/beside.h"

namespace ms::driver {
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
    for (const char* suffix : {"json", "log"}) unlink(file(node, suffix).c_str());  // of an earlier check
    try {
      const std::vector<std::string> diag{diag_, "run", "--level", std::to_string(level), "--json"};
      running_.emplace(node, Look{LongCommand::start(slurm::srun_beside({node}, diag), environment_with({}),
                                                     file(node, "json"), file(node, "status"), file(node, "log"))});
      log::info("driver", "{} is looked at: ms-diag run --level {}", node, level);
      refused_.erase(node);
    } catch (const Error& error) {
      if (refused_.insert(node).second) log::warn("driver", "{} is not looked at: {}", node, error.message());
    }
  }
}

bool Suspects::busy() const {
  return std::ranges::any_of(running_, [](const auto& entry) { return entry.second.is_wanted; });
}

void Suspects::keep(const std::function<bool(const std::string& node)>& is_wanted) {
  std::erase_if(waiting_, [&](const auto& entry) { return !is_wanted(entry.first); });
  for (auto& [node, look] : running_) {
    if (!look.is_wanted || is_wanted(node)) continue;
    look.is_wanted = false;
    look.command.signal(SIGTERM);  // srun ends its step then; SIGKILL would leave ms-diag running
    log::info("driver", "{} is no longer looked at", node);
  }
}

std::vector<Checkup> Suspects::take() {
  std::vector<Checkup> done;
  for (auto check = running_.begin(); check != running_.end();) {
    if (!check->second.command.ended()) {
      ++check;
      continue;
    }
    if (!check->second.is_wanted) {
      check = running_.erase(check);
      continue;
    }
    const auto text_of = [&](const char* suffix) {
      const std::string path = file(check->first, suffix);
      return access(path.c_str(), R_OK) == 0 ? read_file(path) : "";
    };
    const std::string output = text_of("json");
    const std::optional<std::string> found = critical_finding(output);
    // The status alone says nothing: srun ends with the same one where there is no such program.
    const bool has_program = text_of("log").find("No such file or directory") == std::string::npos;
    done.push_back({.node = check->first,
                    .well = !found,
                    .looked = document_in(output).has_value(),
                    .said = found                 ? *found
                            : document_in(output) ? "is found well"
                            : has_program         ? "was not checked: no report of ms-diag"
                                                  : "was not checked: no ms-diag"});
    check = running_.erase(check);
  }
  begin_waiting();
  return done;
}

void Suspects::stop() {
  for (const auto& [node, check] : running_) check.command.signal(SIGKILL);
  running_.clear();
  waiting_.clear();
}

}  // namespace ms::driver
