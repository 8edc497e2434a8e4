// Muon (Jordan et al. 2024; Liu et al. 2025, arXiv 2502.16982), a row of optim/optimizer.h: the update of a matrix is
// its momentum with all singular values brought near 1. torch.optim.Muon is the reference, but for last bits. The other
// parameters have AdamW. What is done with a whole matrix is here; matrix_updates.h brings the matrices together.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "optim/optimizer.h"

namespace ms::optim {

// Tensors that orthogonalize() works in.
struct MatrixScratch {
  tensor::Tensor multiplied;    // f32 [1,n], n elements of the largest matrix
  tensor::Tensor gram;          // bf16 [1,k], k the square of the longest short side
  tensor::Tensor gram_squared;  // f32 [1,k]
  tensor::Tensor sum_squares;   // f64 [1,1]
};
MatrixScratch carve_matrix_scratch(tensor::Arena& arena, std::int64_t elements, std::int64_t short_side);

// Moves the momentum of update.param's elements and stores what is to be orthogonalized, bf16 [1,n].
void issue_momentum(tensor::Stream& stream, const Update& update, const tensor::Tensor& direction);
// Replaces x, bf16 [m,n] without gaps, by U S V^T if x is U D V^T, with S between about 0.7 and 1.2: five steps of
// Newton-Schulz's iteration in bf16 with sums in f32. Zeros stay zeros.
void orthogonalize(tensor::Stream& stream, const tensor::Tensor& x, const MatrixScratch& scratch);
double orthogonalize_flops(std::int64_t rows, std::int64_t cols);
// Subtracts those elements of the orthogonalized matrix of rows x cols from the parameter.
void issue_muon_step(tensor::Stream& stream, const Update& update, const tensor::Tensor& direction, std::int64_t rows,
                     std::int64_t cols);

// Returns what a user has to know, for ms-train(1).
std::vector<std::pair<std::string, std::string>> muon_manual();

}  // namespace ms::optim
