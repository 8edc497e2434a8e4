#include "tensor/cpu_device.h"

#include <sys/mman.h>

#include <cerrno>

namespace ms::tensor {
namespace {

// An anonymous mapping: zeroed by the kernel, freed as a whole, with huge pages if available.
class CpuMemory final : public Memory {
 public:
  CpuMemory(std::size_t bytes, const std::string& what) : size_(bytes) {
    if (size_ == 0) return;
    void* address = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
      throw Error("tensor.memory", Blame::user, fmt::format("{} bytes for {}: {}", size_, what, errno_text(errno)),
                  "'ms-train plan' prints what every rank needs");
    }
    if (size_ >= (std::size_t{2} << 20)) madvise(address, size_, MADV_HUGEPAGE);  // a hint; failure costs only speed
    data_ = static_cast<std::byte*>(address);
  }
  ~CpuMemory() override {
    if (data_ != nullptr) munmap(data_, size_);
  }
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;
  std::byte* data() const override { return data_; }
  std::size_t size_bytes() const override { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
};

}  // namespace

std::unique_ptr<Stream> CpuDevice::make_stream(std::string name, StreamKind kind) {
  auto stream = std::make_unique<CpuStream>(*this, pool_, matmuls_, std::move(name), next_stream_index(), kind);
  streams_.push_back(stream.get());
  return stream;
}

std::unique_ptr<Memory> CpuDevice::allocate(std::size_t bytes, const std::string& what) {
  return std::make_unique<CpuMemory>(bytes, what);
}

std::vector<double> CpuDevice::op_seconds() {
  std::vector<double> sums(kOpClasses, 0.0);
  for (const CpuStream* stream : streams_) stream->add_op_seconds(sums);
  return sums;
}

}  // namespace ms::tensor
