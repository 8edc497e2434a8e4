// A GPU shared by several ranks of one process, each with its own device. The host queues what a rank issues, as on the
// CPU, and issues it to CUDA streams from there. To wait for an event of another stream, the host waits until it has
// been issued, and the GPU until it has passed. So no CUDA stream waits for work that is not yet issued, however many
// streams share the hardware's queues.
#pragma once

#include "tensor/cpu_device.h"
#include "tensor/cuda/cuda_device.h"

namespace ms::tensor {

class SharedGpu final : public Device {
 public:
  // The pool issues work; it and the plans outlive the device. Throws Error("cuda.*").
  SharedGpu(int gpu, CpuPool& pool, SharedPlans& plans, const CudaOptions& options)
      : gpu_(gpu, options, &plans), host_(pool, matmuls_) {}

  std::string_view kind() const override { return "cuda"; }
  std::unique_ptr<Stream> make_stream(std::string name, StreamKind kind) override;
  std::unique_ptr<Memory> allocate(std::size_t bytes, const std::string& what) override {
    return gpu_.allocate(bytes, what);
  }
  std::unique_ptr<Memory> allocate_host(std::size_t bytes, const std::string& what) override {
    return gpu_.allocate_host(bytes, what);
  }
  std::int64_t prepare(std::span<const Op> ops, MatmulChoices& choices, bool timed) override {
    return gpu_.prepare(ops, choices, timed);
  }
  std::string name() override { return gpu_.name(); }
  DeviceMemory memory() override { return gpu_.memory(); }
  std::vector<double> op_seconds() override { return gpu_.op_seconds(); }

 private:
  CudaDevice gpu_;
  MatmulCache matmuls_;  // unused: nothing is computed on the host
  CpuDevice host_;
};

}  // namespace ms::tensor
