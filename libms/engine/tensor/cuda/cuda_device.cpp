#include "tensor/cuda/cuda_device.h"

#include <algorithm>

#include "base/text.h"
#include "tensor/cuda/channels.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/owned_memory.h"

namespace ms::tensor {
namespace {

constexpr std::size_t kMostSpans = 1 << 14;              // in flight before the host collects completed ones
constexpr std::int64_t kAnchorHolds_ns = 1'000'000'000;  // a float of milliseconds is then exact to 0.1 us

// Returns the multiprocessors that receives leave to matmuls; 0: all.
int left_by(const std::vector<int>& receives, int gpu) {
  if (receives.empty()) return 0;
  int left = multiprocessors_of(gpu);
  for (const int width : receives) left -= channels_on(gpu, width);
  return std::max(1, left);
}

int chosen(int gpu) {
  const int count = CudaDevice::count();
  if (gpu >= count) throw Error("cuda.none", Blame::node, fmt::format("GPU {} of {} does not exist", gpu, count));
  check(cudaSetDevice(gpu), "taking the GPU");
  return gpu;
}

}  // namespace

int CudaDevice::count() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "looking for GPUs");
  return count;
}

bool CudaDevice::enable_peer(int gpu, int peer) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, gpu, peer), "asking which GPUs reach each other");
  if (can == 0) return false;
  check(cudaSetDevice(gpu), "taking the GPU");
  if (const cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0); code == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
  } else {
    check(code, "letting a GPU access another one");
  }
  return true;
}

CudaDevice::CudaDevice(int gpu, const CudaOptions& options, SharedPlans* shared)
    : gpu_(chosen(gpu)),
      ops_(options.deterministic, left_by(options.receives, gpu), shared),
      times_ops_(options.time_ops),
      seconds_(kOpClasses, 0.0) {
  check(cudaStreamCreateWithFlags(&anchor_stream_, cudaStreamNonBlocking), "making a stream");
  int pools = 0;
  check(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, gpu_), "asking what the GPU has");
  has_pools_ = pools != 0;
}
CudaDevice::~CudaDevice() { cudaStreamDestroy(anchor_stream_); }

std::unique_ptr<Stream> CudaDevice::make_stream(std::string name, StreamKind kind) {
  check(cudaSetDevice(gpu_), "taking the GPU");
  return std::make_unique<CudaStream>(*this, std::move(name), next_stream_index(), kind);
}
std::unique_ptr<Memory> CudaDevice::allocate(std::size_t bytes, const std::string& what) {
  check(cudaSetDevice(gpu_), "taking the GPU");
  if (bytes == 0) return std::make_unique<OwnedMemory>(nullptr, 0, [](void*) {});
  void* data = nullptr;
  if (const cudaError_t code = cudaMalloc(&data, bytes); code != cudaSuccess) {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    const auto size = [](std::size_t count) { return format_size(static_cast<double>(count)); };
    throw cuda_error(
        code, fmt::format("{} for {}, with {} of the GPU's {} free", size(bytes), what, size(free), size(total)));
  }
  return cleared(std::make_unique<OwnedMemory>(data, bytes, [](void* at) { cudaFree(at); }));
}
// Pinned, so that copies overlap with everything else and kernels can read it.
std::unique_ptr<Memory> CudaDevice::allocate_host(std::size_t bytes, const std::string& what) {
  check(cudaSetDevice(gpu_), "taking the GPU");
  if (bytes == 0) return std::make_unique<OwnedMemory>(nullptr, 0, [](void*) {});
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable), fmt::format("{} bytes of the host for {}", bytes, what));
  std::fill_n(static_cast<std::byte*>(data), bytes, std::byte{0});
  return std::make_unique<OwnedMemory>(data, bytes, [](void* at) { cudaFreeHost(at); });
}

std::int64_t CudaDevice::prepare(std::span<const Op> ops, MatmulChoices& choices, bool timed) {
  const std::lock_guard lock(mutex_);
  check(cudaSetDevice(gpu_), "taking the GPU");
  return static_cast<std::int64_t>(ops_.prepare(ops, choices, timed));
}

std::string CudaDevice::name() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu_), "asking which GPU this is");
  return properties.name;
}

DeviceMemory CudaDevice::memory() {
  check(cudaSetDevice(gpu_), "taking the GPU");
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  return {.free_bytes = static_cast<std::int64_t>(free), .total_bytes = static_cast<std::int64_t>(total)};
}

CudaDevice::TimedEvent CudaDevice::mark(cudaStream_t stream) {
  TimedEvent event(timed_.take(), [this](cudaEvent_t done) { timed_.release(done); });
  check(cudaEventRecord(event.get(), stream), "recording a time");
  return event;
}
void CudaDevice::finished(const Span& span) {
  spans_.push_back(span);
  if (spans_.size() >= kMostSpans) collect();
}
void CudaDevice::begin_section(int stream, trace::Ticket ticket, TimedEvent begin) {
  sections_[stream] = {.begin = std::move(begin), .end = {}, .stream = stream, .is_section = true, .ticket = ticket};
}
void CudaDevice::end_section(int stream, trace::Ticket ticket, TimedEvent end) {
  Span span = sections_.at(stream);
  MS_ASSERT(span.ticket == ticket, "a section ends that did not begin");
  sections_.erase(stream);
  span.end = std::move(end);
  finished(span);
}

// The anchor is an event on a stream of its own without other work; the host reads its clock right after it passes.
std::int64_t CudaDevice::host_ns(const TimedEvent& event) {
  if (anchor_ == nullptr || trace::now_ns() - anchor_ns_ > kAnchorHolds_ns) {
    anchor_ = mark(anchor_stream_);
    check(cudaEventSynchronize(anchor_.get()), "comparing clocks");
    anchor_ns_ = trace::now_ns();
  }
  float ms = 0;  // negative if the event was before the anchor
  check(cudaEventElapsedTime(&ms, anchor_.get(), event.get()), "reading a time");
  return anchor_ns_ + static_cast<std::int64_t>(static_cast<double>(ms) * 1e6);
}

void CudaDevice::collect() {
  while (!spans_.empty()) {
    const Span span = spans_.front();
    if (!has_passed(span.end.get())) return;
    check(cudaEventSynchronize(span.end.get()), "waiting for the GPU");
    spans_.pop_front();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, span.begin.get(), span.end.get()), "reading a time");
    if (span.op_class >= 0) {
      seconds_[static_cast<std::size_t>(span.op_class)] += static_cast<double>(ms) * 1e-3;
      busy_s_[span.stream] += static_cast<double>(ms) * 1e-3;
    }
    if (span.ticket != trace::kNoTicket && recorder() != nullptr) {
      const std::int64_t begin_ns = host_ns(span.begin), end_ns = host_ns(span.end);
      recorder()->begin(span.ticket, begin_ns);
      if (!span.is_section) {
        recorder()->end(span.ticket, end_ns);
      } else {
        const double busy_s = std::exchange(busy_s_[span.stream], 0.0);
        recorder()->end_section(span.ticket, end_ns, static_cast<std::int64_t>(busy_s * 1e9));
      }
    }
  }
}

}  // namespace ms::tensor
