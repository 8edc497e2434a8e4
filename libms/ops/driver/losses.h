// Which node's TCP connections lose packets, by what the kernels of all nodes have sent again in the last seconds. The
// evidence is there before anything is measured, and is that of the run's own traffic. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/wire.h"

namespace ms::driver {

struct LossyNode {
  std::string node;
  std::string why;
};

class Losses {
 public:
  // A node is accused by at least so many segments that were sent again, in so many looks (of TcpLosses) to or from one
  // other node, and by so many other nodes; a pause of the node alone does not do that.
  static constexpr std::int64_t kLeastAgain = 10;
  static constexpr int kLeastLooks = 3;
  static constexpr std::size_t kLeastPeers = 2;
  // They are so large a share of what it sends and is sent; between all others the share is so many times smaller, and
  // they did send something.
  static constexpr double kShare = 0.05, kTimes = 5;
  static constexpr std::int64_t kLeastRest = 20;

  void address(const std::string& node, const std::string& address) { node_of_[address] = node; }
  void hear(const std::string& node, const Report& report);
  // The one node of these whose connections lose packets; nullopt: none, or more than one could be it.
  std::optional<LossyNode> lossy(const std::vector<std::string>& nodes) const;

 private:
  struct Sent {
    std::int64_t segments = 0;
    std::map<std::string, net::PeerLoss> lossy;  // by node
  };
  std::map<std::string, std::string> node_of_;  // by address
  std::map<std::string, Sent> sent_;
};

}  // namespace ms::driver
