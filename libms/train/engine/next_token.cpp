// Implements Engine::next_token() of train/engine/engine.h: draws a token from the logits of the model.
#include <cstring>

#include "train/engine/engine.h"

namespace ms::train {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

std::int32_t Engine::next_token(std::span<const std::int32_t> tokens, std::int64_t position, const Sampling& sampling,
                                std::int64_t vocab, double draw) {
  const std::int64_t seq = plan_.settings.model.seq;
  MS_ASSERT(static_cast<std::int64_t>(tokens.size()) == seq && position < seq, "position {} of {}", position, seq);
  Pending& pending = pending_[0];
  if (at_.pp == 0) {
    const Tensor& input = tensors_.input.front().tokens;
    std::memset(pending.tokens.data, 0, static_cast<std::size_t>(input.size_bytes()));
    std::memcpy(pending.tokens.data, tokens.data(), tokens.size_bytes());
    compute().submit(Copy{input, pending.tokens.slice_cols(0, input.cols)});
  }
  if (pending.starts) upload_starts(pending, tensors_.input.front().tokens.cols, {});
  executor_->run(plan_.single, Mode::logits, 0);
  const int root = plan_.mesh.rank({.dp = 0, .pp = plan_.mesh.pp - 1, .tp = 0});
  if (plan_.holds_head(at_.pp)) {
    compute().submit(Copy{tensors_.logits_row, tensors_.head.logits.slice_rows(position, 1)});
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
