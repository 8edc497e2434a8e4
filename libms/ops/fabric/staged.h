// Memory of a device that the host writes and reads too: on a CPU in place, of a GPU through pinned memory of the host.
#pragma once

#include <memory>
#include <string>

#include "tensor/stream.h"

namespace ms::fabric {

class Staged {
 public:
  // Throws Error("tensor.memory") where there is not enough.
  Staged(tensor::Device& device, std::int64_t bytes, const std::string& what)
      : memory_(device.allocate(static_cast<std::size_t>(bytes), what)) {
    if (device.kind() != "cpu") host_ = device.allocate_host(static_cast<std::size_t>(bytes), what);
  }

  // `bytes`, a multiple of 4, from byte `from` on: for operations of the device's streams and communicators.
  tensor::Tensor words(std::int64_t from, std::int64_t bytes, tensor::DType dtype = tensor::DType::i32) const {
    return part(*memory_, from, bytes, dtype);
  }
  // The host's side of byte `from`.
  std::byte* host(std::int64_t from) const { return (host_ ? host_ : memory_)->data() + from; }
  // Gives the device what the host has written, or the host what the device has; done when it returns.
  void push(tensor::Stream& stream, std::int64_t from, std::int64_t bytes) const {
    if (host_) copy(stream, *memory_, *host_, from, bytes);
  }
  void pull(tensor::Stream& stream, std::int64_t from, std::int64_t bytes) const {
    if (host_) copy(stream, *host_, *memory_, from, bytes);
  }

 private:
  static tensor::Tensor part(const tensor::Memory& memory, std::int64_t from, std::int64_t bytes, tensor::DType dtype) {
    return {memory.data() + from, 1, bytes / 4, bytes / 4, dtype};
  }
  static void copy(tensor::Stream& stream, const tensor::Memory& to, const tensor::Memory& of, std::int64_t from,
                   std::int64_t bytes) {
    stream.submit(tensor::Copy{.dst = part(to, from, bytes, tensor::DType::i32),
                               .src = part(of, from, bytes, tensor::DType::i32)});
    stream.synchronize();
  }

  std::unique_ptr<tensor::Memory> memory_, host_;  // host_: null where the host uses memory_ itself
};

}  // namespace ms::fabric
