// The registry of optimizers that [optim] name can name. An optimizer is one file (adamw.cpp, ...) that defines its
// row, and one line in optimizer.cpp. The configuration, its documentation, the memory plan, checkpoints and sharded.h
// iterate over the rows or ask the configured one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optim/config.h"
#include "tensor/stream.h"

namespace ms::optim {

// Neighbouring elements of a span that one update covers. All tensors are flat [1,n] f32 unless stated otherwise.
struct Update {
  const OptimConfig& config;
  std::int64_t step;  // from 0
  float lr;
  float weight_decay;                  // 0 for parameters without decay
  tensor::Tensor param;                // in the compute type
  tensor::Tensor master;               // absent where the compute type is f32
  tensor::Tensor grad;                 // f32 or bf16
  tensor::Tensor factor;               // [1,1]: of clipping, multiplies grad; 0 leaves everything as it is
  std::vector<tensor::Tensor> states;  // as OptimizerKind::states
  // f64 [1,OptimizerKind::sums] of the whole parameter; absent where it has none, and in issue_sums() where another tp
  // rank counts these elements.
  tensor::Tensor sums;
};

// A row.
struct OptimizerKind {
  std::string_view name;
  std::string_view doc;  // a clause for ms.toml(5)
  // One tensor each for every parameter, by the names of their states in checkpoints (ckpt::State): f32 unless
  // optim.moments_dtype has another type, which `takes_bf16` allows.
  std::span<const std::string_view> states;
  // Those of matrices of layers (ParamRange::matrix) in place of `states`, where the optimizer takes such matrices
  // whole: matrix_updates.h updates them. Empty: it does not.
  std::span<const std::string_view> matrix_states = {};
  // How many f64 sums over all elements of a parameter its update needs: 0, or of the parameters with weight decay so
  // many. Those parameters are updated one by one.
  int sums = 0;
  bool takes_bf16 = false;
  // Adds these elements' part to `update.sums`; afterwards they are summed over the ranks. Null where `sums` is 0.
  void (*issue_sums)(tensor::Stream& stream, const Update& update) = nullptr;
  void (*issue_update)(tensor::Stream& stream, const Update& update);
};

// Returns the names of all states of an optimizer: `states`, then `matrix_states`.
std::vector<std::string_view> state_names(const OptimizerKind& kind);
// Tells whether a parameter has the state at that place of state_names().
bool has_state(const OptimizerKind& kind, std::size_t state, bool is_matrix);

std::span<const OptimizerKind* const> optimizer_kinds();
// The name must be a registered one, which the configuration makes sure of.
const OptimizerKind& optimizer_kind(std::string_view name);
// The documentation of all rows: "adamw: ...; lamb: ...".
std::string optimizer_docs();

}  // namespace ms::optim
