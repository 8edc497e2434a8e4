// The ring of a tp group under sequence parallelism: an all-gather pipelined with the product that follows it, and a
// reduce-scatter with the product before it, row block by row block. Called by TensorParallel. What one step sends
// travels while the next block is multiplied; compute issues products back to back.
//
// Block b is the rows [b Ts, (b+1) Ts) of a [T,n]: those that belong to tp rank b. In one step every rank sends one
// block to the next rank and receives one from the previous, so that all links are busy all the time. For tp 3, on
// rank 0, time running to the right (g: this rank's partial sums of a block; G: those of ranks before it, too):
//
//   gather_product   out      send 0  send 2         copy 0
//                    in       recv 2  recv 1
//                    compute  x0 b    x2 b    x1 b
//   product_reduce   compute  g2      g1      g0
//                    in               recv 1  G1+g1  recv 0  G0+g0 (the sum, at its owner)
//                    out              send 2         send 1
//
// Why it cannot stop although a send completes only when it is matched: each way has a stream of its own, and what a
// rank's k-th receive needs is its neighbour's k-th send, which needs that rank's products (they wait for nothing that
// comes later) and its receive k - 1: by induction over k all are reached, for any number of ranks.
#pragma once

#include "comm/communicator.h"
#include "tensor/stream.h"

namespace ms::nn {

struct Ring {
  comm::Communicator& out;  // to the next tp rank
  comm::Communicator& in;   // from the previous one, on another stream than `out`
  tensor::Tensor received;  // [Ts,H] of the ring's own
  int rank, size;           // in the tp group

  // The product, its a being `into`, which is to hold x[Ts,n] of every rank. On return compute has all of it, and x and
  // `into` are free again.
  void gather_product(tensor::Stream& compute, const tensor::Matmul& product, const tensor::Tensor& x) const;
  // `reduced`[Ts,H] = this rank's block of the sum over tp of the products; product.c is lost. Reached when reduced is
  // there and both are free again: all but the products runs on the ring's streams.
  // Block b is summed in the order of ranks b+1, b+2, .., b; in bf16 every product and every sum of two is rounded
  // (size + size - 1 times a value, against size + 1 where the sum is made at once in f32).
  tensor::Event product_reduce(tensor::Stream& compute, const tensor::Matmul& product,
                               const tensor::Tensor& reduced) const;

 private:
  // The block `steps` ranks before this rank's own.
  int before(int steps) const { return (rank + size - steps) % size; }
};

}  // namespace ms::nn
