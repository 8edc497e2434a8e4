#include "comm/exchange.h"

#include <algorithm>

namespace ms::comm {

std::string Exchange::what() const { return closes_world ? "the closing of the world" : describe(request, *group); }

std::vector<int> Exchange::awaited() const {
  std::vector<int> peers;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!done[i]) peers.push_back(messages[i].peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

Wait Exchange::as_wait() const {
  return {.peer = -1, .group = closes_world ? kNoGroup : group->id, .sequence = request.sequence, .what = what()};
}

void Exchange::settle(State end) {
  // Taken first: who sees the state may drop the exchange's owner. The caller's pointer still holds the exchange.
  const std::function<void()> tell = std::move(notify);
  state.store(end, std::memory_order_release);
  tell();
}

}  // namespace ms::comm
