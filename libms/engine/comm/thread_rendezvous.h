// One operation between ranks as threads: what each member contributed, and the work of each member. Works on memory
// only; thread_hub.cpp decides who runs it and when.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/inquiry.h"
#include "tensor/task_stream.h"

namespace ms::comm {

// One operation, from the first member's arrival until the last one leaves. Guarded by the mutex of its group.
struct Rendezvous {
  explicit Rendezvous(std::size_t size) : requests(size), wakers(size), ready(size) {}
  bool full() const { return arrived == static_cast<int>(requests.size()); }

  std::vector<Request> requests;  // by member; not changed once full
  std::vector<std::optional<tensor::CpuWaker>> wakers;
  // For members on a GPU: the point in the stream where each member reached the operation, and the point where all work
  // is done, set once it is issued.
  std::vector<std::shared_ptr<tensor::EventState>> ready;
  std::shared_ptr<tensor::EventState> done;
  std::uint64_t sequence = 0;
  int arrived = 0;
  int first = -1;  // member that arrived first
  std::chrono::steady_clock::time_point since;
  std::chrono::steady_clock::time_point over;  // earliest end, with a simulated link; set once full
  std::array<int, 3> finished{};               // members that finished each phase
  int stage = 0;  // phases that may begin: a member that finished n phases continues when stage > n
  std::optional<Error> failure;
};

// The operations of one group that not all members have reached.
struct GroupState {
  explicit GroupState(Group g) : group(std::move(g)) {}
  const Group group;
  std::mutex mutex;                               // guards `open` and its elements
  std::vector<std::shared_ptr<Rendezvous>> open;  // not full yet; a few

  // Returns the global ranks that have not arrived. The caller holds the mutex.
  std::vector<int> missing(const Rendezvous& rendezvous) const {
    std::vector<int> ranks;
    for (std::size_t k = 0; k < rendezvous.wakers.size(); ++k) {
      if (!rendezvous.wakers[k]) ranks.push_back(group.ranks[k]);
    }
    return ranks;
  }
  // Describes the wait for this operation; leaves `peer` unset.
  Wait wait_in(const Rendezvous& rendezvous) const {
    const Request& request = rendezvous.requests[static_cast<std::size_t>(rendezvous.first)];
    return {.peer = -1, .group = group.id, .sequence = request.sequence, .what = describe(request, group)};
  }
};

// Returns the number of phases of work after all members arrived; all members finish a phase before the next one
// begins.
int phases_of(OpKind kind);
// Does the work of member `me` in a phase. Writes only memory of `me` that no member reads in this phase.
void run_phase(const Rendezvous& rendezvous, int me, int phase, tensor::PeerMemory& memory);
// Returns whether no other member reads this member's memory, so that it may leave as soon as its own work is done.
bool only_reads_others(const Request& mine, int me);
// Returns whether two members issued the same operation, or the two ends of one transfer.
bool agree(const Request& a, const Request& b);
// Describes an operation with everything that members must agree on: "all_reduce of 64 bytes (f32 sum)".
std::string signature(const Request& request);

}  // namespace ms::comm
