#include "nn/tensor_parallel.h"

#include "tensor/matmul_blocks.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

// What the tp stream has been given last brings `result`.
Arriving TensorParallel::issued(const Tensor& result) const {
  const Event event = tp.stream().record();
  if (overlap) return {result, event};
  compute.wait(event);
  return {result, {}};
}

Arriving TensorParallel::gather(const Tensor& x, const Tensor& into) const {
  if (!scatters()) return {x, {}};
  tp.stream().wait(compute.record());
  tp.all_gather(into, x);
  return issued(into);
}

Arriving TensorParallel::reduce(const Tensor& partial, const Tensor& reduced) const {
  if (shape.tp == 1) return {partial, {}};
  tp.stream().wait(compute.record());
  if (!scatters()) {
    tp.all_reduce(partial);
    return issued(partial);
  }
  tp.reduce_scatter(reduced, partial);
  return issued(reduced);
}

void TensorParallel::find_largest(const Matmul& product) const {
  if (product.a_largest) compute.submit(Largest{product.a_largest, product.a});
}

void TensorParallel::product(Matmul product) const {
  product.factors = factors(!product.transpose_b);
  find_largest(product);
  compute.submit(product);
}

Tensor TensorParallel::gather_product(Matmul product, const Tensor& x, const Tensor& into) const {
  if (ring_used(shape, overlap)) {
    product.a = into;
    product.factors = factors(!product.transpose_b);
    Matmul in_pieces = product;
    in_pieces.a_largest = {};
    ring->gather_product(compute, in_pieces, x);
    find_largest(product);
    return into;
  }
  product.a = arrived(gather(x, into));
  this->product(product);
  return product.a;
}

Arriving TensorParallel::product_reduce(Matmul product, const Tensor& reduced) const {
  product.factors = factors(!product.transpose_b);
  find_largest(product);
  if (ring_used(shape, overlap)) return {reduced, ring->product_reduce(compute, product, reduced)};
  if (overlap && shape.tp > 1) return product_all_reduce(product);
  compute.submit(product);
  return reduce(product.c, reduced);
}

// Each piece is summed while the next is multiplied. The sum of an element is the same in a piece as in the whole.
Arriving TensorParallel::product_all_reduce(const Matmul& product) const {
  // What is left of the message behind the product is one piece of it. More pieces leave less, but small products are
  // slower.
  constexpr std::int64_t kPieces = 4;
  for (std::int64_t i = 0; i < kPieces; ++i) {
    const std::int64_t begin = product.c.rows * i / kPieces, rows = product.c.rows * (i + 1) / kPieces - begin;
    if (rows == 0) continue;
    const Matmul piece = matmul_block(product, begin, 0, {rows, product.c.cols});
    compute.submit(piece);
    reduce(piece.c, {});
  }
  return issued(product.c);
}

Tensor TensorParallel::arrived(const Arriving& arriving) const {
  if (arriving.event) compute.wait(arriving.event);
  return arriving.tensor;
}

void TensorParallel::gather_small(const Tensor& small, const Tensor& all) const {
  tp.stream().wait(compute.record());
  tp.all_gather(all, small);
  compute.wait(tp.stream().record());
}

}  // namespace ms::nn
