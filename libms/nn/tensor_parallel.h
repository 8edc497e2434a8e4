// Tensor and sequence parallelism: the messages between the tp ranks that stand around the products of a layer, on the
// group's own streams, and how much of them lies under compute. Layers say what they need and when they need it;
// whether a message is split and overlapped is decided here alone.
//
// Legend as in layer.h. Without sequence parallelism Ts = T: a gather is nothing, a reduction leaves the sum
// everywhere.
//
// Bits: overlap changes those of product_reduce() under sequence parallelism, where the sum over tp is then made in the
// order of the ring (ring.h, also for how bf16 is rounded), and there with fp8 those of gather_product(). Everything
// else keeps them, given that rows of a product stand alone (tensor/cpu_matmul.h).
#pragma once

#include "comm/communicator.h"
#include "nn/ring.h"
#include "nn/shape.h"
#include "tensor/stream.h"

namespace ms::nn {

// A tensor that is on its way: compute may use it after TensorParallel::arrived().
struct Arriving {
  Tensor tensor;
  tensor::Event event;  // absent: it is there
};

struct TensorParallel {
  tensor::Stream& compute;
  comm::Communicator& tp;
  const Shape& shape;
  // Overlap messages with compute. Off: compute waits for each message where it is issued.
  bool overlap = false;
  const Ring* ring = nullptr;  // there where ring_used()
  // Round the factors of products to eight bits, which layers may want and the head does not. The pieces of a factor
  // that a ring gathers are multiplied as they come, each with a scale of its own.
  bool fp8 = false;

  // All of these are collective over the tp group and issue only. What they write, named `into`, `partial` and
  // `reduced`, or what a product makes, is the caller's until it is used.

  // x[Ts,n] of every rank -> [T,n], in `into`; x itself where there is nothing to gather.
  Arriving gather(const Tensor& x, const Tensor& into) const;
  // Of products whose first factor is an activation, or the gradient of one.
  tensor::Factors factors(bool is_gradient) const {
    if (!fp8) return tensor::Factors::as_given;
    return is_gradient ? tensor::Factors::fp8_gradient : tensor::Factors::fp8;
  }

  // Partial sums [T,n] -> their sum over tp, [Ts,n]: in place, or in `reduced` under sequence parallelism.
  Arriving reduce(const Tensor& partial, const Tensor& reduced) const;
  // The product, of nobody else's rows. First product.a_largest, where it is there, becomes the largest magnitude of
  // product.a, for this product and others; so it does in the two that follow.
  void product(tensor::Matmul product) const;
  // The product, whose a is gather(x)[T,K]: a column-parallel product's forward, b transposed, or a row-parallel one's
  // input gradient, where x is a gradient. Returns gather(x); what the product makes and it are complete for compute.
  Tensor gather_product(tensor::Matmul product, const Tensor& x, const Tensor& into) const;
  // reduce(product), of an a[T,K]: a row-parallel product's forward, b transposed, or a column-parallel one's input
  // gradient, where a is a gradient. The product's c is the partial sum; where it accumulates, another product shares
  // the reduction.
  Arriving product_reduce(tensor::Matmul product, const Tensor& reduced) const;
  // Compute waits for it.
  Tensor arrived(const Arriving& arriving) const;
  // small[1,n] of all tp ranks -> all[tp,n].
  void gather_small(const Tensor& small, const Tensor& all) const;

  static bool ring_used(const Shape& shape, bool overlap) { return overlap && shape.sequence_parallel && shape.tp > 1; }

 private:
  void find_largest(const tensor::Matmul& product) const;
  bool scatters() const { return shape.sequence_parallel && shape.tp > 1; }
  Arriving issued(const Tensor& result) const;
  Arriving product_all_reduce(const tensor::Matmul& product) const;
};

}  // namespace ms::nn
