// The CPU device: host memory, streams of a CpuPool, and the CPU kernels with oneDNN's matmul.
#pragma once

#include <memory>

#include "tensor/cpu_stream.h"

namespace ms::tensor {

class CpuDevice final : public Device {
 public:
  // Both outlive the device and may be shared by several devices.
  CpuDevice(CpuPool& pool, MatmulCache& matmuls) : pool_(pool), matmuls_(matmuls) {}

  std::string_view kind() const override { return "cpu"; }
  std::string name() override { return std::string(to_string(cpu_isa())); }
  std::unique_ptr<Stream> make_stream(std::string name, StreamKind kind) override;
  std::unique_ptr<Memory> allocate(std::size_t bytes, const std::string& what) override;
  std::unique_ptr<Memory> allocate_host(std::size_t bytes, const std::string& what) override {
    return allocate(bytes, what);
  }
  std::vector<double> op_seconds() override;

 private:
  CpuPool& pool_;
  MatmulCache& matmuls_;
  std::vector<const CpuStream*> streams_;  // alive whenever op_seconds() is called
};

}  // namespace ms::tensor
