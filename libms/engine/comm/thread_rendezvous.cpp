#include "comm/thread_rendezvous.h"

#include "comm/row_pieces.h"

namespace ms::comm {

int phases_of(OpKind kind) {
  switch (kind) {
    case OpKind::barrier: return 0;
    case OpKind::all_reduce: return 2;  // reduce the own slice, then copy the other members' slices
    default: return 1;
  }
}

namespace {
std::byte* element(const Tensor& tensor, std::int64_t index) {
  return tensor.data + index * tensor::size_of(tensor.dtype);
}
}  // namespace

void run_phase(const Rendezvous& rendezvous, int me, int phase, tensor::PeerMemory& memory) {
  const std::vector<Request>& all = rendezvous.requests;
  const Request& mine = all[static_cast<std::size_t>(me)];
  const auto size = static_cast<std::int64_t>(all.size());
  const auto reduce = [&](std::byte* out, std::int64_t begin, std::int64_t count) {
    std::vector<const void*> inputs;
    inputs.reserve(all.size());
    for (const Request& other : all) inputs.push_back(element(other.in, begin));
    memory.reduce(mine.reduce, mine.in.dtype, out, inputs.data(), static_cast<int>(size), count);
  };
  const auto take_rows = [&] {
    std::vector<std::int32_t> offsets(static_cast<std::size_t>(mine.offsets.numel()));
    memory.read(offsets.data(), mine.offsets.data, mine.offsets.size_bytes());
    for (int k = 0; k < static_cast<int>(size); ++k) {
      const Request& theirs = all[static_cast<std::size_t>(k)];
      each_piece(mine, offsets.data(), static_cast<int>(size), k, me,
                 [&](std::int64_t to, std::int64_t from, std::int64_t bytes) {
                   memory.copy(mine.out.data + to, theirs.in.data + from, bytes);
                 });
    }
  };
  const auto slice_begin = [&](std::int64_t member) { return mine.out.numel() * member / size; };
  switch (mine.kind) {
    case OpKind::all_reduce:
      if (phase == 0) {
        const std::int64_t begin = slice_begin(me);
        if (slice_begin(me + 1) > begin) reduce(element(mine.out, begin), begin, slice_begin(me + 1) - begin);
        break;
      }
      for (std::int64_t k = 0; k < size; ++k) {
        const std::int64_t begin = slice_begin(k);
        const std::int64_t bytes = (slice_begin(k + 1) - begin) * tensor::size_of(mine.out.dtype);
        if (k == me || bytes == 0) continue;
        memory.copy(element(mine.out, begin), element(all[static_cast<std::size_t>(k)].out, begin), bytes);
      }
      break;
    case OpKind::reduce_scatter: reduce(mine.out.data, me * mine.out.numel(), mine.out.numel()); break;
    case OpKind::all_gather:
      for (std::size_t k = 0; k < all.size(); ++k) {
        std::byte* to = element(mine.out, static_cast<std::int64_t>(k) * mine.in.numel());
        if (to != all[k].in.data) memory.copy(to, all[k].in.data, mine.in.size_bytes());
      }
      break;
    case OpKind::broadcast:
      if (me != mine.root) {
        memory.copy(mine.out.data, all[static_cast<std::size_t>(mine.root)].in.data, mine.out.size_bytes());
      }
      break;
    case OpKind::all_to_all: take_rows(); break;
    case OpKind::recv:
      memory.copy(mine.out.data, all[static_cast<std::size_t>(1 - me)].in.data, mine.out.size_bytes());
      break;
    case OpKind::send:
    case OpKind::barrier: break;
  }
}

bool only_reads_others(const Request& mine, int me) {
  return mine.kind == OpKind::recv || (mine.kind == OpKind::broadcast && me != mine.root);
}

bool agree(const Request& a, const Request& b) {
  if (a.size_bytes() != b.size_bytes()) return false;
  if (a.kind == OpKind::send || a.kind == OpKind::recv) {
    return (a.kind == OpKind::send ? b.kind == OpKind::recv && a.in.dtype == b.out.dtype
                                   : b.kind == OpKind::send && a.out.dtype == b.in.dtype);
  }
  return a.kind == b.kind && a.out.dtype == b.out.dtype && a.reduce == b.reduce && a.root == b.root &&
         a.goes_back == b.goes_back && a.row_bytes == b.row_bytes && a.range.first == b.range.first &&
         a.range.count == b.range.count && a.holder == b.holder;
}

std::string signature(const Request& request) {
  std::string text = fmt::format("{} of {} bytes", to_string(request.kind), request.size_bytes());
  const Tensor& tensor = request.out ? request.out : request.in;
  switch (request.kind) {
    case OpKind::barrier: return "barrier";
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
      return fmt::format("{} ({} {})", text, tensor::to_string(tensor.dtype),
                         request.reduce == ReduceKind::sum ? "sum" : "maximum");
    case OpKind::broadcast:
      return fmt::format("{} ({} from member {})", text, tensor::to_string(tensor.dtype), request.root);
    default: return fmt::format("{} ({})", text, tensor::to_string(tensor.dtype));
  }
}

}  // namespace ms::comm
