// The ops of Muon (optim/muon.h), a part of the op list (tensor/ops.h, which tells what is common to all). It
// multiplies matrices by Matmul.
#pragma once

#include "tensor/op.h"

namespace ms::tensor {

// The momentum of Muon, and what Nesterov's form makes of it. All are flat [1,n]; m is f32, grad f32 or bf16, u bf16.
// With g = factor * grad:
//   m = m + (1 - momentum) (g - m);  u = g + momentum (m - g)
// factor 0 leaves everything unchanged.
struct MuonMomentum {
  MS_OP("muon_momentum", optimizer)
  Tensor u, m, grad, factor;
  float momentum = 0;
  void each(auto&& f) const {
    f(Access::read, grad), f(Access::read, factor), f(Access::write, m), f(Access::write, u);
  }
};

// Here and in Blend no tensor has gaps between its rows.
// y = x / max(norm, eps), with norm = sqrt(sum_squares f64 [1,1]) rounded to bf16. x and y are bf16; y may be x.
struct Normalize {
  MS_OP("normalize", optimizer)
  Tensor y, x, sum_squares;
  float eps = 0;
  void each(auto&& f) const { f(Access::read, x), f(Access::read, sum_squares), f(Access::write, y); }
};

// y = alpha a + beta b. y and a are bf16, b is f32; y may be a.
struct Blend {
  MS_OP("blend", optimizer)
  Tensor y, a, b;
  float alpha = 1, beta = 1;
  void each(auto&& f) const { f(Access::read, a), f(Access::read, b), f(Access::write, y); }
};

// w = w - lr (weight_decay w + scale u), with u in bf16; param, master and factor as in AdamW.
struct MuonApply {
  MS_OP("muon_apply", optimizer)
  Tensor param, master, u, factor;
  float lr = 0, weight_decay = 0, scale = 1;
  void each(auto&& f) const {
    f(Access::read, u), f(Access::read, factor), f(Access::write, param), f(Access::write, master);
  }
};

}  // namespace ms::tensor
