// What this machine can do, measured: a cluster file of one node whose ranks compute on its processors, as threads of a
// process. The operations that are timed are those that the engine issues for models of several sizes, on all
// processors at once, as in a run.
#pragma once

#include <functional>
#include <string_view>

#include "cost/cluster.h"
#include "tensor/tensor.h"

namespace ms::train {

struct CalibrateOptions {
  std::size_t sizes = 6;                      // of models, from the smallest
  int ranks = 0;                              // on the node; 0: as many as cores that may be used
  tensor::DType dtype = tensor::DType::bf16;  // of products and activations
  std::function<void(std::size_t, std::size_t)> progress = nullptr;  // operations timed, of how many
};

// Takes about half a minute; the machine should have nothing else to do.
cost::Cluster calibrate(const CalibrateOptions& options);

}  // namespace ms::train
