#include "tensor/cuda_plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "base/file.h"
#include "base/version.h"

namespace ms::tensor {
namespace {

constexpr const char* kHint =
    "without a GPU: ms-train trains with --set run.device=cpu, ms-netcheck measures with --transport mpi";
Error plugin_error(const std::string& message) { return Error("cuda.plugin", Blame::node, message, kHint); }

struct Loaded {
  void* handle;
  const CudaPlugin* plugin;
};

Loaded load() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&load), &here) == 0 || here.dli_fname == nullptr)
    throw plugin_error("cannot tell which directory holds libms.so");
  const std::string path = parent_directory(here.dli_fname) + "/libms_cuda.so";
  if (access(path.c_str(), F_OK) != 0)  // on every node: none of them is at fault
    throw user_error("cuda.plugin", "there is no " + path + ": this ms was built without CUDA", kHint);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw plugin_error(dlerror());  // it names what is missing
  const auto entry_point = reinterpret_cast<const CudaPlugin* (*)()>(dlsym(handle, "ms_cuda_plugin"));
  if (entry_point == nullptr)
    throw plugin_error(path + " does not export ms_cuda_plugin: it belongs to another version of ms");
  const CudaPlugin* plugin = entry_point();
  if (plugin->version != kVersion || plugin->plugin_size != sizeof(CudaPlugin) || plugin->op_size != sizeof(Op))
    throw plugin_error(
        fmt::format("{} and libms.so are from different builds of ms ({}, {})", path, plugin->version, kVersion));
  return {handle, plugin};
}
const Loaded& loaded() {
  static const Loaded kLoaded = load();  // for the life of the process
  return kLoaded;
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(int gpu, const CudaOptions& options) {
  return loaded().plugin->device(gpu, options);
}
std::unique_ptr<Device> make_shared_cuda_device(int gpu, CpuPool& pool, SharedPlans& plans,
                                                const CudaOptions& options) {
  return loaded().plugin->shared_device(gpu, pool, plans, options);
}
int cuda_device_count() { return loaded().plugin->device_count(); }
bool enable_cuda_peer(int gpu, int peer) { return loaded().plugin->enable_peer(gpu, peer); }
void* cuda_symbol(const char* name) { return dlsym(loaded().handle, name); }

}  // namespace ms::tensor
