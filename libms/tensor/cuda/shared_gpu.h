// A GPU that several ranks of one process share, each by a device of its own: what a rank issues is put in order by the
// host, in queues like the CPU's, and goes to CUDA's streams from there. An event of another stream is waited for by
// the host until it has been issued, and by the GPU until it has passed: so no CUDA stream waits for what is not yet on
// the way, however many streams share the hardware's queues.
#pragma once

#include "tensor/cpu_device.h"
#include "tensor/cuda/cuda_device.h"

namespace ms::tensor {

class SharedGpu final : public Device {
 public:
  // The pool issues; it outlives the device. Throws Error("cuda.*").
  SharedGpu(int gpu, CpuPool& pool, const CudaOptions& options) : gpu_(gpu, options), host_(pool, matmuls_) {}

  std::string_view kind() const override { return "cuda"; }
  std::unique_ptr<Stream> make_stream(std::string name, StreamKind kind) override;
  std::unique_ptr<Memory> allocate(std::size_t bytes, const std::string& what) override {
    return gpu_.allocate(bytes, what);
  }
  std::unique_ptr<Memory> allocate_host(std::size_t bytes, const std::string& what) override {
    return gpu_.allocate_host(bytes, what);
  }
  Readiness prepare(std::span<const Op> ops, MatmulChoices& choices, bool timed) override {
    return gpu_.prepare(ops, choices, timed);
  }
  std::vector<double> op_seconds() override { return gpu_.op_seconds(); }

 private:
  CudaDevice gpu_;
  MatmulCache matmuls_;  // of no use: nothing is computed on the host
  CpuDevice host_;
};

}  // namespace ms::tensor
