// The algorithms of the MPI communicator. Every element is summed by one rank, in the order of the group, from the
// members' own values: the same bits as with ranks as threads. Copies and sums run on the stream's worker, not on the
// thread that owns MPI.
#include "comm/exchange_communicator.h"

#include <cstring>

#include "comm/row_pieces.h"
#include "tensor/cpu_stream.h"

namespace ms::comm {
namespace {

using tensor::CpuWaker;

// Up to this size every member sends all its data and reduces alone: one round instead of two, for (size - 1) times the
// bytes.
constexpr std::int64_t kOneRoundBytes = 64 << 10;

// The buffer for received parts of reductions. One operation of a communicator runs at a time, so one buffer serves
// all; it grows to the largest size and is shared with operations in progress, which may outlive the communicator.
class Staging {
 public:
  std::byte* at_least(std::int64_t bytes) {
    if (bytes > size_) {
      data_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
      size_ = bytes;
    }
    return data_.get();
  }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::int64_t size_ = 0;
};

struct Shared {
  std::shared_ptr<ExchangeService> service;
  std::shared_ptr<const Group> group;
  int member;
  Staging staging;
};

class ExchangeTask final : public tensor::AsyncTask {
 public:
  ExchangeTask(std::shared_ptr<Shared> shared, const Request& request)
      : shared_(std::move(shared)), request_(request), size_(shared_->group->size()), me_(shared_->member) {}

  bool step(const CpuWaker& waker) override {
    while (true) {
      if (exchange_) {
        const Exchange::State state = exchange_->state.load(std::memory_order_acquire);
        if (state == Exchange::State::pending) return false;
        if (state == Exchange::State::failed) throw shared_->service->cause().error_for(shared_->service->rank());
        exchange_.reset();
        finish_round();
        if (++round_ == rounds()) return true;
      }
      exchange_ = std::make_shared<Exchange>();
      exchange_->request = request_;
      exchange_->group = shared_->group;
      exchange_->notify = [waker] { waker.wake(); };
      plan_round();
      shared_->service->post(exchange_);
    }
  }
  void cancel(const Error& cause) noexcept override { shared_->service->abort(cause); }

 private:
  bool one_round() const { return request_.out.size_bytes() <= kOneRoundBytes; }
  int rounds() const { return request_.kind == OpKind::all_reduce && !one_round() ? 2 : 1; }
  std::int64_t slice_begin(std::int64_t member) const { return request_.out.numel() * member / size_; }
  // Returns elements [begin, end) of a tensor.
  static Tensor range(const Tensor& tensor, std::int64_t begin, std::int64_t end) {
    return tensor.slice_cols(begin, end - begin);
  }
  Tensor slice(int member) const { return range(request_.out, slice_begin(member), slice_begin(member + 1)); }
  Tensor part(const Tensor& whole, int member) const {
    const std::int64_t n = whole.numel() / size_;
    return range(whole, member * n, (member + 1) * n);
  }
  // Returns the staging buffer for the part that `member` sends, of `bytes` bytes like every other part.
  std::byte* staged(int member, std::int64_t bytes) const {
    return shared_->staging.at_least(bytes * size_) + member * bytes;
  }

  void add(TransferKind kind, int member, std::byte* data, std::int64_t size_bytes) const {
    exchange_->transfers.push_back({kind, shared_->group->ranks[static_cast<std::size_t>(member)], data, size_bytes});
  }
  // Calls f(member) for all other members, beginning with the next one, so that the members do not all send to the same
  // one first.
  template <class F>
  void each_other(F&& f) const {
    for (int k = 1; k < size_; ++k) f((me_ + k) % size_);
  }
  void add_swap(int member, const Tensor& to_them, std::byte* from_them, std::int64_t from_bytes) const {
    if (from_bytes > 0) add(TransferKind::recv, member, from_them, from_bytes);
    if (to_them.numel() > 0) add(TransferKind::send, member, to_them.data, to_them.size_bytes());
  }

  template <class F>
  void each_piece_between(int sender, int receiver, F&& f) const {
    each_piece(request_, request_.offsets.as<std::int32_t>(), size_, sender, receiver, std::forward<F>(f));
  }

