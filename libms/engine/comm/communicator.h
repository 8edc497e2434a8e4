// Communicators, the second of the engine's two interfaces (the first is tensor::Device). A communicator belongs to one
// group and to one stream: an operation issued on it is an operation of that stream, ordered by events, and the host
// never waits.
//
// Rules for every implementation. The strictest backend defines them, so that code which runs on threads cannot
// deadlock on NCCL:
//  - All members issue the operations of a group in the same order with the same sizes and types.
//  - Every method but abort() is collective over the group; send and recv are collective over a two-rank group.
//  - A send completes only when it is matched. The transfers of a two-rank group arrive in order.
//  - Sums run in the order of the group's ranks; bf16 is summed in f32 and rounded once: same bits on threads and on
//    MPI.
//  - A deadline runs from the moment an operation's dependencies are met, not from its issue. When it passes, the
//    operation fails with Error("comm.deadline"), which names the ranks waited for, the operation and the group.
//  - abort() from any member, or any failure, fails all pending and later operations of every member with the first
//    cause; on members that did not cause it as Error("comm.peer_lost"), blame peer.
// Tensors must be contiguous and stay untouched until the operation is done. Operations of a group of one rank are
// copies or nothing, and so are operations on no elements: they involve no other rank and cannot fail.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "comm/group.h"
#include "tensor/cpu_kernels.h"
#include "tensor/expert_slots.h"
#include "tensor/stream.h"

namespace ms::comm {

using tensor::ReduceKind;
using tensor::Tensor;

enum class OpKind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, send, recv, barrier, all_to_all };
std::string_view to_string(OpKind kind);

// One operation of one member, with checked arguments. Tensors are flat; `in` and `out` are the same tensor for
// in-place operations.
struct Request {
  OpKind kind = OpKind::barrier;
  Tensor out, in;
  ReduceKind reduce = ReduceKind::sum;
  int root = 0;
  // The arguments of an all_to_all: Route::offsets of all members, whether rows return to their owners, the experts
  // whose rows move, and a row's bytes. Of gather_rows(), too: the holder, and the rows of all members if the load is
  // even.
  Tensor offsets = {};
  bool goes_back = false;
  tensor::ExpertRange range = {};
  std::int64_t row_bytes = 0;
  int holder = -1;
  std::int64_t even_rows = 0;
  int members = 1;             // of the group
  std::uint64_t sequence = 0;  // number of this operation in this communicator

  bool gathers() const { return holder >= 0; }
  // The experts that a member holds, and the rows that it has room for: of those that it received, before a gather.
  std::int64_t held() const {
    return (offsets.cols - 1) / (gathers() ? offsets.rows / members : std::int64_t{members});
  }
  std::int64_t room() const {
    if (!gathers()) return (goes_back ? in : out).size_bytes() / row_bytes;
    return goes_back ? out.size_bytes() / row_bytes / members : in.size_bytes() / row_bytes;
  }
  // An all_to_all's size is that of a member's own rows: the holder's tensor may have room for those of all members.
  std::int64_t size_bytes() const {
    if (kind != OpKind::all_to_all) return std::max(out.size_bytes(), in.size_bytes());
    const std::int64_t all = gathers() ? even_rows * row_bytes : std::min(out.size_bytes(), in.size_bytes());
    return all * range.of(held()) / held();
  }
};
// Returns "all_reduce of 4096 bytes, operation 17 of group dp", for error messages.
std::string describe(const Request& request, const Group& group);

class Communicator {
 public:
  Communicator(Group group, int global_rank, tensor::Stream& stream);
  virtual ~Communicator() = default;  // local, does not communicate
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const Group& group() const { return group_; }
  int rank() const { return rank_; }  // in the group
  int size() const { return group_.size(); }
  tensor::Stream& stream() const { return stream_; }

  // Returns zeroed memory of the stream's device, which register_memory() of any group accepts. Local.
  virtual std::unique_ptr<tensor::Memory> allocate(std::size_t bytes, const std::string& what) {
    return stream_.device().allocate(bytes, what);
  }
  // Registers the buffer that later operations use, so that a backend may transfer without an intermediate copy. Local;
  // called once, by all members or by none. The memory outlives the communicator, and collectives use the same offsets
  // on all members.
  virtual void register_memory(const tensor::Memory& /*memory*/) {}
  // Establishes the connection of a two-rank group before its first operation. Collective, blocks the host: without it,
  // the hosts would wait for each other in the first transfer.
  virtual void connect() {}

  // Replaces x by the sum (maximum) over the members.
  void all_reduce(const Tensor& x, ReduceKind kind = ReduceKind::sum);
  // Stores in `out` the sum over members of part rank() of `in`, which has size() parts of out's size. `out` may be
  // that part.
  void reduce_scatter(const Tensor& out, const Tensor& in);
  // Stores member r's `in` in part r of `out`, which has size() parts of in's size. `in` may be part rank() of `out`.
  void all_gather(const Tensor& out, const Tensor& in);
  // Moves the rows of experts' slots between the members, which share the experts as tensor/expert_slots.h says.
  // `offsets` i32 [size(),E+1] is explained there, is the same on all members, and is read when the operation runs;
  // NCCL needs it when the operation is issued (Stream::copy_to_host). Dispatch: `in` has the member's own rows, `out`
  // receives the rows of the experts that it holds; rows of `out` behind them keep their values. Return (`goes_back`):
  // the reverse. Rows beyond the holder's room are dropped both ways. With a range only its rows move: those of the
  // same experts of every member, counted from its first one.
  void all_to_all(const Tensor& out, const Tensor& in, const Tensor& offsets, bool goes_back,
                  tensor::ExpertRange range = {});
  // Rows of experts that the members hold together, each with a shard of every expert (tensor/expert_slots.h).
  // `offsets` i32 [size() ranks,E+1] are those of all_to_all() of every member, one's below another's; `holder` is the
  // members' place among these ranks. Gather: `in` has the rows that the member received, `out` receives those of all
  // members. Return (`goes_back`): part m of `out`, of size() parts, receives the member's own of the rows `in` of
  // member m. `even_rows`: those of all members if the load is even.
  struct Gather {
    Tensor offsets;
    int holder = 0;
    std::int64_t even_rows = 0;
    bool goes_back = false;
    tensor::ExpertRange range = {};
  };
  void gather_rows(const Tensor& out, const Tensor& in, const Gather& gather);
  // Copies x of member `root` to all members.
  void broadcast(const Tensor& x, int root);
  void send(const Tensor& x);  // to the other member of a two-rank group
  void recv(const Tensor& x);
  void barrier();

 protected:
  // Submits the operation to the stream. Called in sequence order, only for groups of two or more and with data to
  // move.
  virtual void do_issue(const Request& request) = 0;

 private:
  void issue(Request request);
  void issue_rows(const Request& request);
  void begin(const Request& request);
  trace::Ticket trace(const Request& request) const;
  // Returns the tensor flattened; asserts that it is valid and contiguous.
  Tensor checked(const Tensor& tensor, OpKind kind) const;

  Group group_;
  int rank_;
  tensor::Stream& stream_;
  std::uint64_t sequence_ = 0;
  int traced_group_ = -1;  // the recorder's index of the group; -1: not traced
};

}  // namespace ms::comm
