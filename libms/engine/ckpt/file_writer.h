// One data file of a checkpoint: memory laid out as the file will be, filled by whoever has the data, then written.
// The skeleton that HDF5 makes is the same every time, so it is made once and its bytes are kept in the image.
#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "ckpt/blocks.h"
#include "ckpt/directory.h"
#include "ckpt/manifest.h"

namespace ms::ckpt {

class FileWriter {
 public:
  // `image`: page-aligned memory of at least image_bytes(size_bound(pieces)). Makes the skeleton in `scratch`, a
  // directory of the file system that the checkpoints go to, under a name of its own that is gone afterwards.
  FileWriter(const std::vector<Piece>& pieces, std::span<std::byte> image, const std::string& scratch);

  const FileLayout& layout() const { return layout_; }
  // Where piece i's data lies in the image: to be filled before write().
  std::span<std::byte> data(std::size_t i) const;
  // Creates `directory`/`name` from the image, durable when it returns (the directory's entry is not: commit() syncs
  // it). `report`, where given, receives what it cost.
  FileEntry write(const Directory& directory, const std::string& name, const std::stop_token& stop,
                  WriteReport* report = nullptr) const;

 private:
  FileLayout layout_;
  std::span<std::byte> image_;
};

// "rank-00003.h5".
std::string rank_file_name(int rank);

}  // namespace ms::ckpt
