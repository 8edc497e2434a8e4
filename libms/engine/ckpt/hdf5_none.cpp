// In a build without HDF5: what hdf5.h declares, refused. A manifest and its blocks can be read all the same.
#include "base/error.h"
#include "ckpt/hdf5.h"

namespace ms::ckpt {

namespace {

Error not_built() {
  return user_error("ckpt.hdf5", "this build of ms has no HDF5, in which checkpoints are kept",
                    "install libhdf5-dev and build with -DMS_HDF5=ON, or train without [checkpoint]");
}

}  // namespace

FileLayout make_skeleton(const std::string&, const std::vector<Piece>&) { throw not_built(); }

std::int64_t size_bound(const std::vector<Piece>&) { throw not_built(); }

}  // namespace ms::ckpt
