// The half that all communicators share: argument checks, notes for the race check, sequence numbers, and groups of one
// rank. A wrong call is our bug and therefore an assert; the implementation detects a peer that disagrees.
#include "comm/communicator.h"

namespace ms::comm {

std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::all_reduce: return "all_reduce";
    case OpKind::reduce_scatter: return "reduce_scatter";
    case OpKind::all_gather: return "all_gather";
    case OpKind::broadcast: return "broadcast";
    case OpKind::send: return "send";
    case OpKind::recv: return "recv";
    case OpKind::barrier: return "barrier";
    case OpKind::all_to_all: return "all_to_all";
  }
  return "operation";
}

std::string describe(const Request& request, const Group& group) {
  if (request.kind == OpKind::barrier) {
    return fmt::format("barrier, operation {} of group {}", request.sequence, group.name);
  }
  return fmt::format("{} of {} bytes, operation {} of group {}", to_string(request.kind), request.size_bytes(),
                     request.sequence, group.name);
}

Tensor Communicator::checked(const Tensor& tensor, OpKind kind) const {
  MS_ASSERT(tensor && tensor.contiguous(), "{} of group {} on a tensor that is not contiguous", to_string(kind),
            group_.name);
  return tensor.flat();
}

namespace {
void check_reducible(const Tensor& tensor, const Group& group) {
  MS_ASSERT(tensor.dtype != tensor::DType::i32, "reduction of i32 in group {}", group.name);
}
void check_parts(const Tensor& whole, const Tensor& part, OpKind kind, const Group& group) {
  MS_ASSERT(whole.dtype == part.dtype && whole.numel() == part.numel() * group.size(),
            "{} of group {}: {} elements of {} are not {} parts of {} of {}", to_string(kind), group.name,
            whole.numel(), tensor::to_string(whole.dtype), group.size(), part.numel(), tensor::to_string(part.dtype));
}
// Returns whether `part` is the part of `whole` that belongs to member `rank`.
bool is_part(const Tensor& whole, const Tensor& part, int rank) {
  return whole.data + part.size_bytes() * rank == part.data;
}
}  // namespace

void Communicator::all_reduce(const Tensor& x, ReduceKind kind) {
  const Tensor flat = checked(x, OpKind::all_reduce);
  check_reducible(flat, group_);
  issue({.kind = OpKind::all_reduce, .out = flat, .in = flat, .reduce = kind});
}

void Communicator::reduce_scatter(const Tensor& out, const Tensor& in) {
  const Tensor part = checked(out, OpKind::reduce_scatter);
  const Tensor whole = checked(in, OpKind::reduce_scatter);
  check_reducible(part, group_);
  check_parts(whole, part, OpKind::reduce_scatter, group_);
  issue({.kind = OpKind::reduce_scatter, .out = part, .in = whole});
}

void Communicator::all_gather(const Tensor& out, const Tensor& in) {
  const Tensor whole = checked(out, OpKind::all_gather);
  const Tensor part = checked(in, OpKind::all_gather);
  check_parts(whole, part, OpKind::all_gather, group_);
  issue({.kind = OpKind::all_gather, .out = whole, .in = part});
}

void Communicator::all_to_all(const Tensor& out, const Tensor& in, const Tensor& offsets, bool goes_back,
                              tensor::ExpertRange range) {
  MS_ASSERT(out.cols == in.cols && out.dtype == in.dtype && offsets.dtype == tensor::DType::i32 &&
                offsets.rows == size() && (offsets.cols - 1) % size() == 0,
            "all_to_all of rows of {} and {}, offsets [{},{}], in group {}", in.cols, out.cols, offsets.rows,
            offsets.cols, group_.name);
  issue({.kind = OpKind::all_to_all,
         .out = checked(out, OpKind::all_to_all),
         .in = checked(in, OpKind::all_to_all),
         .offsets = offsets,
         .goes_back = goes_back,
         .range = range,
         .row_bytes = in.cols * tensor::size_of(in.dtype)});
}

void Communicator::gather_rows(const Tensor& out, const Tensor& in, const Gather& gather) {
  const Tensor& offsets = gather.offsets;
  const std::int64_t ranks = offsets.rows / size();
  MS_ASSERT(out.cols == in.cols && out.dtype == in.dtype && offsets.dtype == tensor::DType::i32 &&
                ranks * size() == offsets.rows && gather.holder >= 0 && gather.holder < ranks &&
                (offsets.cols - 1) % ranks == 0 && out.rows % size() == 0,
            "gather_rows of {} rows of {} and {}, offsets [{},{}] of holder {}, in group {}", out.rows, in.cols,
            out.cols, offsets.rows, offsets.cols, gather.holder, group_.name);
  issue({.kind = OpKind::all_to_all,
         .out = checked(out, OpKind::all_to_all),
         .in = checked(in, OpKind::all_to_all),
         .offsets = offsets,
         .goes_back = gather.goes_back,
         .range = gather.range,
         .row_bytes = in.cols * tensor::size_of(in.dtype),
         .holder = gather.holder,
         .even_rows = gather.even_rows});
}

void Communicator::broadcast(const Tensor& x, int root) {
  MS_ASSERT(root >= 0 && root < size(), "broadcast from member {} of the {} of group {}", root, size(), group_.name);
  const Tensor flat = checked(x, OpKind::broadcast);
  issue({.kind = OpKind::broadcast, .out = flat, .in = flat, .root = root});
}

