// The same forward on every dp rank: parameters are copies and kernels deterministic, so the losses have the same bits,
// unless a device is broken.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "train/engine/engine.h"

namespace ms::train {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

std::vector<std::uint64_t> Engine::replay(int of) {
  const trace::Scope scope(device_.recorder(), {.purpose = trace::Purpose::evaluation});
  const Pending& pending = pending_[0];
  MS_ASSERT(pending.step < 0 && pending_[1].step < 0, "a replay while a step is in flight");
  if (needs_input_) {  // all of a dp group are on one stage
    groups_.dp->stream().wait(compute().record());
    for (const nn::Microbatch& input : tensors_.input) {
      for (const Tensor& x : {input.tokens, input.targets, input.starts, input.positions}) {
        if (x) groups_.dp->broadcast(x, of);
      }
    }
    compute().wait(groups_.dp->stream().record());
  }
  if (std::exchange(flip_bit_, false) && needs_input_) {
    const nn::Microbatch& input = tensors_.input.front();
    const Tensor token = (at_.pp == 0 ? input.tokens : input.targets).slice_cols(0, 1);
    const Tensor host = pending.tokens.slice_cols(0, 1);
    compute().submit(Copy{host, token});
    compute().synchronize();
    std::int32_t& value = *host.as<std::int32_t>();
    value = value > 0 ? value & (value - 1) : 1;  // a token still
    compute().submit(Copy{token, host});
  }
  compute().submit(Fill{tensors_.scalars.sums});
  executor_->run(plan_.evaluation, Mode::evaluate, 1.0 / static_cast<double>(plan_.tokens_per_step()));
  compute().submit(Copy{pending.sums, tensors_.scalars.sums});
  compute().synchronize();
  double* sums = pending.sums.as<double>();
  const auto bits = std::bit_cast<std::uint64_t>(sums[1]);
  // Halves of the bits, as numbers that a double holds exactly: those of a NaN compare, too.
  constexpr int kHalf = 32;
  const auto high = static_cast<double>(bits >> kHalf), low = static_cast<double>(bits & 0xffffffff);
  const bool has_loss = at_.pp == plan_.mesh.pp - 1 && at_.tp == 0;
  const auto reduce = [&](std::array<double, 4> mine, double none, ReduceKind kind) {
    std::fill_n(sums, pending.sums.cols, none);
    if (has_loss) std::copy(mine.begin(), mine.end(), sums);
    compute().submit(Copy{tensors_.scalars.sums, pending.sums});
    groups_.world->stream().wait(compute().record());
    groups_.world->all_reduce(tensors_.scalars.sums, kind);
    compute().wait(groups_.world->stream().record());
    compute().submit(Copy{pending.sums, tensors_.scalars.sums});
    compute().synchronize();
  };
  reduce({high, -high, low, -low}, -std::numeric_limits<double>::max(), ReduceKind::max);
  if (sums[0] == -sums[1] && sums[2] == -sums[3]) return {};
  std::vector<std::uint64_t> found;
  for (int dp = 0; dp < plan_.mesh.dp; ++dp) {
    const bool mine = at_.dp == dp;
    reduce({mine ? high : 0, mine ? low : 0, 0, 0}, 0, ReduceKind::sum);
    found.push_back(static_cast<std::uint64_t>(sums[0]) << kHalf | static_cast<std::uint64_t>(sums[1]));
  }
  return found;
}

}  // namespace ms::train
