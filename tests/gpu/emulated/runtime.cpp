// The CUDA runtime of the emulated GPU: device memory is host memory, filled with ones (NaN) when allocated; a stream
// is a thread with a queue. As on a GPU, nothing waits for the host or for another stream unless told to, so that
// unordered work runs in any order.
//
// MS_EMULATED_GPU_COUNT      number of GPUs, default 1
// MS_EMULATED_GPU_PROCESSORS number of multiprocessors, default 132
// MS_EMULATED_GPU_MEMORY     bytes of memory, default 1 GiB
// MS_EMULATED_GPU_POOLS=0    no cudaMallocAsync()
// MS_EMULATED_GPU_JITTER_US  every work item waits up to this long before it begins
// MS_EMULATED_GPU_GUARD=1    the host must not access GPU memory while the GPU is idle
// MS_EMULATED_GPU_FAULT      ecc@N, 700@N: broken memory, or this error, from launch N (1) on; image: no kernel for it;
//                            ecc@NAME, full@NAME: it breaks, or is full, in a library's call (stream.h)
#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda_runtime.h"
#include "guard.h"
#include "moment.h"

namespace {

using ms::emulated::Moment;

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

// The sticky error of a broken GPU; and each thread's last error.
std::atomic<cudaError_t> broken = cudaSuccess;
thread_local int this_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t say(cudaError_t code) {
  if (const cudaError_t all = broken; all != cudaSuccess) code = all;
  if (code != cudaSuccess) last_error = code;
  return code;
}

}  // namespace

struct CUstream_st {
 public:
  CUstream_st() : thread_([this] { work(); }) {}
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }
  std::shared_ptr<Moment> record() {
    auto moment = std::make_shared<Moment>();
    push([moment] { moment->pass(); });
    return moment;
  }

 private:
  void work() {
    const std::int64_t jitter_us = setting("MS_EMULATED_GPU_JITTER_US", 0);
    std::uint64_t random = 88172645463325252ULL ^ reinterpret_cast<std::uintptr_t>(this);
    while (true) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
        if (queue_.empty()) return;
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      if (jitter_us > 0) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        std::this_thread::sleep_for(std::chrono::microseconds(random % static_cast<std::uint64_t>(jitter_us)));
      }
      next();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool ends_ = false;
  std::thread thread_;
};

struct CUevent_st {
  std::mutex mutex;
  std::shared_ptr<Moment> moment;  // of the last cudaEventRecord()

  std::shared_ptr<Moment> last() {
    const std::lock_guard lock(mutex);
    return moment;
  }
};

namespace {

struct Gpu {
  ms::emulated::Guard guard{setting("MS_EMULATED_GPU_GUARD", 0) != 0};
  std::mutex mutex;
  std::vector<CUstream_st*> streams;
  std::map<void*, std::size_t> memory;
  std::size_t used = 0;
  std::atomic<std::int64_t> launches = 0;
  CUstream_st legacy;

  static Gpu& get() {
    static auto* gpu = new Gpu;  // streams' threads may outlive main()
    return *gpu;
  }
  static std::size_t size() {
    return static_cast<std::size_t>(setting("MS_EMULATED_GPU_MEMORY", std::int64_t{1} << 30));
  }
};

// Returns work that may access GPU memory.
std::function<void()> guarded(std::function<void()> work) {
  return [work = std::move(work)] {
    Gpu::get().guard.enter();
    work();
    Gpu::get().guard.leave();
  };
}

bool has_pools() { return setting("MS_EMULATED_GPU_POOLS", 1) != 0; }
CUstream_st& stream_of(cudaStream_t stream) { return stream == nullptr ? Gpu::get().legacy : *stream; }

cudaError_t make_stream(cudaStream_t* stream) {
  auto made = std::make_unique<CUstream_st>();
  Gpu& gpu = Gpu::get();
  const std::lock_guard lock(gpu.mutex);
  *stream = made.release();
  gpu.streams.push_back(*stream);
  return say(cudaSuccess);
}

bool release(void* data) {
  Gpu& gpu = Gpu::get();
  const std::lock_guard lock(gpu.mutex);
  const auto at = gpu.memory.find(data);
  if (at == gpu.memory.end()) return false;
  gpu.used -= at->second;
  gpu.memory.erase(at);
  gpu.guard.free(data);
  return true;
}

}  // namespace

namespace ms::emulated {

void on_stream(cudaStream_t stream, std::function<void()> work) { stream_of(stream).push(guarded(std::move(work))); }

cudaError_t begin_launch(const cudaLaunchConfig_t& config) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffU || grid.y > 65535 || grid.z > 65535 ||
      threads == 0 || threads > 1024 || block.z > 64) {
    return say(cudaErrorInvalidConfiguration);
  }
  if (const char* fault = std::getenv("MS_EMULATED_GPU_FAULT")) {
    const std::int64_t number = ++Gpu::get().launches;
    if (std::strcmp(fault, "image") == 0) return say(cudaErrorNoKernelImageForDevice);
    const char* at = std::strchr(fault, '@');
    if (at != nullptr && std::isdigit(at[1]) != 0 && number >= std::atoll(at + 1)) {
      broken = std::isdigit(fault[0]) != 0 ? static_cast<cudaError_t>(std::atoi(fault)) : cudaErrorECCUncorrectable;
    }
  }
  return say(cudaSuccess);
}

