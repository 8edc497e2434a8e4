// Tiny models for tests.
#pragma once

#include <string>

#include "nn/config.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::hf {

using test::names_in;
using test::slurp;
using test::spill;
using test::TempDir;
using test::thrown_by;

inline nn::ModelConfig tiny(const std::string& family, bool tied) {
  nn::ModelConfig model;
  model.family = family;
  model.layers = 2;
  model.hidden = 12;
  model.heads = 3;
  model.vocab = 11;
  model.seq = 7;
  model.tied_embeddings = tied;
  model.norm_eps = 1e-3;
  if (family == "llama") {
    model.hidden = 16, model.heads = 4, model.kv_heads = 2, model.ffn_hidden = 20, model.rotary_base = 500;
  }
  return model;
}

}  // namespace ms::hf