void Communicator::send(const Tensor& x) {
  MS_ASSERT(size() == 2, "send in group {} of {} ranks", group_.name, size());
  issue({.kind = OpKind::send, .out = {}, .in = checked(x, OpKind::send)});
}

void Communicator::recv(const Tensor& x) {
  MS_ASSERT(size() == 2, "recv in group {} of {} ranks", group_.name, size());
  issue({.kind = OpKind::recv, .out = checked(x, OpKind::recv), .in = {}});
}

void Communicator::barrier() { issue({.kind = OpKind::barrier, .out = {}, .in = {}}); }

Communicator::Communicator(Group group, int global_rank, tensor::Stream& stream)
    : group_(std::move(group)), rank_(group_.index_of(global_rank)), stream_(stream) {
  MS_ASSERT(rank_ >= 0, "rank {} opens group {} but is not a member of it", global_rank, group_.name);
  trace::Recorder* recorder = stream.device().recorder();
  if (recorder != nullptr && size() > 1) traced_group_ = recorder->group(group_.name, group_.id, group_.ranks);
}

namespace {

trace::Kind traced_kind(OpKind kind) {
  switch (kind) {
    case OpKind::all_reduce: return trace::Kind::all_reduce;
    case OpKind::reduce_scatter: return trace::Kind::reduce_scatter;
    case OpKind::all_gather: return trace::Kind::all_gather;
    case OpKind::broadcast: return trace::Kind::broadcast;
    case OpKind::send: return trace::Kind::send;
    case OpKind::recv: return trace::Kind::recv;
    case OpKind::barrier: return trace::Kind::barrier;
    case OpKind::all_to_all: return trace::Kind::all_to_all;
  }
  return trace::Kind::other_comm;
}

// Returns what the members must agree on besides kind and size, for the trace.
std::string_view traced_type(const Request& request) {
  const Tensor& tensor = request.in ? request.in : request.out;
  if (!tensor) return {};
  const bool reduces = request.kind == OpKind::all_reduce || request.kind == OpKind::reduce_scatter;
  if (!reduces) return tensor::to_string(tensor.dtype);
  const bool sums = request.reduce == ReduceKind::sum;
  switch (tensor.dtype) {
    case tensor::DType::f32: return sums ? "f32 sum" : "f32 max";
    case tensor::DType::f64: return sums ? "f64 sum" : "f64 max";
    case tensor::DType::bf16: return sums ? "bf16 sum" : "bf16 max";
    default: return tensor::to_string(tensor.dtype);
  }
}

}  // namespace

trace::Ticket Communicator::trace(const Request& request) const {
  trace::Recorder* recorder = stream_.device().recorder();
  if (recorder == nullptr || traced_group_ < 0) return trace::kNoTicket;
  return recorder->issue_comm({.kind = traced_kind(request.kind),
                               .group = traced_group_,
                               .type = traced_type(request),
                               .root = request.kind == OpKind::broadcast ? request.root : -1,
                               .size_bytes = request.size_bytes(),
                               .sequence = request.sequence});
}

void Communicator::issue(Request request) {
  request.sequence = sequence_++, request.members = size();
  if (size() == 1) {
    if (request.out && request.in && request.out.data != request.in.data && request.out.numel() > 0) {
      stream_.submit(tensor::Copy{request.out, request.in});
    }
    return;
  }
  if (request.kind == OpKind::all_to_all) return issue_rows(request);
  if (request.in) stream_.note(tensor::Access::read, request.in);
  const bool only_reads = request.kind == OpKind::broadcast && request.root == rank_;
  if (request.kind == OpKind::all_gather && is_part(request.out, request.in, rank_)) {
    // An in-place all-gather does not write this member's part: others may read it meanwhile.
    const std::int64_t begin = request.in.numel() * rank_, end = begin + request.in.numel();
    if (begin > 0) stream_.note(tensor::Access::write, request.out.slice_cols(0, begin));
    const std::int64_t rest = request.out.numel() - end;
    if (rest > 0) stream_.note(tensor::Access::write, request.out.slice_cols(end, rest));
  } else if (request.out && !only_reads) {
    stream_.note(tensor::Access::write, request.out);
  }
  if (request.kind == OpKind::barrier || request.size_bytes() > 0) begin(request);
}

void Communicator::issue_rows(const Request& request) {
  // Compute uses other parts of the holder's tensor at the same time.
  const std::int64_t held = request.held();
  const auto note = [&](tensor::Access access, const Tensor& rows, bool by_expert, int parts = 1) {
    const std::int64_t cols = request.row_bytes / tensor::size_of(rows.dtype), n = rows.numel() / cols / parts;
    const Tensor all = rows.reshape(parts * n, cols);
    for (int i = 0; i < parts; ++i) {
      const Tensor part = all.slice_rows(i * n, n);
      stream_.note(access, by_expert ? request.range.rows_of(part, held) : part);
    }
  };
  note(tensor::Access::read, request.in, request.goes_back || request.gathers());
  stream_.note(tensor::Access::read, request.offsets);
  note(tensor::Access::write, request.out, !request.goes_back || request.gathers(),
       request.gathers() && request.goes_back ? size() : 1);
  if (request.in.numel() > 0 && request.out.numel() > 0) begin(request);
}

void Communicator::begin(const Request& request) {
  stream_.trace_next(trace(request));
  do_issue(request);
}

}  // namespace ms::comm
