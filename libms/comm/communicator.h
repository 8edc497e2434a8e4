// The second of the two seams: communicators. A communicator belongs to one group and to one stream: what is issued on
// it is an operation of that stream, ordered with the rest by events, and nothing waits on the host.
//
// Law, on every implementation (the strictest one rules, so that code which runs on threads cannot deadlock on NCCL):
//  - All members issue the operations of a group in the same order with the same sizes and types.
//  - Every method but abort() is collective over the group, send and recv over the two ends of a two-rank group.
//  - A send completes only when it is matched. Messages of a two-rank group arrive in order.
//  - Sums run in the order of the group's ranks, bf16 in f32 rounded once: same bits on threads and on MPI.
//  - A deadline runs from the moment an operation's dependencies are met, not from its issue. When it passes, the
//    operation fails with Error("comm.deadline"), which names who was waited for, in which operation of which group.
//  - abort() from any member, or any failure, fails all pending and later operations of every member with the first
//    cause, as Error("comm.peer_lost"), blame peer, on those who did not cause it.
// Tensors must be contiguous and stay untouched until the operation is done. Operations of a group of one rank are
// copies or nothing, and so are operations on no elements: they meet nobody and cannot fail.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "comm/group.h"
#include "tensor/cpu_kernels.h"
#include "tensor/stream.h"

namespace ms::comm {

using tensor::ReduceKind;
using tensor::Tensor;

enum class OpKind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, send, recv, barrier };
std::string_view to_string(OpKind kind);

// One operation of one member, checked. Tensors are flat; the same one twice for operations in place.
struct Request {
  OpKind kind = OpKind::barrier;
  Tensor out, in;
  ReduceKind reduce = ReduceKind::sum;
  int root = 0;
  std::uint64_t sequence = 0;  // number of this operation in this communicator

  std::int64_t size_bytes() const { return std::max(out.size_bytes(), in.size_bytes()); }
};
// "all_reduce of 4096 bytes, operation 17 of group dp", for messages.
std::string describe(const Request& request, const Group& group);

class Communicator {
 public:
  Communicator(Group group, int global_rank, tensor::Stream& stream);
  virtual ~Communicator() = default;  // local: never communicates
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const Group& group() const { return group_; }
  int rank() const { return rank_; }  // in the group
  int size() const { return group_.size(); }
  tensor::Stream& stream() const { return stream_; }

  // Cleared memory of the stream's device, for register_memory() of any group. Local.
  virtual std::unique_ptr<tensor::Memory> allocate(std::size_t bytes, const std::string& what) {
    return stream_.device().allocate(bytes, what);
  }
  // Local, once, by all members or by none: what is sent and received from now on lies in this memory, which outlives
  // the communicator; sums and gathers at the same place on all members. Who can then sends it without a copy on the
  // way.
  virtual void register_memory(const tensor::Memory& /*memory*/) {}
  // Collective over a group of two that sends and receives, before its first operation: what the host of one end would
  // wait for the other's in the first message is done now. Blocks.
  virtual void connect() {}

  // In place: x becomes the sum (maximum) over the members.
  void all_reduce(const Tensor& x, ReduceKind kind = ReduceKind::sum);
  // in is size() equal parts of out's size; out becomes the sum over members of part rank(). out may be that part.
  void reduce_scatter(const Tensor& out, const Tensor& in);
  // out is size() parts of in's size; part r becomes member r's in. in may be part rank() of out.
  void all_gather(const Tensor& out, const Tensor& in);
  // x of member `root` to all.
  void broadcast(const Tensor& x, int root);
  void send(const Tensor& x);  // to the other member of a two-rank group
  void recv(const Tensor& x);
  void barrier();

 protected:
  // Called in order, for groups of two or more, with something to do. Submits one thing to the stream.
  virtual void do_issue(const Request& request) = 0;

 private:
  void issue(Request request);
  trace::Ticket trace(const Request& request) const;
  // Flat; a bug unless it is contiguous and there.
  Tensor checked(const Tensor& tensor, OpKind kind) const;

  Group group_;
  int rank_;
  tensor::Stream& stream_;
  std::uint64_t sequence_ = 0;
  int traced_group_ = -1;  // as the device's recorder knows it
};

}  // namespace ms::comm
