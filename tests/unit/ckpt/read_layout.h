// What HDF5 itself reads in a file that make_skeleton() made: names, types, shapes, places and attributes.
#pragma once

#include <string>

#include "ckpt/hdf5.h"

namespace ms::ckpt {

// In the order of offsets; a std::runtime_error where the library refuses the file, or it holds something else.
FileLayout read_layout(const std::string& path);

}  // namespace ms::ckpt