  void plan_round() const {
    const Tensor &in = request_.in, &out = request_.out;
    switch (request_.kind) {
      case OpKind::all_reduce:
        each_other([&](int k) {
          if (one_round()) {
            add_swap(k, in, staged(k, in.size_bytes()), in.size_bytes());
          } else if (round_ == 0) {
            add_swap(k, slice(k), staged(k, slice(me_).size_bytes()), slice(me_).size_bytes());
          } else {
            add_swap(k, slice(me_), slice(k).data, slice(k).size_bytes());
          }
        });
        break;
      case OpKind::reduce_scatter:
        each_other([&](int k) { add_swap(k, part(in, k), staged(k, out.size_bytes()), out.size_bytes()); });
        break;
      case OpKind::all_gather: each_other([&](int k) { add_swap(k, in, part(out, k).data, in.size_bytes()); }); break;
      case OpKind::broadcast:
        if (me_ != request_.root) {
          add(TransferKind::recv, request_.root, out.data, out.size_bytes());
        } else {
          each_other([&](int k) { add(TransferKind::send, k, in.data, in.size_bytes()); });
        }
        break;
      case OpKind::all_to_all:
        each_other([&](int k) {
          each_piece_between(k, me_, [&](std::int64_t to, std::int64_t, std::int64_t bytes) {
            add(TransferKind::recv, k, out.data + to, bytes);
          });
          each_piece_between(me_, k, [&](std::int64_t, std::int64_t from, std::int64_t bytes) {
            add(TransferKind::send, k, in.data + from, bytes);
          });
        });
        break;
      case OpKind::send: add(TransferKind::matched_send, 1 - me_, in.data, in.size_bytes()); break;
      case OpKind::recv: add(TransferKind::recv, 1 - me_, out.data, out.size_bytes()); break;
      case OpKind::barrier:
        each_other([&](int k) {
          add(TransferKind::recv, k, nullptr, 0);
          add(TransferKind::matched_send, k, nullptr, 0);
        });
        break;
    }
  }

  // Reduces `mine` and the staged parts into `out`, in the order of the group.
  void reduce(const Tensor& out, const Tensor& mine) const {
    if (out.numel() == 0) return;
    std::vector<const void*> inputs;
    for (int k = 0; k < size_; ++k) inputs.push_back(k == me_ ? mine.data : staged(k, out.size_bytes()));
    tensor::cpu_kernels().reduce(request_.reduce, out.dtype, out.data, inputs.data(), size_, out.numel());
  }

  void finish_round() const {
    switch (request_.kind) {
      case OpKind::all_reduce:
        if (one_round()) {
          reduce(request_.out, request_.in);
        } else if (round_ == 0) {
          reduce(slice(me_), slice(me_));
        }
        break;
      case OpKind::reduce_scatter: reduce(request_.out, part(request_.in, me_)); break;
      case OpKind::all_gather: {
        const Tensor own = part(request_.out, me_);
        if (own.data != request_.in.data) {
          std::memcpy(own.data, request_.in.data, static_cast<std::size_t>(own.size_bytes()));
        }
        break;
      }
      case OpKind::all_to_all:
        each_piece_between(me_, me_, [&](std::int64_t to, std::int64_t from, std::int64_t bytes) {
          std::memcpy(request_.out.data + to, request_.in.data + from, static_cast<std::size_t>(bytes));
        });
        break;
      default: break;
    }
  }

  std::shared_ptr<Shared> shared_;
  Request request_;
  int size_;
  int me_;
  int round_ = 0;
  std::shared_ptr<Exchange> exchange_;
};

class ExchangeCommunicator final : public Communicator {
 public:
  ExchangeCommunicator(std::shared_ptr<ExchangeService> service, const Group& group, tensor::CpuStream& stream)
      : Communicator(group, service->rank(), stream),
        shared_(std::make_shared<Shared>(Shared{service, std::make_shared<const Group>(group), rank(), {}})),
        issued_(service->issue_counts().counter(group.id)),
        stream_(stream) {}

 protected:
  void do_issue(const Request& request) override {
    issued_->store(request.sequence + 1, std::memory_order_relaxed);
    stream_.submit_async(std::make_shared<ExchangeTask>(shared_, request));
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<IssueCounts::Counter> issued_;
  tensor::CpuStream& stream_;
};

}  // namespace

std::unique_ptr<Communicator> make_exchange_communicator(std::shared_ptr<ExchangeService> service, const Group& group,
                                                         tensor::Stream& stream) {
  auto* cpu_stream = dynamic_cast<tensor::CpuStream*>(&stream);
  MS_ASSERT(cpu_stream, "group {} opened on stream {}, which does not belong to a CPU device", group.name,
            stream.name());
  return std::make_unique<ExchangeCommunicator>(std::move(service), group, *cpu_stream);
}

}  // namespace ms::comm
