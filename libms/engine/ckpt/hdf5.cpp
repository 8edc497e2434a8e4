// HDF5 as skeletons. What makes the bytes the same every time: object headers without times, the format of version 1.8
// (which also has a checksum on every piece of metadata, so that a damaged file is refused rather than believed), one
// block in front for all metadata, and data laid out in the order of the pieces.
#include "ckpt/hdf5.h"

#include <hdf5.h>

#include <array>
#include <map>
#include <utility>

#include "base/handle.h"
#include "base/text.h"
#include "ckpt/manifest.h"

namespace ms::ckpt {

namespace {

constexpr const char* kVersionAttribute = "ms_checkpoint";

template <herr_t (*Close)(hid_t)>
struct HidTraits {
  using Type = hid_t;
  static constexpr hid_t null() { return -1; }
  static void destroy(hid_t id) noexcept { Close(id); }
};
using H5File = Handle<HidTraits<H5Fclose>>;
using H5Group = Handle<HidTraits<H5Gclose>>;
using H5Dataset = Handle<HidTraits<H5Dclose>>;
using H5Attribute = Handle<HidTraits<H5Aclose>>;
using H5Space = Handle<HidTraits<H5Sclose>>;
using H5Type = Handle<HidTraits<H5Tclose>>;
using H5Properties = Handle<HidTraits<H5Pclose>>;

// Keeps the first message of the library's error stack, the innermost: the outer ones only say that they failed too.
herr_t keep_innermost(unsigned depth, const H5E_error2_t* error, void* words) {
  if (depth == 0 && error->desc != nullptr) *static_cast<std::string*>(words) = error->desc;
  return 0;
}

// One call of this file's functions: the file it is about, and the library's own error printing off in this thread.
class Session {
 public:
  explicit Session(const std::string& path) : path_(path) {
    // Everything is closed where it was opened. The library's own cleanup at exit goes wrong after a damaged file: it
    // prints that it loops.
    [[maybe_unused]] static const herr_t once = H5dont_atexit();
    hbool_t threadsafe = 0;
    if (H5is_library_threadsafe(&threadsafe) < 0 || threadsafe == 0) {
      throw user_error("ckpt.hdf5",
                       "this HDF5 is not thread-safe, and checkpoints are written while training continues",
                       "build ms with Debian's libhdf5-dev, or an HDF5 that was configured with --enable-threadsafe");
    }
    H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error("ckpt.hdf5", Blame::storage, fmt::format("{}: {}", path_, what));
  }
  // Returns the result of a library call; a negative one fails with the innermost message of the error stack.
  template <class T>
  T check(T result, const char* doing) const {
    if (result >= 0) return result;
    std::string words;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &words);
    fail(fmt::format("HDF5 cannot {}: {}", doing, plain_text(words, 300)));
  }

 private:
  const std::string& path_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

H5Type file_type(const Session& h5, tensor::DType dtype) {
  H5Type type(h5.check(H5Tcopy(H5T_IEEE_F32LE), "make a type"));
  if (dtype == tensor::DType::bf16) {  // the upper half of a float: the library has no such type of its own
    h5.check(H5Tset_fields(type.get(), 15, 7, 8, 0, 7), "make a type");
    h5.check(H5Tset_size(type.get(), 2), "make a type");
    h5.check(H5Tset_ebias(type.get(), 127), "make a type");
  }
  return type;
}

H5Space space(const Session& h5, const std::vector<hsize_t>& dims) {
  return H5Space(h5.check(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), "make a data space"));
}

std::vector<hsize_t> dims_of(const Slice& slice) {
  if (slice.size() != slice.rows * slice.cols) return {static_cast<hsize_t>(slice.size())};
  return {static_cast<hsize_t>(slice.rows), static_cast<hsize_t>(slice.cols)};
}

void write_numbers(const Session& h5, hid_t object, const char* name, hid_t of_size,
                   std::span<const std::int64_t> numbers) {
  const H5Attribute attribute(
      h5.check(H5Acreate2(object, name, H5T_STD_I64LE, of_size, H5P_DEFAULT, H5P_DEFAULT), "make an attribute"));
  h5.check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, numbers.data()), "write an attribute");
}

void write_text(const Session& h5, hid_t object, const char* name, const std::string& text) {
  const H5Type type(h5.check(H5Tcopy(H5T_C_S1), "make a type"));
  h5.check(H5Tset_size(type.get(), text.size()), "make a type");
  h5.check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "make a type");
  const H5Space scalar(h5.check(H5Screate(H5S_SCALAR), "make a data space"));
  const H5Attribute attribute(
      h5.check(H5Acreate2(object, name, type.get(), scalar.get(), H5P_DEFAULT, H5P_DEFAULT), "make an attribute"));
  h5.check(H5Awrite(attribute.get(), type.get(), text.data()), "write an attribute");
}

// Returns the size of the block in front of the data that holds all of the library's metadata, which uses about half.
std::int64_t metadata_bytes(const std::vector<Piece>& pieces) {
  constexpr std::int64_t kOfFile = std::int64_t{32} << 10;
  constexpr std::int64_t kOfPiece = 1024;
  std::int64_t bytes = kOfFile;
  for (const Piece& piece : pieces) bytes += kOfPiece + 4 * static_cast<std::int64_t>(piece.slice.name.size());
  return (bytes + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
}

// The name of every piece's dataset within its state's group.
std::vector<std::string> dataset_names(const std::vector<Piece>& pieces) {
  std::map<std::pair<State, std::string_view>, int> held;
  for (const Piece& piece : pieces) ++held[{piece.state, piece.slice.name}];
  std::vector<std::string> names;
  names.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    const bool alone = held.at({piece.state, piece.slice.name}) == 1;
    names.push_back(alone ? piece.slice.name : fmt::format("{}@{}", piece.slice.name, first_index(piece.slice)));
  }
  return names;
}

