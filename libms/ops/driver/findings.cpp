#include "driver/findings.h"

#include <chrono>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "driver/command.h"

namespace ms::driver {
namespace {

constexpr double kLookMost_s = 20;

}  // namespace

std::optional<std::string> critical_finding(std::string_view output) {
  const std::optional<Json> json = document_in(output);
  if (!json) return std::nullopt;
  try {
    std::optional<std::string> found;
    for (const Json& finding : json->at("findings")) {
      if (finding.get<std::string>("severity") != "critical") continue;
      found = plain_text(fmt::format("{} {}: {}", finding.get<std::string>("code"), finding.get<std::string>("entity"),
                                     finding.get<std::string>("message")),
                         200);
    }
    return found;
  } catch (const JsonError&) { return std::nullopt; }
}

NodeHealth::NodeHealth(std::string diag, double every_s) : diag_(std::move(diag)), every_s_(every_s) {
  if (every_s_ > 0) thread_ = std::jthread([this](const std::stop_token& stop) { look(stop); });
}

std::string NodeHealth::finding() {
  const std::lock_guard lock(mutex_);
  return finding_;
}

void NodeHealth::look(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, stop, std::chrono::duration<double>(every_s_), [&] { return stop.stop_requested(); })) {
    lock.unlock();
    std::string found;
    try {
      found =
          critical_finding(run_subprocess({diag_, "run", "--level", "1", "--json"}, {.deadline_s = kLookMost_s}).out)
              .value_or("");
    } catch (const Error& error) { log::debug("driver", "this node is not looked at: {}", error.message()); }
    lock.lock();
    finding_ = std::move(found);
  }
}

}  // namespace ms::driver
