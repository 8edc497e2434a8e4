// Loads libms_cuda.so, the plugin with the CUDA device. It lies beside libms.so and is loaded when a run asks for a
// GPU, so that the same programs start on machines without CUDA.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "tensor/cpu_stream.h"

namespace ms::tensor {

struct CudaOptions {
  bool deterministic = true;  // every run gives the same bits; otherwise attention's backward may use atomics
  bool time_ops = true;       // records an event or two per op, which op_seconds() needs
  // The width (comm::Group::width) of each group whose receives are in flight while ops run: matmuls are planned for
  // the multiprocessors that they leave.
  std::vector<int> receives = {};
};

// The plans of attention that the ranks of a process share, as they share a GPU: each is built once.
// They outlive the devices.
class SharedPlans {
 public:
  // A device's own kind of plans.
  class Plans {
   public:
    virtual ~Plans() = default;
  };
  // Returns the plans that the first call has made. Thread-safe.
  std::shared_ptr<Plans> made(const std::function<std::shared_ptr<Plans>()>& make) {
    const std::lock_guard lock(mutex_);
    if (!plans_) plans_ = make();
    return plans_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Plans> plans_;
};

// The table that the plugin's entry point, the C function ms_cuda_plugin(), returns. Its first three fields tell
// whether the plugin and libms.so are of the same build.
struct CudaPlugin {
  std::string_view version;  // of ms
  std::size_t plugin_size;   // sizeof(CudaPlugin), as the plugin was compiled
  std::size_t op_size;       // sizeof(Op), likewise
  // Throws Error("cuda.*"), see tensor/cuda/cuda_check.h.
  std::unique_ptr<Device> (*device)(int gpu, const CudaOptions& options);
  std::unique_ptr<Device> (*shared_device)(int gpu, CpuPool& pool, SharedPlans& plans, const CudaOptions& options);
  int (*device_count)();
  bool (*enable_peer)(int gpu, int peer);
};

// Returns a rank's device on a GPU; `gpu` counts those that the process sees. Throws Error("cuda.plugin", node) if
// libms_cuda.so or a library that it needs is missing, or if it is of another build; and what the device throws.
std::unique_ptr<Device> make_cuda_device(int gpu, const CudaOptions& options = {});
// Likewise, where several ranks of this process share the GPU. The pool issues their ops; it and the plans outlive the
// devices, which all have the same options.
std::unique_ptr<Device> make_shared_cuda_device(int gpu, CpuPool& pool, SharedPlans& plans,
                                                const CudaOptions& options = {});

// Returns the number of GPUs that the process sees. Throws as above, and Error("cuda.none", node) if there is none.
int cuda_device_count();
// Lets a GPU access the memory of another one directly. Returns whether it can; else copies between them go through the
// host's memory. Throws as above.
bool enable_cuda_peer(int gpu, int peer);
// Returns another function of libms_cuda.so by name, or nullptr if it exports no such function. Throws as above.
void* cuda_symbol(const char* name);

}  // namespace ms::tensor
