// Files of tensors as Hugging Face keeps them (safetensors): eight bytes of length, a JSON header, then the data
// without gaps. Files come from anywhere, so the reader believes nothing: sizes, shapes and places are checked before a
// byte of data is looked at. The writer streams: the header first, then one tensor after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/handle.h"
#include "hf/elements.h"

namespace ms::hf {

inline constexpr std::string_view kModelFile = "model.safetensors";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
};
std::int64_t size_bytes(const TensorInfo& tensor);  // of those that we write: never Dtype::other

struct TensorView {
  Dtype dtype = Dtype::other;
  std::string dtype_name;  // as the file says it: "F32", "I64"
  std::vector<std::int64_t> shape;
  std::shared_ptr<const MappedFile> file;
  std::size_t begin = 0, size_bytes = 0;                                          // in the file
  std::function<void(std::size_t at, std::span<std::byte> out)> read_other = {};  // of one that is in no such file

  // Copies bytes of the tensor, from its byte `at` on. Error("file.cut", storage): the file has shrunk since.
  void read(std::size_t at, std::span<std::byte> out) const {
    read_other ? read_other(at, out) : file->read(begin + at, out);
  }
  std::vector<std::byte> read() const;
};

// One file, mapped; its views keep it so.
class TensorFile {
 public:
  // Error("hf.safetensors", user), with the path, where the file is anything but what the format allows.
  explicit TensorFile(const std::string& path);
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }

 private:
  std::map<std::string, TensorView> tensors_;
};

// All tensors of a model's directory: model.safetensors, or else the files that its index names. Where there are both,
// the log has a line.
class TensorSet {
 public:
  // Errors of the files, and Error("hf.index", user) where index and files do not agree: all problems at once.
  explicit TensorSet(const std::string& dir);
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }

 private:
  std::map<std::string, TensorView> tensors_;
};

// Writes one file. What is not closed is half a file: the caller makes it under a name that nobody takes for a model.
class TensorFileWriter {
 public:
  // Creates the file and writes the header. The data follows in the order of `tensors`.
  TensorFileWriter(std::string path, const std::vector<TensorInfo>& tensors);
  void write(std::span<const std::byte> data);  // the next bytes, however cut
  void close();                                 // all bytes were written; durable

 private:
  std::string path_;
  UniqueFd fd_;
  std::int64_t missing_bytes_ = 0;
};

// How a model's tensors are spread over files: in their order, each file at most max_bytes unless a single tensor is
// larger. One file is model.safetensors and needs no index.
struct ShardPlan {
  struct File {
    std::string name;
    std::vector<TensorInfo> tensors;
  };
  std::vector<File> files;
  std::string index_json;  // empty where there is one file
  std::int64_t total_bytes = 0;
};
ShardPlan plan_shards(const std::vector<TensorInfo>& tensors, std::int64_t max_bytes);

}  // namespace ms::hf
