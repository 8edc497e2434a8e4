// The rollbacks of a run: how often a guard sent it back to a checkpoint, and which samples it leaves out since. They
// lie beside the checkpoints, in rollbacks.json, which is written before anything follows from it: a start after a
// kill at any moment leaves out the same samples, and uses no checkpoint of the time that was left.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/manifest.h"
#include "data/batch.h"

namespace ms::train {

struct Rollback {
  std::int64_t at = 0;      // the step that caused it, from 1
  data::Skip skip = {};     // its step is that of the checkpoint
  std::string source = {};  // the fingerprint of the data that `skip` is of,
  std::uint64_t seed = 0;   // and its seed
  std::string why = {};
  bool operator==(const Rollback&) const = default;
};

std::string rollbacks_path(const std::string& checkpoint_dir);
std::string to_json(const std::vector<Rollback>& rollbacks);
// From the oldest to the newest; of an empty text none. Error("ckpt.rollbacks", storage).
std::vector<Rollback> parse_rollbacks(std::string_view text, const std::string& path);
// Those of a directory; none where there is no file.
std::string read_rollbacks(const std::string& checkpoint_dir);

// Returns what the run leaves out of the data of this fingerprint and seed, by step. A rollback to the same step as an
// earlier one, or to one before it, takes its place. Pure.
std::vector<data::Skip> skips_of(const std::vector<Rollback>& rollbacks, const std::string& source, std::uint64_t seed);

// Throws Error("ckpt.rollbacks", user) where a checkpoint was saved after more rollbacks than these: their file was
// lost.
void require_all(const std::string& checkpoint_dir, const std::vector<Rollback>& rollbacks);

// Returns whether a rollback has left the time in which this checkpoint was saved. Pure.
bool is_left(const std::vector<Rollback>& rollbacks, const ckpt::Manifest& manifest);
// Sets such checkpoints aside, and returns where they are; empty: there are none. The directory is locked.
std::string set_left_aside(const std::string& checkpoint_dir, const std::vector<Rollback>& rollbacks);

}  // namespace ms::train
