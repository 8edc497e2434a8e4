// Elements of a tensor in the order of the whole tensor, whatever boxes hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "foreign/checkpoint.h"

namespace ms::foreign {

class TensorReader {
 public:
  // Error("ckpt.damaged", storage): its type is not known, or parts of it are missing. The checkpoint must outlive it.
  TensorReader(const Checkpoint& checkpoint, const Tensor& tensor);
  ~TensorReader();
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  std::int64_t size_bytes() const { return size_bytes_; }
  // Copies bytes from `at` on: a whole number of elements. Not from two threads at once.
  // Error("ckpt.read", storage); Error("ckpt.damaged", storage): a part is not what the metadata promises.
  void read(std::int64_t at, std::span<std::byte> to);

 private:
  struct Part;
  Part& open(std::size_t box);
  void read_box(std::size_t box, std::int64_t begin, std::int64_t end, std::span<std::byte> to);

  const Checkpoint& checkpoint_;
  const Tensor& tensor_;
  std::int64_t size_bytes_ = 0;
  std::unique_ptr<Part> part_;  // the last one that was read
};

}  // namespace ms::foreign
