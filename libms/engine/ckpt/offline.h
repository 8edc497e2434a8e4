// Checkpoints without a run: whole logical parameters out of one, and one written from memory, by one process. What
// ms-ckpt reshard, diff, import and export stand on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/load.h"

namespace ms::ckpt {

// The parameters of a checkpoint, whole, whatever layout wrote it. The same memory is never needed twice: one parameter
// at a time.
class Parameters {
 public:
  // `checkpoint`: the directory of one. Error("ckpt.path", user): no such directory; Error("ckpt.incomplete", storage):
  // it holds no complete checkpoint, with what look() says; or the files disagree, as PieceIndex says.
  explicit Parameters(std::string checkpoint);
  Parameters(const Parameters&) = delete;  // the index refers to the manifest
  Parameters& operator=(const Parameters&) = delete;

  struct Info {
    std::string name;
    std::int64_t rows = 0, cols = 0;                  // a vector has one row
    std::vector<State> states;                        // that are stored
    tensor::DType weight_dtype = tensor::DType::f32;  // of the weight, or of the first of `states`
  };
  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  const PieceIndex& index() const { return index_; }
  const std::vector<Info>& list() const { return list_; }  // by name
  const Info* find(const std::string& name) const;
  // One state of one parameter, in the type it is stored in, row by row; verified as it is read. Errors of load().
  void read(State state, const std::string& name, std::span<std::byte> to) const;
  // The parameter in f32: its master where there is one, else its weight, widened. It has one of them.
  std::vector<float> read_f32(const std::string& name) const;

 private:
  std::string path_;
  Manifest manifest_;
  PieceIndex index_;
  std::vector<Info> list_;
};

// A file to write: its pieces, at least one, and who fills piece i with its bytes, in their order.
struct OfflineFile {
  std::vector<Piece> pieces;
  std::function<void(std::size_t piece, std::span<std::byte> to)> fill;
};

// Writes and commits a checkpoint of `manifest.step` into `dir`, file by file, so that one file's bytes are in memory
// at a time; takes the directory's lock. Refuses where that step or a later one is there already, which commit() would
// set aside: Error("ckpt.exists", user). What fails leaves no checkpoint. `progress`: bytes of pieces filled so far.
// Returns its path.
std::string write_checkpoint(const std::string& dir, Manifest manifest, const std::vector<OfflineFile>& files,
                             const std::function<void(std::int64_t)>& progress = {});

}  // namespace ms::ckpt
