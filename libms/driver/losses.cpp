#include "driver/losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

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
  std::optional<LossyNode> found;
  for (const std::string& suspect : nodes) {
    Sum own, rest;
    std::set<std::string> peers;
    int looks = 0;
    for (const std::string& from : nodes) {
      const auto sent = sent_.find(from);
      if (sent == sent_.end()) continue;
      (from == suspect ? own : rest).sent += sent->second.segments;
      for (const auto& [to, loss] : sent->second.lossy) {
        if (std::ranges::find(nodes, to) == nodes.end()) continue;
        const bool touches = from == suspect || to == suspect;
        (touches ? own : rest).again += loss.again;
        if (!touches) continue;
        peers.insert(from == suspect ? to : from);
        looks = std::max(looks, loss.looks);
        if (to != suspect) continue;
        own.sent += loss.sent;
        rest.sent -= loss.sent;
      }
    }
    if (own.again < kLeastAgain || looks < kLeastLooks || peers.size() < kLeastPeers || own.share() < kShare) continue;
    if (rest.sent < kLeastRest || rest.share() * kTimes > own.share()) continue;
    if (found) return std::nullopt;
    found = LossyNode{.node = suspect,
                      .why = fmt::format("of the TCP segments from and to {}, {:.0f} % were sent again ({} other nodes "
                                         "see it), and {:.1f} % of all others",
                                         suspect, 100 * own.share(), peers.size(), 100 * rest.share())};
  }
  return found;
}

}  // namespace ms::driver
