// oneDNN matrix products. A primitive is made once per (shape, types, strides, flags) and kept; executions of one
// primitive may overlap, because the scratchpad and the memory handles belong to the calling thread's execution.
//
// Bits: oneDNN's result depends neither on the number of threads nor on which rows are computed together (tests/ops).
#include "tensor/cpu_matmul.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "tensor/cpu_kernels.h"

namespace ms::tensor {
namespace {

// Everything that oneDNN compiles for; compared as bytes, so no padding is left unset.
struct Key {
  std::array<std::int64_t, 6> sizes{};  // M, N, K, ld of a, b, c
  std::array<std::uint8_t, 8> flags{};  // types of a and c, transposes, accumulate, bias

  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t hash = 0x9e3779b97f4a7c15U;
    auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 0xff51afd7ed558ccdU, hash ^= hash >> 32; };
    for (const std::int64_t size : key.sizes) mix(static_cast<std::uint64_t>(size));
    std::uint64_t flags = 0;
    std::memcpy(&flags, key.flags.data(), sizeof flags);
    mix(flags);
    return hash;
  }
};

struct Compiled {
  dnnl::matmul primitive;
  dnnl::memory::desc a, b, c, bias, scratch;
};

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc describe(std::int64_t rows, std::int64_t cols, std::int64_t ld, bool transposed, DType dtype) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1};
  return {{rows, cols}, type_of(dtype), strides};
}

// Memory for one execution; products run on several workers at once, so each takes a block and gives it back.
class ScratchPool {
 public:
  using Block = std::vector<std::max_align_t>;
  static constexpr std::size_t kAlignment = 64;

  Block take(std::size_t bytes) {
    Block block;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        block = std::move(free_.back());
        free_.pop_back();
      }
    }
    const std::size_t units = (bytes + kAlignment) / sizeof(std::max_align_t) + 1;
    if (block.size() < units) block.resize(units);
    return block;
  }
  void give(Block block) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(block));
  }
  static void* aligned(Block& block) {
    void* address = block.data();
    std::size_t space = block.size() * sizeof(std::max_align_t);
    return std::align(kAlignment, 1, address, space);
  }

 private:
  std::mutex mutex_;  // guards free_
  std::vector<Block> free_;
};

Tensor as_f32(const Tensor& x, std::vector<float>& storage) {
  storage.resize(static_cast<std::size_t>(x.numel()));
  const Tensor copy{reinterpret_cast<std::byte*>(storage.data()), x.rows, x.cols, x.cols, DType::f32};
  cpu_kernels().run(Copy{copy, x});
  return copy;
}

}  // namespace

class MatmulCache::Impl {
 public:
  Impl() : engine(dnnl::engine::kind::cpu, 0) {
    // oneDNN's reference code would take bf16 anywhere, very slowly; only a brgemm kernel counts.
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    native_bf16 = isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  }

  std::shared_ptr<const Compiled> find(const Matmul& op) {
    const std::int64_t rows = op.c.rows, cols = op.c.cols, inner = op.transpose_a ? op.a.rows : op.a.cols;
    Key key;
    key.sizes = {rows, cols, inner, op.a.ld, op.b.ld, op.c.ld};
    key.flags = {static_cast<std::uint8_t>(op.a.dtype),
                 static_cast<std::uint8_t>(op.c.dtype),
                 op.transpose_a,
                 op.transpose_b,
                 op.accumulate,
                 op.bias ? std::uint8_t{1} : std::uint8_t{0}};
    {
      const std::shared_lock lock(mutex_);
      const auto it = compiled_.find(key);
      if (it != compiled_.end()) return it->second;
    }
    auto made = std::make_shared<const Compiled>(compile(op, rows, cols, inner));
    const std::unique_lock lock(mutex_);
    return compiled_.try_emplace(key, std::move(made)).first->second;
  }

  dnnl::engine engine;
  ScratchPool scratch;
  bool native_bf16 = false;
  std::once_flag fallback_told;

