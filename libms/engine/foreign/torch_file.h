// A file of torch.save: a zip archive of a pickle and the bytes of its tensors. It may be a part of a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "foreign/dtype.h"
#include "unpack/pickle.h"
#include "unpack/zip.h"

namespace ms::foreign {

struct Problem {
  std::string code, text;  // a word for programs: "crc"; a sentence
  bool operator==(const Problem&) const = default;
};

struct SavedTensor {
  std::string name;  // the keys on the way to it: "model.layers.0.wq.weight"; empty: the file holds it alone
  const Dtype* dtype = nullptr;
  std::vector<std::int64_t> shape, strides;
  std::int64_t first = 0;  // element of its storage
  std::size_t member = 0;  // its storage
  bool dense() const;      // in the order of its elements, without gaps
};

struct TorchFile {
  std::vector<unpack::ZipMember> members;
  std::vector<const Dtype*> types;  // of the members that are storages, else nullptr
  std::vector<SavedTensor> tensors;
  // Values beside the tensors, by name: a list of numbers is one; of a long text, its beginning and a hash.
  std::vector<std::pair<std::string, std::string>> leaves;
  std::size_t num_values = 0;  // of these, each number of a list by itself
  std::vector<Problem> problems;
  std::vector<Problem> unread;  // what is not known here: whether it is sound cannot be told
  bool has_crcs = true;         // torch.serialization.set_crc32_options(False) leaves them out
};

// Reads the pickle, not the tensors. Error("data.zip" or "data.pickle", user): damaged. Error("data.unread", user): of
// a form or a size that is not read; whether it is sound cannot be told.
TorchFile read_torch_file(const unpack::ReadAt& read, std::int64_t size_bytes);

// The numbers of a torch.Size, tuple or list; nullopt: anything else, or one below 0.
std::optional<std::vector<std::int64_t>> sizes_of(unpack::PickleValue value);

// Whether torch.save writes files that begin so: a zip archive, or by torch before 1.6.
bool is_torch_zip(std::string_view beginning);
bool is_legacy_torch(std::string_view beginning);

}  // namespace ms::foreign
