// Implements the diagrams in ring.h with ops and events. A stream that waits for no event accesses only its own data.
#include "nn/ring.h"

#include "tensor/matmul_blocks.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

Tensor block_of(const Tensor& x, int block, int blocks) {
  const std::int64_t rows = x.rows / blocks;
  return x.slice_rows(block * rows, rows);
}

}  // namespace

Matmul Ring::rows_of(const Matmul& matmul, int block) const {
  const std::int64_t rows = matmul.c.rows / size;
  Matmul part = matmul_block(matmul, block * rows, 0, {rows, matmul.c.cols});
  part.beside = out.group().width + in.group().width;
  return part;
}

void Ring::gather_matmul(Stream& compute, const Matmul& matmul, const Tensor& x) const {
  const Tensor& into = matmul.a;
  const Event ready = compute.record();  // x is complete, and `into` may be overwritten
  out.stream().wait(ready);
  in.stream().wait(ready);

  // x is multiplied and sent in place, without a copy into `into` first.
  Matmul own = rows_of(matmul, rank);
  own.a = x;
  compute.submit(own);
  out.send(x);
  for (int step = 1; step < size; ++step) {
    const int block = before(step);
    const Tensor arriving = block_of(into, block, size);
    in.recv(arriving);
    const Event arrived = in.stream().record();
    compute.wait(arrived);
    compute.submit(rows_of(matmul, block));
    if (step == size - 1) break;  // the next rank has this block: its own
    out.stream().wait(arrived);
    out.send(arriving);
  }
  out.stream().submit(Copy{.dst = block_of(into, rank, size), .src = x});
  compute.wait(out.stream().record());
}

Event Ring::matmul_reduce(Stream& compute, const Matmul& matmul, const Tensor& reduced) const {
  for (int step = 0; step < size; ++step) {
    const int block = before(step + 1);
    compute.submit(rows_of(matmul, block));
    const Event multiplied = compute.record();
    const Tensor sum = block_of(matmul.c, block, size);
    if (step == 0) {
      out.stream().wait(multiplied);
    } else {
      in.recv(received);  // overlaps the matmul
      in.stream().wait(multiplied);
      in.stream().submit(Add{.y = step == size - 1 ? reduced : sum, .a = received, .b = sum, .bias = {}});
      if (step == size - 1) break;
      out.stream().wait(in.stream().record());
    }
    out.send(sum);
  }
  in.stream().wait(out.stream().record());
  return in.stream().record();
}

}  // namespace ms::nn
