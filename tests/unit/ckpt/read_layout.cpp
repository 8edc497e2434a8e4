#include "read_layout.h"

#include <hdf5.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/handle.h"

namespace ms::ckpt {
namespace {

struct HidClose {
  using Type = hid_t;
  static constexpr hid_t null() { return -1; }
  static void destroy(hid_t id) noexcept {
    switch (H5Iget_type(id)) {
      case H5I_FILE: H5Fclose(id); break;
      case H5I_GROUP: H5Gclose(id); break;
      case H5I_DATASET: H5Dclose(id); break;
      case H5I_ATTR: H5Aclose(id); break;
      case H5I_DATASPACE: H5Sclose(id); break;
      default: H5Tclose(id);
    }
  }
};
using Hid = Handle<HidClose>;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}
Hid opened(hid_t id, const std::string& what) {
  expect(id >= 0, "HDF5 cannot open " + what);
  return Hid(id);
}

std::vector<std::int64_t> numbers(const Hid& object, const char* name) {
  const Hid attribute = opened(H5Aopen(object.get(), name, H5P_DEFAULT), name);
  const Hid space(H5Aget_space(attribute.get())), type(H5Aget_type(attribute.get()));
  expect(H5Tequal(type.get(), H5T_STD_I64LE) > 0, std::string(name) + " is no integer");
  std::vector<std::int64_t> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get())));
  expect(H5Aread(attribute.get(), H5T_NATIVE_INT64, values.data()) >= 0, name);
  return values;
}

std::string text(const Hid& object, const char* name) {
  const Hid attribute = opened(H5Aopen(object.get(), name, H5P_DEFAULT), name);
  const Hid type(H5Aget_type(attribute.get()));
  std::string value(H5Tget_size(type.get()), '\0');
  expect(H5Aread(attribute.get(), type.get(), value.data()) >= 0, name);
  return value;
}

std::vector<std::string> names_in(const Hid& group) {
  std::vector<std::string> names;
  const auto add = [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
    static_cast<std::vector<std::string>*>(to)->emplace_back(name);
    return 0;
  };
  expect(H5Literate(group.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names) >= 0, "a group");
  return names;
}

PlacedPiece read_piece(const Hid& group, State state, const std::string& name) {
  const Hid data = opened(H5Dopen2(group.get(), name.c_str(), H5P_DEFAULT), name);
  const Hid type(H5Dget_type(data.get())), space(H5Dget_space(data.get()));
  PlacedPiece placed;
  placed.offset = static_cast<std::int64_t>(H5Dget_offset(data.get()));
  placed.piece.state = state;
  placed.piece.dtype = H5Tget_size(type.get()) == 2 ? tensor::DType::bf16 : tensor::DType::f32;
  expect(H5Tget_class(type.get()) == H5T_FLOAT, name + " holds no floats");
  Slice& slice = placed.piece.slice;
  slice.name = text(data, "name");
  const auto shape = numbers(data, "global_shape"), block = numbers(data, "slice"),
             elements = numbers(data, "elements");
  expect(shape.size() == 2 && block.size() == 4 && elements.size() == 2, name + " has other attributes");
  slice.global_rows = shape[0], slice.global_cols = shape[1];
  slice.row0 = block[0], slice.rows = block[1], slice.col0 = block[2], slice.cols = block[3];
  slice.elements = {.begin = elements[0], .end = elements[1]};
  const bool is_whole = slice.size() == slice.rows * slice.cols;
  std::vector<hsize_t> dims(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space.get())));
  H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
  const std::vector<hsize_t> due =
      is_whole ? std::vector<hsize_t>{static_cast<hsize_t>(slice.rows), static_cast<hsize_t>(slice.cols)}
               : std::vector<hsize_t>{static_cast<hsize_t>(slice.size())};
  expect(dims == due, name + " has another shape than its slice");
  expect(name == slice.name || name == fmt::format("{}@{}", slice.name, first_index(slice)),
         name + " has another name");
  return placed;
}

}  // namespace

FileLayout read_layout(const std::string& path) {
  const Hid file = opened(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), path);
  hsize_t size = 0;
  H5Fget_filesize(file.get(), &size);
  FileLayout layout{.pieces = {}, .size_bytes = static_cast<std::int64_t>(size)};
  expect(numbers(file, "ms_checkpoint").size() == 1, "it has no version");
  for (const std::string& group_name : names_in(file)) {
    const auto state = state_from(group_name);
    expect(state.has_value(), "it has a group " + group_name);
    const Hid group = opened(H5Gopen2(file.get(), group_name.c_str(), H5P_DEFAULT), group_name);
    for (const std::string& name : names_in(group)) layout.pieces.push_back(read_piece(group, *state, name));
  }
  std::ranges::sort(layout.pieces, {}, &PlacedPiece::offset);
  return layout;
}

}  // namespace ms::ckpt
