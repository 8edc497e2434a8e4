// manifest.json: what a checkpoint is. It is written last; a directory without a sound one is no checkpoint. It lists
// every file with size, block hashes and pieces, so that a reader needs no other file to know what to read where.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/hdf5.h"

namespace ms::ckpt {

inline constexpr int kFormatVersion = 1;
inline constexpr std::string_view kManifestName = "manifest.json";

struct FileEntry {
  std::string name;  // "rank-00003.h5": plain, no directory
  std::int64_t size_bytes = 0;
  std::vector<std::uint64_t> hashes;  // xxh64 of every block of kBlockBytes
  std::vector<PlacedPiece> pieces;
};

// Where the run's data stands: samples [0, samples) of the order that seed and files give have been trained on, or
// skipped by rollbacks.
struct DataPosition {
  std::int64_t samples = 0;
  std::uint64_t seed = 0;
  std::string source;          // data::Loader::fingerprint(); empty: not known
  std::string chain = {};      // data/chain.h: of all samples trained on, 16 hexadecimal digits; empty: not known
  std::int64_t rollbacks = 0;  // that the run had made by then
};

struct Manifest {
  std::int64_t step = 0;  // optimizer steps done
  std::string run;        // id of the run that made it, 16 hexadecimal digits, kept when it resumes
  std::string created;    // UTC, "2026-01-31T12:00:00Z"
  std::string version;    // of the program
  std::string config;     // the resolved configuration, TOML
  int dp = 1, pp = 1, tp = 1, chunks = 1, zero = 0;  // of the run that wrote it
  std::string dtype;                                 // the compute type: "fp32", "bf16"
  DataPosition data;
  std::string rng = "philox4x32-10";  // the generator; its key is the seed of `data`
  bool has_optimizer = true;          // false of imported weights
  std::string matmul_choices;         // tensor::MatmulChoices of the run, as text; empty: none
  std::string instruction_set;        // of the CPU that computed, rank 0's: "avx512-bf16"; empty: a GPU, or not known
  std::vector<FileEntry> files;

  std::int64_t size_bytes() const;  // of all data files
};

// One file's entry as JSON text, and back: ranks send theirs to the one that writes the manifest.
std::string entry_to_json(const FileEntry& entry);
// An upper bound of entry_to_json's length for these pieces, whatever the offsets and hashes come out as.
std::size_t entry_json_bound(const std::string& name, const std::vector<Piece>& pieces, std::int64_t size_bytes);

// The whole document. Its last line holds the xxh64 of all bytes before that line. What a text holds beside UTF-8 (the
// configuration quotes the user's file) is replaced: a document that cannot be read would be worse.
std::string to_json(const Manifest& manifest);
std::string to_json(const Manifest& manifest_without_files, const std::vector<std::string>& entries);
// Throws Error("ckpt.manifest", storage): not JSON, hash wrong, a field missing or out of range, a file name with a
// directory in it, pieces beyond their file. Error("ckpt.version", user): a newer format than this program knows. Keys
// that it does not know are left aside: a version may gain such as older programs can do without.
// `path` is for messages.
Manifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace ms::ckpt