H5File create(const Session& h5, const std::string& path, std::int64_t metadata_block) {
  const H5Properties creation(h5.check(H5Pcreate(H5P_FILE_CREATE), "make a file's properties"));
  h5.check(H5Pset_obj_track_times(creation.get(), 0), "make a file's properties");
  const H5Properties access(h5.check(H5Pcreate(H5P_FILE_ACCESS), "make a file's properties"));
  h5.check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18), "make a file's properties");
  h5.check(H5Pset_alignment(access.get(), 1, kDataAlignment), "make a file's properties");
  h5.check(H5Pset_meta_block_size(access.get(), static_cast<hsize_t>(metadata_block)), "make a file's properties");
  h5.check(H5Pset_small_data_block_size(access.get(), 0), "make a file's properties");
  // Locks fail on file systems that are mounted without them, and protect nothing here.
  h5.check(H5Pset_file_locking(access.get(), 0, 1), "make a file's properties");
  // An object that is still open makes the closing fail, rather than keep the file open behind our back.
  h5.check(H5Pset_fclose_degree(access.get(), H5F_CLOSE_SEMI), "make a file's properties");
  return H5File(h5.check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), "create it"));
}

// Fills the file with groups, datasets and attributes; returns where the data is to lie.
std::vector<PlacedPiece> fill(const Session& h5, const H5File& file, const std::vector<Piece>& pieces) {
  const H5Type f32 = file_type(h5, tensor::DType::f32), bf16 = file_type(h5, tensor::DType::bf16);
  const H5Space one = space(h5, {1}), two = space(h5, {2}), four = space(h5, {4});
  const H5Properties in_group(h5.check(H5Pcreate(H5P_GROUP_CREATE), "make a group's properties"));
  h5.check(H5Pset_obj_track_times(in_group.get(), 0), "make a group's properties");
  const H5Properties in_data(h5.check(H5Pcreate(H5P_DATASET_CREATE), "make a dataset's properties"));
  h5.check(H5Pset_obj_track_times(in_data.get(), 0), "make a dataset's properties");
  h5.check(H5Pset_layout(in_data.get(), H5D_CONTIGUOUS), "make a dataset's properties");
  h5.check(H5Pset_alloc_time(in_data.get(), H5D_ALLOC_TIME_EARLY), "make a dataset's properties");
  h5.check(H5Pset_fill_time(in_data.get(), H5D_FILL_TIME_NEVER), "make a dataset's properties");

  write_numbers(h5, file.get(), kVersionAttribute, one.get(), std::array<std::int64_t, 1>{kFormatVersion});
  std::array<H5Group, kStates> groups;
  const std::vector<std::string> names = dataset_names(pieces);
  std::vector<PlacedPiece> placed;
  placed.reserve(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Slice& slice = pieces[i].slice;
    H5Group& group = groups[static_cast<std::size_t>(pieces[i].state)];
    if (!group) {
      group.reset(h5.check(H5Gcreate2(file.get(), std::string(to_string(pieces[i].state)).c_str(), H5P_DEFAULT,
                                      in_group.get(), H5P_DEFAULT),
                           "make a group"));
    }
    const H5Space shape = space(h5, dims_of(slice));
    const hid_t type = pieces[i].dtype == tensor::DType::bf16 ? bf16.get() : f32.get();
    const H5Dataset data(
        h5.check(H5Dcreate2(group.get(), names[i].c_str(), type, shape.get(), H5P_DEFAULT, in_data.get(), H5P_DEFAULT),
                 "make a dataset"));
    write_text(h5, data.get(), "name", slice.name);
    write_numbers(h5, data.get(), "global_shape", two.get(),
                  std::array<std::int64_t, 2>{slice.global_rows, slice.global_cols});
    write_numbers(h5, data.get(), "slice", four.get(),
                  std::array<std::int64_t, 4>{slice.row0, slice.rows, slice.col0, slice.cols});
    write_numbers(h5, data.get(), "elements", two.get(),
                  std::array<std::int64_t, 2>{slice.elements.begin, slice.elements.end});
    placed.push_back({.piece = pieces[i], .offset = static_cast<std::int64_t>(H5Dget_offset(data.get()))});
  }
  return placed;
}

}  // namespace

FileLayout make_skeleton(const std::string& path, const std::vector<Piece>& pieces) {
  const std::string problem = problem_with(pieces);
  MS_ASSERT(problem.empty(), "{}", problem);
  const Session h5(path);
  FileLayout layout;
  {
    H5File file = create(h5, path, metadata_bytes(pieces));
    layout.pieces = fill(h5, file, pieces);
    h5.check(H5Fflush(file.get(), H5F_SCOPE_LOCAL), "write it");
    hsize_t size = 0;
    h5.check(H5Fget_filesize(file.get(), &size), "tell its size");
    layout.size_bytes = static_cast<std::int64_t>(size);
    h5.check(H5Fclose(file.release()), "close it");
  }
  MS_ASSERT(layout.size_bytes <= size_bound(pieces), "{}: {} bytes, bound {}", path, layout.size_bytes,
            size_bound(pieces));
  return layout;
}

std::int64_t size_bound(const std::vector<Piece>& pieces) {
  std::int64_t bytes = metadata_bytes(pieces);
  for (const Piece& piece : pieces) bytes += piece.size_bytes() + kDataAlignment;
  return bytes;
}

}  // namespace ms::ckpt
