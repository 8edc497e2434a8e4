#include "comm/exchange.h"

#include <algorithm>

namespace ms::comm {

std::string Exchange::what() const {
  if (!label.empty()) return label;
  return closes_world ? "the closing of the world" : describe(request, *group);
}

std::vector<int> Exchange::awaited() const {
  std::vector<int> peers;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (!done[i]) peers.push_back(transfers[i].peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

Wait Exchange::as_wait() const {
  return {.peer = -1, .group = closes_world ? kNoGroup : group->id, .sequence = request.sequence, .what = what()};
}

void Exchange::settle(State end) {
  // Moved out first: a thread that sees the state may destroy the exchange's owner. The caller's pointer keeps the
  // exchange.
  const std::function<void()> notify_owner = std::move(notify);
  state.store(end, std::memory_order_release);
  notify_owner();
}

std::shared_ptr<Exchange> exchange_with_all(const Request& request, std::shared_ptr<const Group> group, int rank) {
  auto exchange = std::make_shared<Exchange>();
  exchange->request = request;
  exchange->group = std::move(group);
  for (const int peer : exchange->group->ranks) {
    if (peer != rank) exchange->transfers.push_back({TransferKind::recv, peer, nullptr, 0});
  }
  exchange->done.assign(exchange->transfers.size(), false);
  exchange->notify = [] {};
  return exchange;
}

}  // namespace ms::comm
