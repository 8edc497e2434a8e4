// What the serial and the parallel block are made of, each half of a block in a function; layer.cpp chooses between the
// two. Of this room only.
#pragma once

#include "nn/layer.h"

namespace ms::nn {

// acts.qkv -> acts.o; turns the queries and keys in acts.qkv.
void attention_forward(const Layer& layer);
// scratch.dattn -> grads.dqkv.
void attention_backward(const Layer& layer);
// acts.up -> acts.act.
void activation_forward(const Layer& layer);
// The gradient of the layer's output, dx, by the last product's weight and the activation -> grads.dup. What it gathers
// of dx goes `into`; it returns that, or dx where nothing is gathered.
Tensor activation_backward(const Layer& layer, const Tensor& dx, const Tensor& into);

// Of a product, with its largest magnitude where that is known.
struct Factor {
  Tensor value, largest;
};
// c = x W^T (+ bias), and the gradient of x, c = dy W: to be issued by layer.on, which may bring the factor's value.
tensor::Matmul forward_product(const Tensor& c, const Factor& x, const Weight& weight, const Weight& bias = {});
tensor::Matmul gradient_product(const Tensor& c, const Factor& dy, const Weight& weight);
// grad += dy^T x, and the sum of dy's rows; nothing where there is no bias.
void weight_gradient(const Layer& layer, const Weight& weight, const Factor& dy, const Factor& x);
void bias_gradient(const Layer& layer, const Weight& bias, const Tensor& dy);

// This rank's rows of a gathered [T,n]: [Ts,n].
Tensor own_rows(const Layer& layer, const Tensor& gathered);
// The gradient `gathered` (by gather_product(), into `into`) for later: where nothing was gathered, it is the dx that
// is about to change.
void keep_gradient(const Layer& layer, const Tensor& into, const Tensor& gathered);

// As the functions of layer.h that start with "layer".
Addends serial_forward(const Layer& layer, const Addends& addends);
void serial_backward(const Layer& layer, const Tensor& dx, WeightGradients when);
void serial_weight_gradients(const Layer& layer);
Addends parallel_forward(const Layer& layer, const Addends& addends);
void parallel_backward(const Layer& layer, const Tensor& dx, WeightGradients when);
void parallel_weight_gradients(const Layer& layer);

}  // namespace ms::nn
