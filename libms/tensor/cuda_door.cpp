#include "tensor/cuda_door.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "base/file.h"
#include "base/version.h"

namespace ms::tensor {
namespace {

Error door_error(const std::string& message) {
  return Error("cuda.plugin", Blame::node, message, "'--set run.device=cpu' trains without a GPU");
}

struct Plugin {
  void* handle;
  const CudaDoor* door;
};

Plugin open_plugin() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&open_plugin), &here) == 0 || here.dli_fname == nullptr)
    throw door_error("cannot tell where libms lies");
  const std::string path = parent_directory(here.dli_fname) + "/libms_cuda.so";
  if (access(path.c_str(), F_OK) != 0) throw door_error("there is no " + path + ": this ms was built without CUDA");
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw door_error(dlerror());  // it names what is missing
  const auto door = reinterpret_cast<const CudaDoor* (*)()>(dlsym(handle, "ms_cuda_door"));
  if (door == nullptr) throw door_error(path + " has no door: it is of another version");
  if (door()->version != kVersion || door()->door_size != sizeof(CudaDoor) || door()->op_size != sizeof(Op))
    throw door_error(
        fmt::format("{} is of another build of ms ({}) than libms.so ({})", path, door()->version, kVersion));
  return {handle, door()};
}
const Plugin& plugin() {
  static const Plugin kOpened = open_plugin();  // for the life of the process
  return kOpened;
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(int gpu, const CudaOptions& options) {
  return plugin().door->device(gpu, options);
}
std::unique_ptr<Device> make_shared_cuda_device(int gpu, CpuPool& pool, const CudaOptions& options) {
  return plugin().door->shared_device(gpu, pool, options);
}
int cuda_device_count() { return plugin().door->device_count(); }
void* cuda_symbol(const char* name) { return dlsym(plugin().handle, name); }

}  // namespace ms::tensor