 private:
  Compiled compile(const Matmul& op, std::int64_t rows, std::int64_t cols, std::int64_t inner) const {
    Compiled result;
    result.a = describe(rows, inner, op.a.ld, op.transpose_a, op.a.dtype);
    result.b = describe(inner, cols, op.b.ld, op.transpose_b, op.b.dtype);
    result.c = describe(rows, cols, op.c.ld, false, op.c.dtype);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (op.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    if (op.bias) result.bias = describe(1, cols, cols, false, op.bias.dtype);
    const dnnl::matmul::desc description = op.bias ? dnnl::matmul::desc(result.a, result.b, result.bias, result.c)
                                                   : dnnl::matmul::desc(result.a, result.b, result.c);
    const dnnl::matmul::primitive_desc chosen(description, attributes, engine);
    result.primitive = dnnl::matmul(chosen);
    result.scratch = chosen.scratchpad_desc();
    return result;
  }

  std::shared_mutex mutex_;  // guards compiled_
  std::unordered_map<Key, std::shared_ptr<const Compiled>, KeyHash> compiled_;
};

MatmulCache::MatmulCache() : impl_(std::make_unique<Impl>()) {}
MatmulCache::~MatmulCache() = default;
bool MatmulCache::native_bf16() const { return impl_->native_bf16; }
void MatmulCache::disable_native_bf16() { impl_->native_bf16 = false; }

void MatmulCache::run(const Matmul& op) {
  MS_ASSERT(op.a.dtype == op.b.dtype && (op.c.dtype == op.a.dtype || op.c.dtype == DType::f32),
            "a product of {} and {} into {}", to_string(op.a.dtype), to_string(op.b.dtype), to_string(op.c.dtype));
  MS_ASSERT(
      (op.transpose_a ? op.a.cols : op.a.rows) == op.c.rows && (op.transpose_b ? op.b.rows : op.b.cols) == op.c.cols &&
          (op.transpose_a ? op.a.rows : op.a.cols) == (op.transpose_b ? op.b.cols : op.b.rows),
      "a product of {}x{} and {}x{} into {}x{}", op.a.rows, op.a.cols, op.b.rows, op.b.cols, op.c.rows, op.c.cols);
  if (op.a.dtype == DType::bf16 && !impl_->native_bf16) return run_in_f32(op);
  try {
    const std::shared_ptr<const Compiled> compiled = impl_->find(op);
    dnnl::stream stream(impl_->engine);
    std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, {compiled->a, impl_->engine, op.a.data}},
                                                    {DNNL_ARG_WEIGHTS, {compiled->b, impl_->engine, op.b.data}},
                                                    {DNNL_ARG_DST, {compiled->c, impl_->engine, op.c.data}}};
    if (op.bias) arguments.emplace(DNNL_ARG_BIAS, dnnl::memory(compiled->bias, impl_->engine, op.bias.data));
    ScratchPool::Block block;
    if (compiled->scratch.get_size() > 0) {
      block = impl_->scratch.take(compiled->scratch.get_size());
      arguments.emplace(DNNL_ARG_SCRATCHPAD,
                        dnnl::memory(compiled->scratch, impl_->engine, ScratchPool::aligned(block)));
    }
    compiled->primitive.execute(stream, arguments);
    stream.wait();
    if (!block.empty()) impl_->scratch.give(std::move(block));
  } catch (const dnnl::error& error) {
    throw Error("tensor.matmul", Blame::bug,
                fmt::format("oneDNN on {}x{}x{}: {}", op.c.rows, op.c.cols, op.transpose_a ? op.a.rows : op.a.cols,
                            error.what()));
  }
}

// bf16 where the processor has no such products: converted, multiplied in f32, rounded once.
void MatmulCache::run_in_f32(const Matmul& op) {
  std::call_once(impl_->fallback_told, [] {
    log::warn("tensor", "this processor has no bf16 products: they are computed in f32, more slowly than dtype = fp32");
  });
  std::vector<float> a, b, c, bias;
  Matmul wide = op;
  wide.a = as_f32(op.a, a);
  wide.b = as_f32(op.b, b);
  if (op.bias) wide.bias = as_f32(op.bias, bias);
  if (op.c.dtype != DType::f32) wide.c = as_f32(op.c, c);
  run(wide);
  if (op.c.dtype != DType::f32) cpu_kernels().run(Copy{op.c, wide.c});
}

}  // namespace ms::tensor