cudaError_t begin_call(const char* name) {
  const char* told = std::getenv("MS_EMULATED_GPU_FAULT");
  const std::string fault = told == nullptr ? "" : told;
  if (fault == std::string("ecc@") + name) broken = cudaErrorECCUncorrectable;
  return fault == std::string("full@") + name ? cudaErrorMemoryAllocation : broken.load();
}

}  // namespace ms::emulated

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    case cudaErrorECCUncorrectable: return "uncorrectable ECC error encountered";
    default: return "an error of the emulated GPU";
  }
}
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(setting("MS_EMULATED_GPU_COUNT", 1));
  return say(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaSetDevice(int gpu) {
  if (gpu >= setting("MS_EMULATED_GPU_COUNT", 1)) return say(cudaErrorInvalidDevice);
  this_device = gpu;
  return say(cudaSuccess);
}
cudaError_t cudaGetDevice(int* gpu) {
  *gpu = this_device;
  return say(cudaSuccess);
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int gpu, int peer) {
  const std::int64_t count = setting("MS_EMULATED_GPU_COUNT", 1);
  if (gpu >= count || peer >= count) return say(cudaErrorInvalidDevice);
  *can = gpu != peer ? 1 : 0;
  return say(cudaSuccess);
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  if (peer == this_device || flags != 0) return say(cudaErrorInvalidDevice);
  static std::set<std::pair<int, int>> enabled;
  const std::lock_guard lock(Gpu::get().mutex);
  return say(enabled.emplace(this_device, peer).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = static_cast<int>(setting("MS_EMULATED_GPU_PROCESSORS", 132));
      return say(cudaSuccess);
    case cudaDevAttrMemoryPoolsSupported: *value = has_pools() ? 1 : 0; return say(cudaSuccess);
    default: return say(cudaErrorNotSupported);
  }
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strncpy(properties->name, "emulated GPU", sizeof properties->name - 1);
  properties->totalGlobalMem = Gpu::size();
  cudaDeviceGetAttribute(&properties->multiProcessorCount, cudaDevAttrMultiProcessorCount, 0);
  properties->major = 9;
  return say(cudaSuccess);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) {
  *least = 0, *most = -5;
  return say(cudaSuccess);
}

cudaError_t cudaMalloc(void** data, std::size_t size) {
  Gpu& gpu = Gpu::get();
  const std::lock_guard lock(gpu.mutex);
  if (gpu.used + size > Gpu::size()) return say(cudaErrorMemoryAllocation);
  *data = gpu.guard.take(std::max<std::size_t>(size, 1));
  if (*data == nullptr) return say(cudaErrorMemoryAllocation);
  gpu.memory[*data] = size;
  gpu.used += size;
  return say(cudaSuccess);
}
cudaError_t cudaDeviceSynchronize() {
  Gpu& gpu = Gpu::get();
  std::vector<std::shared_ptr<Moment>> all{gpu.legacy.record()};
  {
    const std::lock_guard lock(gpu.mutex);
    for (CUstream_st* stream : gpu.streams) all.push_back(stream->record());
  }
  for (const auto& moment : all) moment->wait();
  return say(cudaSuccess);
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return say(cudaSuccess);
  cudaDeviceSynchronize();
  return say(release(data) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaMallocAsync(void** data, std::size_t size, cudaStream_t) {
  return has_pools() ? cudaMalloc(data, size) : say(cudaErrorNotSupported);
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  if (!has_pools()) return say(cudaErrorNotSupported);
  stream_of(stream).push([data] { release(data); });
  return say(cudaSuccess);
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  Gpu& gpu = Gpu::get();
  const std::lock_guard lock(gpu.mutex);
  *total = Gpu::size();
  *free = *total - gpu.used;
  return say(cudaSuccess);
}
cudaError_t cudaHostAlloc(void** data, std::size_t size, unsigned) {
  *data = std::aligned_alloc(256, (size + 255) / 256 * 256);
  return say(*data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return say(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t size, cudaStream_t stream) {
  ms::emulated::on_stream(stream, [=] { std::memset(data, value, size); });
  return say(cudaSuccess);
}
cudaError_t cudaMemset(void* data, int value, std::size_t size) { return cudaMemsetAsync(data, value, size, nullptr); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind, cudaStream_t stream) {
  ms::emulated::on_stream(stream, [=] { std::memcpy(to, from, size); });
  return say(cudaSuccess);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t stream) {
  constexpr std::size_t kMostPitch = 0x7fffffff;
  if (width > to_pitch || width > from_pitch || to_pitch > kMostPitch || from_pitch > kMostPitch)
    return say(cudaErrorInvalidPitchValue);
  ms::emulated::on_stream(stream, [=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, static_cast<const std::byte*>(from) + row * from_pitch,
                  width);
    }
  });
  return say(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return make_stream(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return make_stream(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream_of(stream).record()->wait();
  return say(cudaSuccess);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Gpu& gpu = Gpu::get();
  {
    const std::lock_guard lock(gpu.mutex);
    std::erase(gpu.streams, stream);
  }
  delete stream;  // once all its work is done
  return say(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (broken == cudaSuccess && !stream_of(stream).record()->passed()) return last_error = cudaErrorNotReady;
  return say(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  // As on a GPU, waiting for an event that was never recorded is a no-op.
  if (auto moment = event->last()) stream_of(stream).push([moment] { moment->wait(); });
  return say(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return say(cudaSuccess);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return say(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  auto moment = stream_of(stream).record();
  const std::lock_guard lock(event->mutex);
  event->moment = std::move(moment);
  return say(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto moment = event->last();
  if (moment && !moment->passed()) return last_error = cudaErrorNotReady;  // as on a GPU
  return say(cudaSuccess);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const auto moment = event->last()) moment->wait();
  return say(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  const auto first = begin->last(), second = end->last();
  if (!first || !second) return say(cudaErrorInvalidResourceHandle);
  if (!first->passed() || !second->passed()) return say(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(second->wait() - first->wait()).count();
  return say(cudaSuccess);
}

}  // extern "C"
