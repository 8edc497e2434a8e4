// Implements Engine::next_token() of train/engine/engine.h: draws a token from the logits of the model.
#include <cstring>

#include "train/engine/engine.h"

namespace ms::train {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

Tensor Engine::logits_of_sequence(std::int64_t position) {
  if (pending_[0].starts) upload_starts(pending_[0], tensors_.input.front().tokens.cols, {});
  executor_->run(plan_.single, Mode::logits, 0);
  return plan_.holds_head(at_.pp) ? tensors_.head.logits.slice_rows(position, 1) : Tensor{};
}

Tensor Engine::logits_of_window(std::int64_t first, std::int64_t rows) {
  const nn::Shape shape = window_shape(plan_, at_, first, rows);
  RankTensors window = carve_window(plan_, at_, tensors_, shape);
  Executor executor(plan_, at_, shape, window, compute(), groups_, *optimizer_);
  executor.run(plan_.single, Mode::logits, 0);
  // The next window has this memory, and an executor of its own, which does not know what was sent from it.
  for (const auto& channel : groups_.channels) {
    if (channel != nullptr) compute().wait(channel->stream().record());
  }
  return window.head.logits;
}

std::int32_t Engine::next_token(std::span<const std::int32_t> tokens, std::int64_t position, std::int64_t known,
                                const Sampling& sampling, std::int64_t vocab, double draw) {
  const std::int64_t seq = plan_.settings.model.seq;
  MS_ASSERT(static_cast<std::int64_t>(tokens.size()) == seq && position < seq && known <= position,
            "position {} of {}, {} known", position, seq, known);
  Pending& pending = pending_[0];
  const std::int64_t first = plan_.caches ? known : 0;
  if (at_.pp == 0) {
    const Tensor& input = tensors_.input.front().tokens;
    std::memset(pending.tokens.data, 0, static_cast<std::size_t>(input.size_bytes()));
    std::memcpy(pending.tokens.data, tokens.data() + first,
                tokens.subspan(static_cast<std::size_t>(first)).size_bytes());
    compute().submit(Copy{input, pending.tokens.slice_cols(0, input.cols)});
    if (const Tensor& patches = tensors_.input.front().patches) compute().submit(Fill{patches});  // of a step before
  }
  const Tensor logits_here =
      plan_.caches ? logits_of_window(first, position + 1 - first) : logits_of_sequence(position);
  const int root = plan_.mesh.rank({.dp = 0, .pp = plan_.mesh.pp - 1, .tp = 0});
  if (plan_.holds_head(at_.pp)) {
    compute().submit(Copy{tensors_.logits_row, logits_here});
    groups_.tp->stream().wait(compute().record());
    groups_.tp->all_gather(tensors_.logits_all, tensors_.logits_row);
    compute().wait(groups_.tp->stream().record());
  }
  if (plan_.mesh.rank(at_) == root) {
    std::vector<float> logits(static_cast<std::size_t>(tensors_.logits_all.numel()));
    const Tensor host{reinterpret_cast<std::byte*>(logits.data()), tensors_.logits_all.rows, tensors_.logits_all.cols,
                      tensors_.logits_all.cols, DType::f32};
    compute().submit(Copy{host, tensors_.logits_all});
    compute().synchronize();
    logits.resize(static_cast<std::size_t>(vocab));
    pending.tokens.as<std::int32_t>()[0] = draw_token(logits, sampling, draw);
    compute().submit(Copy{tensors_.token, pending.tokens.slice_cols(0, 1)});
  }
  groups_.world->stream().wait(compute().record());
  groups_.world->broadcast(tensors_.token, root);
  compute().wait(groups_.world->stream().record());
  compute().submit(Copy{pending.tokens.slice_cols(0, 1), tensors_.token});
  compute().synchronize();
  return pending.tokens.as<std::int32_t>()[0];
}

}  // namespace ms::train
