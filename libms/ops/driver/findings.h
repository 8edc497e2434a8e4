// Findings of ms-diag on a node: read from its report, and looked for on an agent's own node while the run trains.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace ms::driver {

// Reads the last critical finding of what "ms-diag run --json" prints, whatever else is in the output: "gpu.ecc gpu 3:
// 4 uncorrectable errors". nullopt: nothing is critical, or nothing was looked at. Pure.
std::optional<std::string> critical_finding(std::string_view output);

// Has ms-diag look at this node again and again, in a thread of its own. Level 1 takes some 40 ms of one processor.
class NodeHealth {
 public:
  // `diag`: the program; `every_s`: between two looks, 0: none.
  NodeHealth(std::string diag, double every_s);

  // Returns what the last look found; empty: nothing critical.
  std::string finding();

 private:
  void look(const std::stop_token& stop);

  const std::string diag_;
  const double every_s_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string finding_;
  std::jthread thread_;
};

}  // namespace ms::driver
