#include "driver/losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace ms::driver {

void Losses::hear(const std::string& node, const Report& report) {
  for (const std::string& text : report.addresses) address(node, text);
  Sent& sent = sent_[node];
  sent = {.segments = report.segments, .lossy = {}};
  for (const net::PeerLoss& loss : report.losses) {
    const auto peer = node_of_.find(loss.peer);
    if (peer == node_of_.end() || peer->second == node) continue;
    net::PeerLoss& known = sent.lossy[peer->second];  // over all addresses of that node
    known.sent += loss.sent;
    known.again += loss.again;
    known.looks = std::max(known.looks, loss.looks);
  }
}

std::optional<LossyNode> Losses::lossy(const std::vector<std::string>& nodes) const {
  struct Sum {
    std::int64_t sent = 0, again = 0;
    double share() const { return sent > 0 ? static_cast<double>(again) / static_cast<double>(sent) : 0; }
  };
  // Losses of a node: of what is sent from it and to it.
  struct Touched {
    Sum sum;
    int looks = 0;
    std::set<std::string> peers;
  };
  const std::set<std::string> members(nodes.begin(), nodes.end());
  std::map<std::string, Touched> touched;
  Sum all;
  for (const auto& [from, sent] : sent_) {
    if (!members.contains(from)) continue;
    all.sent += sent.segments;
    for (const auto& [to, loss] : sent.lossy) {
      if (!members.contains(to)) continue;
      all.again += loss.again;
      touched[to].sum.sent += loss.sent;
      for (const auto& [node, peer] : {std::pair(from, to), std::pair(to, from)}) {
        Touched& end = touched[node];
        end.sum.again += loss.again;
        end.looks = std::max(end.looks, loss.looks);
        end.peers.insert(peer);
      }
    }
  }
  std::optional<LossyNode> found;
  for (auto& [node, own] : touched) {
    if (const auto sent = sent_.find(node); sent != sent_.end()) own.sum.sent += sent->second.segments;
    const Sum rest{.sent = all.sent - own.sum.sent, .again = all.again - own.sum.again};
    const double share = own.sum.share();
    if (own.sum.again < kLeastAgain || own.looks < kLeastLooks || own.peers.size() < kLeastPeers) continue;
    if (share < kShare || rest.sent < kLeastRest || rest.share() * kTimes > share) continue;
    if (found) return std::nullopt;
    found = LossyNode{.node = node,
                      .why = fmt::format("of the TCP segments from and to {}, {:.0f} % were sent again ({} other nodes "
                                         "see it), and {:.1f} % of all others",
                                         node, 100 * share, own.peers.size(), 100 * rest.share())};
  }
  return found;
}

}  // namespace ms::driver
