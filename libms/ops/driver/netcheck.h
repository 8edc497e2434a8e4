// Looks at the network between suspects with ms-netcheck, in the background, and tells which nodes it finds at fault.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "driver/command.h"

namespace ms::driver {

struct NetworkFault {
  std::string node;
  std::string why;
};

struct NetworkFound {
  std::vector<NetworkFault> faults;  // nodes that are at fault by themselves
  std::set<std::string> clear;       // nodes that were measured, and of which nothing of that kind was seen
};

// Reads what "ms-netcheck locate --json" finds of symptoms that can stop a run: packets that are lost, large ones that
// do not pass, a link that flaps. A link between two nodes accuses neither and clears neither, nor does silence.
// nullopt: there is no such document, so nothing was measured. Pure.
std::optional<NetworkFound> network_found(std::string_view output);

class NetworkCheck {
 public:
  // Fewer nodes than these cannot be told from each other. Two can still be cleared, one not even that.
  static constexpr std::size_t kToldApart = 3, kLeastNodes = 2;
  static constexpr double kAsFastAsItGoes = 0;

  // `program`: ms-netcheck; `dir`: for its output.
  NetworkCheck(std::string program, std::string dir) : program_(std::move(program)), dir_(std::move(dir)) {}

  // Begins, unless one runs. `max_gbps`: of each stream; one has at most 16 MiB.
  void begin(const std::vector<std::string>& nodes, double max_gbps, double now_s);
  bool busy() const { return command_.has_value(); }
  bool looks_at(const std::string& node) const;
  struct Result {
    std::vector<std::string> nodes;  // that were looked at
    std::optional<NetworkFound> found;
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
