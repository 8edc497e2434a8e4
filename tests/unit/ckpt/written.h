// Checkpoints on disk for tests: a small model written as ranks of some layout would, every element its number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/offline.h"
#include "layouts.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::ckpt::layouts {

using test::slurp;
using test::spill;
using test::TempDir;
using test::thrown_by;

// A float that is exact in bf16 too, from an element's number.
inline float value_of(std::int64_t number) { return static_cast<float>(number % 256); }

// Fills pieces: weights with bf16 values, f32 states with the number times state.
inline void fill(const Piece& piece, std::span<std::byte> to) {
  for (std::int64_t i = 0; i < piece.slice.size(); ++i) {
    const float value = value_of(number(piece.slice, i)) + (piece.state == State::master ? 0.125F : 0.0F);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    put(to, piece.dtype, i, piece.dtype == tensor::DType::bf16 ? bits >> 16 : bits);
  }
}

inline std::vector<Param> small_model() {
  return {{"embed", 53, 12, Cut::padded_rows},
          {"norm", 1, 12, Cut::none},
          {"qkv", 36, 12, Cut::rows},
          {"bias", 1, 36, Cut::cols},
          {"out", 12, 36, Cut::cols}};
}

// Every rank's file: shares of the optimizer's f32 states, and weights in bf16, which dp rank 0 writes. What every tp
// rank holds is written by the first.
inline std::vector<OfflineFile> files_of(const std::vector<Param>& params, int tp, int dp) {
  std::vector<OfflineFile> files;
  for (int dp_rank = 0; dp_rank < dp; ++dp_rank) {
    for (int tp_rank = 0; tp_rank < tp; ++tp_rank) {
      std::vector<Piece> pieces;
      for (const State state : {State::master, State::exp_avg}) {
        for (const Slice& slice : owned(params, tp, tp_rank, dp, dp_rank)) {
          const bool replicated = slice.rows == slice.global_rows && slice.cols == slice.global_cols;
          if (tp_rank == 0 || !replicated) pieces.push_back({state, tensor::DType::f32, slice});
        }
      }
      for (const Param& param : params) {
        const mesh::ShardSpec spec = shard(param, tp, tp_rank);
        if (dp_rank > 0 || (spec.replicated && tp_rank > 0) || spec.logical_rows() == 0) continue;
        pieces.push_back({State::weight, tensor::DType::bf16, slice_of(spec, {0, spec.size()})});
      }
      if (pieces.empty()) continue;
      files.push_back(
          {.pieces = pieces, .fill = [pieces](std::size_t i, std::span<std::byte> to) { fill(pieces[i], to); }});
    }
  }
  return files;
}

inline Manifest manifest_at(std::int64_t step) {
  Manifest manifest;
  manifest.step = step;
  manifest.run = "0123456789abcdef";
  manifest.created = "2026-01-31T12:00:00Z";
  manifest.version = "0.1.0";
  manifest.dtype = "bf16";
  return manifest;
}

}  // namespace ms::ckpt::layouts
