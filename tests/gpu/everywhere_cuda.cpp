// everywhere() on a GPU, for the tests in tests/ops: tensors are copied there with their guards, once aligned to 16
// bytes and once not.
#include <gtest/gtest.h>

#include "../ops/support.h"
#include "tensor/cuda_plugin.h"

namespace ms::tensor::test {
namespace {

constexpr std::size_t kVectorBytes = 16, kMost = std::size_t{64} << 20;

// One device for all tests, created when the first one runs.
struct Gpu {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<tensor::Memory> memory, host;
  std::string why_not;

  static Gpu& get() {
    static Gpu gpu;
    return gpu;
  }
  void renew_stream() { stream = device->make_stream("test", StreamKind::compute); }

 private:
  Gpu() {
    try {
      device = make_cuda_device(0);
      renew_stream();
      memory = device->allocate(kMost, "tensors of tests");
      host = device->allocate_host(kMost, "tensors of tests");
    } catch (const Error& error) { why_not = error.message(); }
  }
};

Tensor bytes(std::byte* data, std::size_t size) {  // as i32, which Copy accepts
  const auto words = static_cast<std::int64_t>(size / 4);
  return {data, 1, words, words, DType::i32};
}

// Returns where each tensor with its guards goes: elements begin at a multiple of 16 bytes, or one element after.
std::vector<std::size_t> places(const std::vector<Memory::Span>& spans, bool aligned, std::size_t& used) {
  std::vector<std::size_t> places;
  used = 0;
  for (const Memory::Span& span : spans) {
    std::size_t elements = (used + span.begin + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
    if (!aligned) elements += reinterpret_cast<std::uintptr_t>(span.data + span.begin) % kVectorBytes;
    places.push_back(elements - span.begin);
    used = places.back() + span.size;
  }
  used = (used + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  return places;
}

// Attention accepts only bf16 aligned to 16 bytes.
bool is_there(const Op& op, bool aligned) {
  const auto takes = [&](const auto* attention) {
    return attention == nullptr || (aligned && attention->q.dtype == DType::bf16 && attention->head_dim % 8 == 0);
  };
  return takes(std::get_if<AttentionFwd>(&op)) && takes(std::get_if<AttentionBwd>(&op));
}

void run_there(Gpu& gpu, Memory& memory, const Op& op, bool aligned) {
  const std::vector<Memory::Span> spans = memory.spans();
  std::size_t used = 0;
  const std::vector<std::size_t> at = places(spans, aligned, used);
  ASSERT_LE(used, kMost);
  for (std::size_t i = 0; i < spans.size(); ++i) std::copy_n(spans[i].data, spans[i].size, gpu.host->data() + at[i]);
  gpu.stream->submit(Copy{.dst = bytes(gpu.memory->data(), used), .src = bytes(gpu.host->data(), used)});
  Op there = op;
  const auto relocate = [&](Access, const Tensor& tensor) {
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const auto offset = tensor.data - spans[i].data;
      if (!tensor || offset < 0 || offset >= static_cast<std::ptrdiff_t>(spans[i].size)) continue;
      const_cast<Tensor&>(tensor).data = gpu.memory->data() + at[i] + offset;
      return;
    }
  };
  if (auto* sum = std::get_if<ExpertSum>(&there)) {  // its each() has parts of its tensors
    for (const Tensor* x : {&sum->x, &sum->y, &sum->offsets}) relocate(Access::read, *x);
  } else {
    std::visit([&](auto& row) { row.each(relocate); }, there);
  }
  gpu.stream->submit(there);
  gpu.stream->submit(Copy{.dst = bytes(gpu.host->data(), used), .src = bytes(gpu.memory->data(), used)});
  gpu.stream->synchronize();
  for (std::size_t i = 0; i < spans.size(); ++i) std::copy_n(gpu.host->data() + at[i], spans[i].size, spans[i].data);
}
// A failure must not affect later tests: a stream accepts nothing after an error.
void run(Gpu& gpu, Memory& memory, const Op& op, bool aligned) {
  try {
    run_there(gpu, memory, op, aligned);
  } catch (const Error& error) {
    gpu.renew_stream();
    FAIL() << error.message();
  }
}

}  // namespace

void everywhere(Memory& memory, const Op& op, const std::function<void()>& check) {
  Gpu& gpu = Gpu::get();
  if (!gpu.why_not.empty()) GTEST_SKIP() << "needs a GPU: " << gpu.why_not;
  const Memory::Image before = memory.save();
  for (const bool aligned : {true, false}) {
    if (!is_there(op, aligned)) continue;
    SCOPED_TRACE(std::string(op_name(op)) + (aligned ? " in vectors of 16 bytes" : " element by element"));
    memory.restore(before);
    run(gpu, memory, op, aligned);
    EXPECT_TRUE(memory.guards_intact());
    EXPECT_TRUE(memory.inputs_as_in(before, op));
    check();
    const Memory::Image once = memory.save();
    memory.restore(before);
    run(gpu, memory, op, aligned);
    EXPECT_TRUE(memory.save() == once) << "the bits of a second run differ";
  }
}

}  // namespace ms::tensor::test
