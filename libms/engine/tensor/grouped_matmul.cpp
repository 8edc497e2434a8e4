// Grouped matmuls on the CPU: one matmul after the other, each on the whole team.
//
// oneDNN compiles a kernel for each number of rows, and the experts of every step have other ones: where one of our own
// kernels does not compute a form, which all do of weights' gradients, rows go in blocks of a fixed size, and the rest
// is filled up with zeros to a multiple.
#include <algorithm>

#include "tensor/cpu/kernels.h"
#include "tensor/cpu_matmul.h"
#include "tensor/matmul_blocks.h"
#include "tensor/op_checks.h"

namespace ms::tensor {
namespace {

constexpr std::int64_t kBlockRows = 256, kMultiple = 32;

class FilledUp {
 public:
  // Room for x with its rows filled up.
  FilledUp(const Tensor& x, std::int64_t rows) : tensor{nullptr, rows, x.cols, x.cols, x.dtype} {
    tensor.data = static_cast<std::byte*>(scratch_allocate(static_cast<std::size_t>(tensor.size_bytes())));
  }
  ~FilledUp() { scratch_free(tensor.data); }
  FilledUp(const FilledUp&) = delete;
  FilledUp& operator=(const FilledUp&) = delete;

  void take(const Tensor& x) const {
    cpu_kernels().run(Copy{.dst = tensor.slice_rows(0, x.rows), .src = x});
    cpu_kernels().run(Fill{.x = tensor.slice_rows(x.rows, tensor.rows - x.rows)});
  }

  Tensor tensor;
};

std::int64_t up_to(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

void run_in_blocks(MatmulCache& matmuls, const Matmul& op) {
  Matmul block = op;
  for (std::int64_t row = 0; row < op.c.rows; row += kBlockRows) {
    const std::int64_t rows = std::min(kBlockRows, op.c.rows - row);
    block.a = op.a.slice_rows(row, rows), block.c = op.c.slice_rows(row, rows);
    if (rows % kMultiple == 0) {
      matmuls.run(block);
      continue;
    }
    const FilledUp a(block.a, up_to(rows, kMultiple)), c(block.c, up_to(rows, kMultiple));
    a.take(block.a);
    const Tensor result = block.c;
    block.a = a.tensor, block.c = c.tensor;
    matmuls.run(block);
    cpu_kernels().run(Copy{.dst = result, .src = c.tensor.slice_rows(0, rows)});
  }
}

}  // namespace

void MatmulCache::run(const GroupedMatmul& op) {
  check_op(op);
  for (std::int64_t expert = op.range.first; expert < op.range.end(op.experts()); ++expert) {
    const Matmul part = expert_matmul(op, expert, op.offsets.as<std::int32_t>());
    if (part.a.rows == 0) {
      if (op.transpose_a && !op.accumulate) cpu_kernels().run(Fill{.x = part.c});
    } else if (!cpu_kernels().matmul(part, [](const Matmul&) {})) {
      run_in_blocks(*this, part);
    }
  }
}

}  // namespace ms::tensor
