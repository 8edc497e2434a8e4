// Measures this machine and describes it in a cluster file: one node whose ranks compute on its processors, as threads
// of one process. Operations are timed within training steps of models of several sizes, with all ranks at work: on
// memory as warm as a step leaves it, beside all other work of a run.
#pragma once

#include <functional>

#include "cost/cluster.h"
#include "tensor/tensor.h"

namespace ms::train {

struct CalibrateOptions {
  std::size_t sizes = 6;                      // of models, from the smallest
  int ranks = 0;                              // on the node; 0: as many as cores that may be used
  tensor::DType dtype = tensor::DType::bf16;  // of operands and activations
  std::function<void(std::size_t, std::size_t)> progress = nullptr;  // models timed, of how many
};

// Takes half a minute to two, more with more ranks than cores; the machine should have nothing else to do.
cost::Cluster calibrate(const CalibrateOptions& options);

}  // namespace ms::train
