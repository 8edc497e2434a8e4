#include "nn/context.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

// Calls f(first row by rank, first row in order, rows) for the pieces of all sequences, rank by rank.
template <class F>
void each_piece(const Shape& shape, F&& f) {
  std::int64_t by_rank = 0;
  for (int rank = 0; rank < shape.cp; ++rank) {
    for (int i = 0; i < shape.pieces(); ++i) {
      for (std::int64_t b = 0; b < shape.batch; ++b, by_rank += shape.piece())
        f(by_rank, b * shape.model->seq + shape.first_of_piece(i, rank), shape.piece());
    }
  }
}

void put_in_order(const TensorParallel& on, const Tensor& in_order, const Tensor& by_rank) {
  each_piece(on.shape, [&](std::int64_t from, std::int64_t to, std::int64_t rows) {
    on.compute.submit(Copy{in_order.slice_rows(to, rows), by_rank.slice_rows(from, rows)});
  });
}
void put_by_rank(const TensorParallel& on, const Tensor& by_rank, const Tensor& in_order) {
  each_piece(on.shape, [&](std::int64_t to, std::int64_t from, std::int64_t rows) {
    on.compute.submit(Copy{by_rank.slice_rows(to, rows), in_order.slice_rows(from, rows)});
  });
}

// Issues messages behind all compute before them; later compute waits for them.
template <class F>
void exchange(const TensorParallel& on, F&& issue) {
  on.cp->stream().wait(on.compute.record());
  issue(*on.cp);
  on.compute.wait(on.cp->stream().record());
}

// Calls f(columns of a block that are of the heads of a rank, that rank, where they begin in what goes to it).
template <class F>
void each_share(const Shape& shape, std::span<const Tensor> blocks, F&& f) {
  std::int64_t column = 0;
  for (const Tensor& block : blocks) {
    const std::int64_t cols = block.cols / shape.cp;
    for (int rank = 0; rank < shape.cp; ++rank) f(block.slice_cols(rank * cols, cols), rank, column);
    column += cols;
  }
}

// Returns as much of the memory of `buffer` as that has elements, as [S,cols].
Tensor as_rows(const Shape& shape, const Tensor& buffer, std::int64_t cols) {
  const std::int64_t rows = shape.tokens() * shape.cp;
  return buffer.slice_cols(0, rows * cols).reshape(rows, cols);
}

}  // namespace

std::vector<std::int32_t> exchange_offsets(const Shape& shape) {
  std::vector<std::int32_t> offsets;
  for (int rank = 0; rank < shape.cp; ++rank) {
    for (int to = 0; to <= shape.cp; ++to) offsets.push_back(static_cast<std::int32_t>(to * shape.tokens()));
  }
  return offsets;
}

Heads gather_keys(const Layer& layer, const Heads& own) {
  const TensorParallel& on = layer.on;
  const ContextScratch& context = layer.scratch.context;
  const std::int64_t cols = own.k.cols;
  on.compute.submit(Copy{context.own.slice_cols(0, cols), own.k});
  on.compute.submit(Copy{context.own.slice_cols(cols, cols), own.v});
  exchange(on, [&](comm::Communicator& cp) { cp.all_gather(context.by_rank, context.own); });
  put_in_order(on, context.all, context.by_rank);
  return {own.q, context.all.slice_cols(0, cols), context.all.slice_cols(cols, cols)};
}

void reduce_key_gradients(const Layer& layer, const Heads& own) {
  const TensorParallel& on = layer.on;
  const ContextScratch& context = layer.scratch.context;
  const std::int64_t cols = own.k.cols;
  put_by_rank(on, context.by_rank, context.dall);
  exchange(on, [&](comm::Communicator& cp) { cp.reduce_scatter(context.own, context.by_rank); });
  on.compute.submit(Copy{own.k, context.own.slice_cols(0, cols)});
  on.compute.submit(Copy{own.v, context.own.slice_cols(cols, cols)});
}

void tokens_to_heads(const Layer& layer, std::span<const Tensor> blocks, const Tensor& in_order) {
  const TensorParallel& on = layer.on;
  const ContextScratch& context = layer.scratch.context;
  const Tensor sent = as_rows(on.shape, context.own, in_order.cols);
  const Tensor received = as_rows(on.shape, context.by_rank, in_order.cols);
  const std::int64_t tokens = on.shape.tokens();
  each_share(on.shape, blocks, [&](const Tensor& share, int rank, std::int64_t column) {
    on.compute.submit(Copy{sent.slice_rows(rank * tokens, tokens).slice_cols(column, share.cols), share});
  });
  exchange(on, [&](comm::Communicator& cp) { cp.all_to_all(received, sent, context.offsets, false); });
  put_in_order(on, in_order, received);
}

void heads_to_tokens(const Layer& layer, const Tensor& in_order, std::span<const Tensor> blocks) {
  const TensorParallel& on = layer.on;
  const ContextScratch& context = layer.scratch.context;
  const Tensor sent = as_rows(on.shape, context.own, in_order.cols);
  const Tensor received = as_rows(on.shape, context.by_rank, in_order.cols);
  const std::int64_t tokens = on.shape.tokens();
  put_by_rank(on, sent, in_order);
  exchange(on, [&](comm::Communicator& cp) { cp.all_to_all(received, sent, context.offsets, true); });
  each_share(on.shape, blocks, [&](const Tensor& share, int rank, std::int64_t column) {
    on.compute.submit(Copy{share, received.slice_rows(rank * tokens, tokens).slice_cols(column, share.cols)});
  });
}

}  // namespace ms::nn
