#include "nn/tensor_parallel.h"

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

Tensor TensorParallel::gather_product(const Tensor& c, const Tensor& x, const Tensor& into, const Tensor& b,
                                      const Tensor& bias, bool transpose_b) const {
  const Tensor all = arrived(gather(x, into));
  compute.submit(Matmul{.c = c, .a = all, .b = b, .bias = bias, .transpose_b = transpose_b});
  return all;
}

Arriving TensorParallel::product_reduce(const Tensor& partial, const Tensor& reduced, const Tensor& a, const Tensor& b,
                                        bool transpose_b) const {
  compute.submit(Matmul{.c = partial, .a = a, .b = b, .bias = {}, .transpose_b = transpose_b});
  return reduce(partial, reduced);
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
