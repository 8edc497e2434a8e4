// The same microbatch on every dp rank: parameters are copies and kernels deterministic, so the loss and the gradients
// have the same bits, unless a device is broken. It runs between two steps, when nothing needs what is in the
// gradients' buffers, and leaves nothing behind: the next step clears or sets them.
#include <algorithm>
#include <array>
#include <utility>

#include "base/hash.h"
#include "train/engine/engine.h"

namespace ms::train {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

constexpr std::size_t kStagingBytes = std::size_t{4} << 20;

// Adds the tensor's bytes to the hash, by way of host memory. Waits.
void hash_tensor(Hasher& hasher, Stream& stream, const Tensor& x, const Memory& staging) {
  const auto most = static_cast<std::int64_t>(kStagingBytes) / size_of(x.dtype);
  for (std::int64_t begin = 0; begin < x.cols; begin += most) {
    const std::int64_t count = std::min(most, x.cols - begin);
    const Tensor host{staging.data(), 1, count, count, x.dtype};
    stream.submit(Copy{host, x.slice_cols(begin, count)});
    stream.synchronize();
    hasher.update({host.data, static_cast<std::size_t>(host.size_bytes())});
  }
}

// Flips the sign of a number on the device. Waits.
void flip_sign(Stream& stream, const Tensor& number, const Tensor& host) {
  stream.submit(Copy{host, number});
  stream.synchronize();
  *host.as<float>() *= -1;
  stream.submit(Copy{number, host});
  stream.synchronize();
}

}  // namespace

std::uint64_t Engine::replayed_bits() {
  if (!staging_) staging_ = device_.allocate_host(kStagingBytes, "gradients that are compared");
  const Pending& pending = pending_[0];
  Hasher hasher;
  compute().submit(Fill{tensors_.scalars.sums});
  executor_->replay(
      *plan_.replay, 1.0 / static_cast<double>(plan_.tokens_per_step()),
      [&](const nn::ChunkSlot& slot) {
        if (std::exchange(flip_bit_, false))
          flip_sign(compute(), slot.in().slice_rows(0, 1).slice_cols(0, 1), pending.norm);
      },
      [&](const ChunkTensors& chunk) {
        for (const optim::SpanMemory& span : chunk.spans) hash_tensor(hasher, compute(), span.grads, *staging_);
      });
  compute().submit(Copy{pending.sums, tensors_.scalars.sums});
  compute().synchronize();
  const double loss = pending.sums.as<double>()[1];
  hasher.update(std::as_bytes(std::span(&loss, 1)));
  return hasher.digest();
}

std::vector<std::uint64_t> Engine::replay(int of) {
  const trace::Scope scope(device_.recorder(), {.purpose = trace::Purpose::evaluation});
  const Pending& pending = pending_[0];
  MS_ASSERT(plan_.replay, "a replay in a plan without");
  MS_ASSERT(pending.step < 0 && pending_[1].step < 0, "a replay while a step is in flight");
  if (needs_input_) {  // all of a dp group are on one stage
    groups_.dp->stream().wait(compute().record());
    const nn::Microbatch& input = tensors_.input.front();
    for (const Tensor& x : {input.tokens, input.targets, input.starts, input.positions, input.patches}) {
      if (x) groups_.dp->broadcast(x, of);
    }
    compute().wait(groups_.dp->stream().record());
  }
  const std::uint64_t bits = replayed_bits();
  // Halves of the bits, as numbers that a double holds exactly, and sums of a million of them, too.
  constexpr int kHalf = 32;
  const auto high = static_cast<double>(bits >> kHalf), low = static_cast<double>(bits & 0xffffffff);
  double* sums = pending.sums.as<double>();
  const auto reduce = [&](comm::Communicator& group, const std::array<double, 4>& mine, ReduceKind kind) {
    std::fill_n(sums, pending.sums.cols, 0.0);
    std::copy(mine.begin(), mine.end(), sums);
    compute().submit(Copy{tensors_.scalars.sums, pending.sums});
    group.stream().wait(compute().record());
    group.all_reduce(tensors_.scalars.sums, kind);
    compute().wait(group.stream().record());
    compute().submit(Copy{pending.sums, tensors_.scalars.sums});
    compute().synchronize();
  };
  // The dp ranks of one stage and tp rank compare; for the run, the sum over a dp rank tells it from the others.
  reduce(*groups_.dp, {high, -high, low, -low}, ReduceKind::max);
  const bool same = sums[0] == -sums[1] && sums[2] == -sums[3];
  reduce(*groups_.world, {same ? 0.0 : 1.0}, ReduceKind::max);
  if (sums[0] == 0) return {};
  std::vector<std::uint64_t> found;
  for (int dp = 0; dp < plan_.mesh.dp; ++dp) {
    const bool mine = at_.dp == dp;
    reduce(*groups_.world, {mine ? high : 0, mine ? low : 0}, ReduceKind::sum);
    found.push_back((static_cast<std::uint64_t>(sums[0]) << kHalf) + static_cast<std::uint64_t>(sums[1]));
  }
  return found;
}

}  // namespace ms::train
