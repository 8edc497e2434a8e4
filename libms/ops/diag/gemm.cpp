#include "diag/gemm.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/rng.h"

namespace ms::diag {
namespace {

// Every number has all its bits in use: a stuck bit shows only where it is not what it should be anyway. The numbers
// repeat after a prime number of them, so that a large matrix is filled as fast as memory is written.
void fill(const tensor::Tensor& x, std::uint64_t key) {
  constexpr std::int64_t kPeriod = 65521;
  for (std::int64_t i = 0; i < std::min(kPeriod, x.numel()); ++i) {
    const PhiloxBlock random = random_block(0, key, static_cast<std::uint64_t>(i));
    const float value = static_cast<float>(static_cast<std::int32_t>(random[0])) * 0x1p-31F;  // [-1, 1)
    if (x.dtype == tensor::DType::bf16) {
      x.as<tensor::bfloat16>()[i].bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
    } else {
      x.as<float>()[i] = value;
    }
  }
  const std::int64_t size = tensor::size_of(x.dtype);
  for (std::int64_t i = kPeriod; i < x.numel(); i += kPeriod) {
    std::memcpy(x.data + i * size, x.data, static_cast<std::size_t>(std::min(kPeriod, x.numel() - i) * size));
  }
}

}  // namespace

Gemm::Gemm(tensor::Device& device, tensor::DType dtype, std::int64_t side)
    : memory_(device.allocate(
          static_cast<std::size_t>(3 * (side * side * tensor::size_of(dtype) + tensor::Arena::kAlignment)), "a GEMM")) {
  tensor::Arena arena(*memory_);
  a_ = arena.take(dtype, side, side);
  b_ = arena.take(dtype, side, side);
  c_ = arena.take(dtype, side, side);
  const std::unique_ptr<tensor::Memory> host = device.allocate_host(
      static_cast<std::size_t>(2 * (a_.size_bytes() + tensor::Arena::kAlignment)), "the inputs of a GEMM");
  tensor::Arena inputs(*host);
  const tensor::Tensor a = inputs.take(dtype, side, side), b = inputs.take(dtype, side, side);
  fill(a, 1);
  fill(b, 2);
  const std::unique_ptr<tensor::Stream> stream = device.make_stream("inputs", tensor::StreamKind::compute);
  stream->submit(tensor::Copy{.dst = a_, .src = a});
  stream->submit(tensor::Copy{.dst = b_, .src = b});
  stream->synchronize();
}

double Gemm::flops() const {
  const auto side = static_cast<double>(c_.rows);
  return 2 * side * side * side;
}

double seconds_of(tensor::Stream& stream, const tensor::Op& op, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr double kBatch_s = 0.02;  // beside which the wait is nothing
  constexpr double kMostOps = 1000;
  const auto run = [&](int count) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < count; ++i) stream.submit(op);
    stream.synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  run(1);  // the first one makes the kernel
  const int batch = static_cast<int>(std::clamp(kBatch_s / run(1), 1.0, kMostOps));
  double elapsed_s = 0;
  int count = 0;
  for (; elapsed_s < seconds; count += batch) elapsed_s += run(batch);
  return elapsed_s / count;
}

}  // namespace ms::diag
