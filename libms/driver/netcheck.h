// Looks at the network between suspects with ms-netcheck, in the background, and tells which nodes it finds at fault.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/command.h"

namespace ms::driver {

struct NetworkFault {
  std::string node;
  std::string why;
};

// Reads the nodes that "ms-netcheck locate --json" finds at fault by themselves, by a symptom that can stop a run:
// packets that are lost, large ones that do not pass, a link that flaps. A link between two nodes accuses neither.
// nullopt: there is no such document, so nothing was measured. Pure.
std::optional<std::vector<NetworkFault>> network_faults(std::string_view output);

class NetworkCheck {
 public:
  // Fewer nodes than these cannot be told from each other.
  static constexpr std::size_t kLeastNodes = 3;

  // `program`: ms-netcheck; `dir`: for its output.
  NetworkCheck(std::string program, std::string dir) : program_(std::move(program)), dir_(std::move(dir)) {}

  // Begins, unless one runs.
  void begin(const std::vector<std::string>& nodes, double now_s);
  bool busy() const { return command_.has_value(); }
  struct Result {
    std::vector<std::string> nodes;  // that were looked at
    std::optional<std::vector<NetworkFault>> faults;
  };
  // Returns its result once it has ended or its time is up.
  std::optional<Result> take(double now_s);
  void stop();

 private:
  std::string program_, dir_;
  std::optional<LongCommand> command_;
  std::vector<std::string> nodes_;
  double began_s_ = 0;
};

}  // namespace ms::driver
