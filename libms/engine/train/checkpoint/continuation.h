// A run beside the checkpoint that it begins with: whether it may continue from there, and what has changed since.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/manifest.h"
#include "data/batch.h"
#include "data/chain.h"
#include "train/config.h"

namespace ms::train {

// Where a run begins.
struct Origin {
  std::int64_t step = 0;                      // steps done
  std::int64_t samples = 0;                   // of the data's order, trained on
  std::string path;                           // the checkpoint; empty: from the beginning
  bool restored = false;                      // the engine has its state
  std::int64_t bytes = 0, bytes_read = 0;     // of the checkpoint; from storage, by all ranks
  double seconds = 0;                         // that loading took
  std::string matmul_choices;                 // of the checkpoint
  std::string instruction_set;                // of the checkpoint; empty: a GPU, or not known
  std::string data_chain{data::kChainStart};  // of `samples`; empty: not known
  std::vector<data::Skip> skips;              // of the data's order
};

// A run that continues from a checkpoint, with the state of its optimizer. Local; what it refers to outlives it.
struct Continuation {
  const Settings& settings;     // of this run
  const std::string& resolved;  // the same as TOML
  const std::string& data;      // the fingerprint of its data

  // Error("ckpt.mismatch", user): the checkpoint is of another model. Error("ckpt.data", user): it was trained on other
  // data, and checkpoint.data is not "restart".
  void check(const ckpt::Manifest& manifest, const std::string& path) const;
  // Returns the origin that a restored checkpoint is. `bytes_read` and `seconds`: of loading it.
  Origin origin(const ckpt::Manifest& manifest, const std::string& path, double bytes_read, double seconds) const;
  // Logs where the run continues, and the settings that differ from those of the checkpoint. `source`: "memory".
  void log(const ckpt::Manifest& manifest, const Origin& origin, std::string_view source) const;

 private:
  bool has_other_files(const ckpt::Manifest& manifest) const;
  bool continues_data(const ckpt::Manifest& manifest) const;
};

}  // namespace ms::train
