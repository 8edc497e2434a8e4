// The sends and receives of a group: all of them go to rank 0, which gives each member what it receives.
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "nccl_member.h"
#include "nccl_reduce.h"

namespace ms::emulated::nccl {

void Member::lead_exchange(const Operation& operation) {
  meet(operation.header);
  std::vector<std::vector<Transfer>> of_all(sockets_.size());
  std::map<std::pair<int, int>, std::deque<Bytes>> sent;  // from one rank to another, in the sender's order
  for (int rank = 0; rank < size(); ++rank) {
    std::vector<Transfer>& some = of_all[static_cast<std::size_t>(rank)];
    if (rank == 0) {
      some = operation.transfers;
    } else {
      std::uint64_t number = 0;
      receive(socket_of(rank), rank, &number, sizeof number);
      some.resize(number);
      receive(socket_of(rank), rank, some.data(), number * sizeof(Transfer));
    }
    for (const Transfer& transfer : some) {
      if (transfer.sends == 0) continue;
      Bytes& bytes = sent[{rank, transfer.peer}].emplace_back(transfer.bytes);
      if (rank == 0) {
        std::memcpy(bytes.data(), transfer.data, transfer.bytes);
      } else {
        receive(socket_of(rank), rank, bytes.data(), transfer.bytes);
      }
    }
  }
  std::vector<std::pair<const Transfer*, Bytes>> received;  // of all ranks, one after the other
  std::vector<int> receivers;
  for (int rank = 0; rank < size(); ++rank) {
    for (const Transfer& transfer : of_all[static_cast<std::size_t>(rank)]) {
      if (transfer.sends != 0) continue;
      auto& waiting = sent[{transfer.peer, rank}];
      if (waiting.empty() || waiting.front().size() != transfer.bytes) {
        tell(Verdict::disagreed);
        throw Failure{ncclInvalidUsage, "rank " + std::to_string(rank) + " receives what rank " +
                                            std::to_string(transfer.peer) + " does not send"};
      }
      received.emplace_back(&transfer, std::move(waiting.front()));
      receivers.push_back(rank);
      waiting.pop_front();
    }
  }
  for (const auto& [ranks, waiting] : sent) {
    if (waiting.empty()) continue;
    tell(Verdict::disagreed);
    throw Failure{ncclInvalidUsage, "rank " + std::to_string(ranks.second) + " does not receive what rank " +
                                        std::to_string(ranks.first) + " sends"};
  }
  tell(Verdict::agreed);
  for (std::size_t i = 0; i < received.size(); ++i) {
    const auto& [transfer, bytes] = received[i];
    if (receivers[i] == 0) {
      std::memcpy(transfer->data, bytes.data(), bytes.size());
    } else {
      send(socket_of(receivers[i]), receivers[i], bytes.data(), bytes.size());
    }
  }
}

void Member::follow_exchange(const Operation& operation) {
  send(sockets_[0], 0, &operation.header, sizeof operation.header);
  obey("the members do not agree on " + operation.header.text());
  const std::uint64_t number = operation.transfers.size();
  send(sockets_[0], 0, &number, sizeof number);
  send(sockets_[0], 0, operation.transfers.data(), number * sizeof(Transfer));
  for (const Transfer& transfer : operation.transfers) {
    if (transfer.sends != 0) send(sockets_[0], 0, transfer.data, transfer.bytes);
  }
  obey("the members do not agree on what they send and receive");
  for (const Transfer& transfer : operation.transfers) {
    if (transfer.sends == 0) receive(sockets_[0], 0, transfer.data, transfer.bytes);
  }
}

}  // namespace ms::emulated::nccl
