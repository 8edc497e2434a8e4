// The ring of a tp group under sequence parallelism: an all-gather pipelined with the matmul that follows it, and a
// reduce-scatter with the matmul before it, row block by row block. Called by TensorParallel. The transfer of one step
// overlaps the matmul of the next block; compute issues matmuls back to back.
//
// Block b is the rows [b Ts, (b+1) Ts) of a [T,n]: those of tp rank b. In one step every rank sends one block to the
// next rank and receives one from the previous, so that all links are always busy. For tp 3, on rank 0, time running to
// the right (g: this rank's partial sums of a block; G: those of all ranks so far):
//
//   gather_matmul    out      send 0  send 2         copy 0
//                    in       recv 2  recv 1
//                    compute  x0 b    x2 b    x1 b
//   matmul_reduce    compute  g2      g1      g0
//                    in               recv 1  G1+g1  recv 0  G0+g0 (the sum, at its owner)
//                    out              send 2         send 1
//
// Why this cannot deadlock although a send completes only when it is matched: each direction has its own stream. A
// rank's k-th receive needs its neighbour's k-th send, which needs that rank's matmuls (they wait for nothing later)
// and its receive k - 1. By induction over k all are reached, for any number of ranks.
#pragma once

#include "comm/communicator.h"
#include "tensor/stream.h"

namespace ms::nn {

struct Ring {
  comm::Communicator& out;  // to the next tp rank
  comm::Communicator& in;   // from the previous one, on another stream than `out`
  tensor::Tensor received;  // [Ts,H], owned by the ring
  int rank, size;           // in the tp group

  // Issues the matmul with a = `into`, which receives x[Ts,n] of every rank. On return, work issued to compute
  // afterwards may use the result and may overwrite x and `into`.
  void gather_matmul(tensor::Stream& compute, const tensor::Matmul& matmul, const tensor::Tensor& x) const;
  // Issues `reduced`[Ts,H] = this rank's block of the sum of the matmuls over tp; matmul.c is overwritten. The event is
  // reached when `reduced` is complete and the operands and c may be overwritten: all but the matmuls runs on the
  // ring's streams. Block b is summed in the order of ranks b+1, b+2, .., b. In bf16 every matmul and every sum of two
  // is rounded (size + size - 1 times a value, against size + 1 if the sum is computed at once in f32).
  tensor::Event matmul_reduce(tensor::Stream& compute, const tensor::Matmul& matmul,
                              const tensor::Tensor& reduced) const;

 private:
  // Returns a block's rows of the matmul, which runs while blocks are on their way.
  tensor::Matmul rows_of(const tensor::Matmul& matmul, int block) const;
  // Returns the block `steps` ranks before this rank's own.
  int before(int steps) const { return (rank + size - steps) % size; }
};

}  // namespace ms::nn
