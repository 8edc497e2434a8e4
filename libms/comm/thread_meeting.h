// An operation between ranks that are threads: what each member brought, and what each has to do. Pure work on memory;
// who does it when is thread_world.cpp's business.
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

// One operation, from the first member's arrival to the last one's leaving. Guarded by the lock of its group.
struct Meeting {
  explicit Meeting(std::size_t size) : requests(size), wakers(size), ready(size) {}
  bool full() const { return arrived == static_cast<int>(requests.size()); }

  std::vector<Request> requests;  // by member; not changed once full
  std::vector<std::optional<tensor::CpuWaker>> wakers;
  // Of members whose work a GPU does: where each came to the operation; and where all work is done, known once it is
  // issued.
  std::vector<std::shared_ptr<tensor::EventState>> ready;
  std::shared_ptr<tensor::EventState> done;
  std::uint64_t sequence = 0;
  int arrived = 0;
  int first = -1;  // member who came first
  std::chrono::steady_clock::time_point since;
  std::chrono::steady_clock::time_point over;  // no earlier, where messages take time; known once full
  std::array<int, 3> finished{};               // members that finished phase 1, 2
  int stage = 0;  // phases that may begin: a member that finished n phases goes on when stage > n
  std::optional<Error> failure;
};

// The operations of one group that not all members have come to.
struct GroupState {
  explicit GroupState(Group g) : group(std::move(g)) {}
  const Group group;
  std::mutex mutex;                            // guards the meetings
  std::vector<std::shared_ptr<Meeting>> open;  // not full yet; few

  // With the lock held. Global ranks that have not come yet:
  std::vector<int> missing(const Meeting& meeting) const {
    std::vector<int> ranks;
    for (std::size_t k = 0; k < meeting.wakers.size(); ++k) {
      if (!meeting.wakers[k]) ranks.push_back(group.ranks[k]);
    }
    return ranks;
  }
  // For whomever.
  Wait wait_in(const Meeting& meeting) const {
    const Request& request = meeting.requests[static_cast<std::size_t>(meeting.first)];
    return {.peer = -1, .group = group.id, .sequence = request.sequence, .what = describe(request, group)};
  }
};

// Rounds of work after all have arrived; between two of them everybody waits for everybody.
int phases_of(OpKind kind);
// What member `me` does in a phase. It writes only its own memory, and there only what nobody reads in this phase.
void do_share(const Meeting& meeting, int me, int phase, tensor::PeerMemory& memory);
// Whether nobody reads the memory of this member, so that it may leave as soon as its own share is done.
bool only_reads_others(const Request& mine, int me);
// Whether two members issued the same operation, or the two ends of one.
bool agree(const Request& a, const Request& b);
// What a member issued, with all that must agree: "all_reduce of 64 bytes (f32 sum)".
std::string signature(const Request& request);

}  // namespace ms::comm
