// Implements the diagrams in ring.h with ops and events. A stream that waits for no event accesses only its own data.
#include "nn/ring.h"

#include "tensor/matmul_blocks.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

Tensor rows_of(const Tensor& x, int block, int blocks) {
  const std::int64_t rows = x.rows / blocks;
  return x.slice_rows(block * rows, rows);
}

Matmul rows_of(const Matmul& matmul, int block, int blocks) {
  const std::int64_t rows = matmul.c.rows / blocks;
  return matmul_block(matmul, block * rows, 0, {rows, matmul.c.cols});
}

}  // namespace

void Ring::gather_matmul(Stream& compute, const Matmul& matmul, const Tensor& x) const {
  const Tensor& into = matmul.a;
  const Event ready = compute.record();  // x is complete, and `into` may be overwritten
  out.stream().wait(ready);
  in.stream().wait(ready);

  // x is multiplied and sent in place, without a copy into `into` first.
  Matmul own = rows_of(matmul, rank, size);
  own.a = x;
  compute.submit(own);
  out.send(x);
  for (int step = 1; step < size; ++step) {
    const int block = before(step);
    const Tensor arriving = rows_of(into, block, size);
    in.recv(arriving);
    const Event arrived = in.stream().record();
    compute.wait(arrived);
    compute.submit(rows_of(matmul, block, size));
    if (step == size - 1) break;  // the next rank has this block: its own
    out.stream().wait(arrived);
    out.send(arriving);
  }
  out.stream().submit(Copy{.dst = rows_of(into, rank, size), .src = x});
  compute.wait(out.stream().record());
}

Event Ring::matmul_reduce(Stream& compute, const Matmul& matmul, const Tensor& reduced) const {
  for (int step = 0; step < size; ++step) {
    const int block = before(step + 1);
    compute.submit(rows_of(matmul, block, size));
    const Event multiplied = compute.record();
    const Tensor sum = rows_of(matmul.c, block, size);
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
