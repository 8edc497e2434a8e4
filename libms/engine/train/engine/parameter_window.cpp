#include "train/engine/parameter_window.h"

#include <algorithm>
#include <limits>

namespace ms::train {

ParameterWindow::ParameterWindow(const Plan& plan, int pp_rank, const std::vector<ChunkTensors>& chunks,
                                 optim::ShardedOptimizer& optimizer, tensor::Stream& compute)
    : plan_(plan), pp_rank_(pp_rank), chunks_(chunks), optimizer_(optimizer), compute_(compute) {}

std::vector<ParameterWindow::Use> ParameterWindow::uses_of(const Pass& pass) const {
  const nn::ModelConfig& model = plan_.settings.model;
  const nn::ChunkPart part = plan_.part(pp_rank_, pass.chunk);
  const std::int64_t layers = part.layer_end - part.layer_begin, head = pass.backward ? 0 : layers + 1;
  const bool has_head = part.last && (pass.backward || pass.head);
  const std::int64_t bias = model.has_out_bias() || model.has_mlp_bias() ? 1 : 0;  // the next layer adds the last one
  std::size_t span = 0;
  for (int c = 0; c < pass.chunk; ++c) span += chunks_[static_cast<std::size_t>(c)].specs.size();
  std::vector<Use> uses;
  for (const nn::SpanSpec& spec : chunks_[static_cast<std::size_t>(pass.chunk)].specs) {
    if (spec.end == spec.place) {  // a vocabulary
      const bool embeds = spec.place == 0, is_head = has_head && (!embeds || model.tied_embeddings);
      if (embeds && !pass.backward) uses.push_back({span, 0, 0});
      if (is_head) uses.push_back({span, head, head});
      if (embeds && pass.backward && !is_head) uses.push_back({span, layers, layers, false});
    } else {
      const bool has_norm = has_head && spec.end == layers && !spec.experts;  // and what belongs to the head
      Use use{span, spec.place, spec.end - 1 + bias};
      if (pass.backward) use.first = layers - spec.end + 1, use.last = layers - spec.place;
      if (has_norm) (pass.backward ? use.first : use.last) = head;
      uses.push_back(use);
    }
    ++span;
  }
  std::ranges::stable_sort(uses, {}, &Use::first);
  return uses;
}

void ParameterWindow::gather(const Use& use, int chunk) {
  if (!use.reads) return;
  const trace::Scope scope(compute_.device().recorder(), {.purpose = trace::Purpose::params, .chunk = chunk});
  optimizer_.gather(use.span);
  if (!plan_.settings.overlap.dp) optimizer_.settle();
}

void ParameterWindow::gather_ahead(const std::vector<Use>& uses, int chunk, std::int64_t count) {
  if (!plan_.settings.overlap.dp) return;
  std::int64_t turn = -1;
  std::vector<const Use*> needed;  // of buffers
  for (const Use& use : uses) {
    const optim::SharedBuffers& shared = optimizer_.memory(use.span).shared;
    if (use.when == Use::over || !use.reads || !shared.values) continue;
    const auto takes = [&](const Use* other) {
      return other->span != use.span && optimizer_.memory(other->span).shared.values_at == shared.values_at;
    };
    if (std::ranges::any_of(needed, takes)) return;
    needed.push_back(&use);
    if (use.when == Use::now) continue;
    if (use.first != turn && count-- == 0) return;
    turn = use.first;
    gather(use, chunk);
  }
}

void ParameterWindow::prefetch(const Pass& pass) {
  gather_ahead(uses_of(pass), pass.chunk, plan_.settings.optim.prefetch);
}

void ParameterWindow::begin(const Pass& pass) {
  pass_ = pass;
  uses_ = uses_of(pass);
}

void ParameterWindow::advance(std::int64_t turn) {
  tensor::Event done;
  for (Use& use : uses_) {
    if (use.when != Use::now || use.last >= turn) continue;
    if (!done) done = compute_.record();
    optimizer_.after_use(use.span, done);
    use.when = Use::over;
  }
  for (Use& use : uses_) {
    if (use.when != Use::ahead || use.first > turn) continue;
    gather(use, pass_.chunk);
    if (use.reads) optimizer_.before_use(use.span);
    if (pass_.backward) optimizer_.before_gradients(use.span);
    use.when = Use::now;
  }
  gather_ahead(uses_, pass_.chunk, plan_.settings.optim.prefetch);
}

void ParameterWindow::end() { advance(std::numeric_limits<std::int64_t>::max()); }

}  // namespace ms::train
