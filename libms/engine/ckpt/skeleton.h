// The HDF5 structure of a data file against that of the manifest's pieces. The same pieces make the same bytes, so they
// are compared as bytes: HDF5 reads nothing, for crafted metadata breaks its memory however right the hashes are.
#pragma once

#include <string>

#include "ckpt/manifest.h"

namespace ms::ckpt {

// Returns what is wrong with the file of this entry, data apart; empty: nothing. Its size is the entry's. Throws
// Error("ckpt.read", storage) where it cannot be read, Error("ckpt.write", storage) where there is no room for the
// other structure among temporary files.
std::string structure_problem(const FileEntry& entry, const std::string& path);

}  // namespace ms::ckpt
