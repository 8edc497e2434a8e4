// oneDNN's matmul behind the op list. A call takes a worker from a small pool: the worker owns a stream, working memory and,
// for every shape it has met, a primitive with its memory objects, so that a call only sets pointers. Primitives are made once
// a shape for all workers. A worker is used by one call at a time; there are as many as calls were ever under way at once.
#include "tensor/cpu_matmul.h"

#include <omp.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "tensor/cpu/kernels.h"
#include "tensor/op_checks.h"

namespace ms::tensor {
namespace {

using dnnl::memory;

// What a primitive depends on. The number of threads is part of it: oneDNN fixes it when it makes the primitive.
struct Key {
  std::int64_t m, n, k, lda, ldb, ldc;
  std::int64_t flags;  // types, transposes, bias, accumulate, threads
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t hash = 0;
    for (const std::int64_t word : {key.m, key.n, key.k, key.lda, key.ldb, key.ldc, key.flags}) {
      hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

// The gap between rows of a matrix of one row means nothing: one key for all.
std::int64_t stride_of(const Tensor& x) { return x.rows == 1 ? x.cols : x.ld; }

Key key_of(const Matmul& op) {
  const std::int64_t flags = (op.a.dtype == DType::bf16 ? 1 : 0) | (op.c.dtype == DType::bf16 ? 2 : 0) |
                             (op.transpose_a ? 4 : 0) | (op.transpose_b ? 8 : 0) | (op.bias ? 16 : 0) |
                             (op.accumulate ? 32 : 0) | (std::int64_t{omp_get_max_threads()} << 8);
  return {op.c.rows,       op.c.cols,       op.transpose_a ? op.a.rows : op.a.cols, stride_of(op.a), stride_of(op.b),
          stride_of(op.c), flags};
}

memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc describe(const Tensor& x, bool transposed) {
  const std::int64_t ld = stride_of(x);
  return transposed ? memory::desc({x.cols, x.rows}, type_of(x.dtype), memory::dims{1, ld})
                    : memory::desc({x.rows, x.cols}, type_of(x.dtype), memory::dims{ld, 1});
}

// A primitive with what it reads and writes.
struct Bound {
  dnnl::matmul primitive;
  memory c, a, b, bias, scratchpad;
  std::vector<dnnl_exec_arg_t> arguments;
  std::size_t scratchpad_bytes = 0;
};

// Memory that only grows.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { scratch_free(data_); }
  void* at_least(std::size_t bytes) {
    if (bytes > size_) {
      scratch_free(data_);
      data_ = nullptr, size_ = 0;
      data_ = scratch_allocate(bytes), size_ = bytes;
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

struct Worker {
  explicit Worker(const dnnl::engine& engine) : stream(engine) {}
  dnnl::stream stream;
  std::unordered_map<Key, Bound, KeyHash> bound;
  Buffer scratchpad;
  std::array<Buffer, 4> f32;  // a, b, c and bias where bf16 is computed in f32
};

// x in f32, in memory of the worker.
Tensor in_f32(const Tensor& x, Buffer& buffer, bool with_values) {
  if (!x || x.dtype == DType::f32) return x;
  Tensor wide{nullptr, x.rows, x.cols, x.cols, DType::f32};
  wide.data = static_cast<std::byte*>(buffer.at_least(static_cast<std::size_t>(wide.size_bytes())));
  if (with_values) cpu_kernels().run(Copy{.dst = wide, .src = x});
  return wide;
}

}  // namespace

class MatmulCache::Impl {
 public:
  explicit Impl(Bf16 bf16)
      : engine_(dnnl::engine::kind::cpu, 0), native_bf16_(bf16 == Bf16::as_the_cpu_has_it && cpu_has_bf16()) {}

  void run(const Matmul& op) {
    std::unique_ptr<Worker> worker = take();
    try {
      if (op.a.dtype == DType::bf16 && !native_bf16_) {
        run_in_f32(op, *worker);
      } else {
        execute(op, *worker);
      }
    } catch (const dnnl::error& error) {
      give(std::move(worker));
      throw Error("tensor.matmul", Blame::node,
                  fmt::format("a product [{},{}] = [{},{}] [{},{}] of {}: oneDNN says: {}", op.c.rows, op.c.cols, op.a.rows,
                              op.a.cols, op.b.rows, op.b.cols, to_string(op.a.dtype), error.what()));
    }
    give(std::move(worker));
  }

  bool native_bf16() const { return native_bf16_; }

 private:
  // Anything less than this instruction set has no bf16 in oneDNN, or one that is slower than f32.
  static bool cpu_has_bf16() {
    const int kNeeded = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
    return (static_cast<int>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
  }

  std::unique_ptr<Worker> take() {
    {
      const std::lock_guard lock(workers_mutex_);
      if (!workers_.empty()) {
        std::unique_ptr<Worker> worker = std::move(workers_.back());
        workers_.pop_back();
        return worker;
      }
    }
    return std::make_unique<Worker>(engine_);
  }
  void give(std::unique_ptr<Worker> worker) {
    const std::lock_guard lock(workers_mutex_);
    workers_.push_back(std::move(worker));
  }

  dnnl::matmul primitive_for(const Matmul& op, const Key& key) {
    const std::lock_guard lock(primitives_mutex_);
    const auto found = primitives_.find(key);
    if (found != primitives_.end()) return found->second;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (op.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    const memory::desc a = describe(op.a, op.transpose_a), b = describe(op.b, op.transpose_b), c = describe(op.c, false);
    const auto desc = op.bias ? dnnl::matmul::desc(a, b, describe(op.bias, false), c) : dnnl::matmul::desc(a, b, c);
    return primitives_.emplace(key, dnnl::matmul({desc, attributes, engine_})).first->second;
  }

  Bound bind(const Matmul& op, const Key& key) {
    Bound bound;
    bound.primitive = primitive_for(op, key);
    const auto add = [&](int argument, memory& object, const memory::desc& desc) {
      object = memory(desc, engine_, nullptr);
      bound.arguments.push_back({argument, object.get()});
    };
    add(DNNL_ARG_SRC, bound.a, describe(op.a, op.transpose_a));
    add(DNNL_ARG_WEIGHTS, bound.b, describe(op.b, op.transpose_b));
    add(DNNL_ARG_DST, bound.c, describe(op.c, false));
    if (op.bias) add(DNNL_ARG_BIAS, bound.bias, describe(op.bias, false));
    const memory::desc scratchpad(
        dnnl_primitive_desc_query_md(bound.primitive.get_primitive_desc(), dnnl_query_scratchpad_md, 0) == nullptr
            ? memory::desc()
            : memory::desc(*dnnl_primitive_desc_query_md(bound.primitive.get_primitive_desc(), dnnl_query_scratchpad_md, 0)));
    bound.scratchpad_bytes = scratchpad.get_size();
    if (bound.scratchpad_bytes > 0) add(DNNL_ARG_SCRATCHPAD, bound.scratchpad, scratchpad);
    return bound;
  }

  void execute(const Matmul& op, Worker& worker) {
    const Key key = key_of(op);
    auto found = worker.bound.find(key);
    if (found == worker.bound.end()) found = worker.bound.emplace(key, bind(op, key)).first;
    Bound& bound = found->second;
    bound.a.set_data_handle(op.a.data);
    bound.b.set_data_handle(op.b.data);
    bound.c.set_data_handle(op.c.data);
    if (op.bias) bound.bias.set_data_handle(op.bias.data);
    if (bound.scratchpad_bytes > 0) bound.scratchpad.set_data_handle(worker.scratchpad.at_least(bound.scratchpad_bytes));
    dnnl::error::wrap_c_api(dnnl_primitive_execute(bound.primitive.get(), worker.stream.get(),
                                                   static_cast<int>(bound.arguments.size()), bound.arguments.data()),
                            "could not execute a matmul");
  }

  void run_in_f32(const Matmul& op, Worker& worker) {
    if (!said_.exchange(true, std::memory_order_relaxed)) {
      log::warn("tensor", "this processor has no bf16 products: they are computed in f32, slower");
    }
    Matmul wide = op;
    wide.a = in_f32(op.a, worker.f32[0], true);
    wide.b = in_f32(op.b, worker.f32[1], true);
    wide.c = in_f32(op.c, worker.f32[2], op.accumulate);
    wide.bias = in_f32(op.bias, worker.f32[3], true);
    execute(wide, worker);
    if (op.c.dtype == DType::bf16) cpu_kernels().run(Copy{.dst = op.c, .src = wide.c});
  }

  dnnl::engine engine_;
  bool native_bf16_;
  std::atomic<bool> said_ = false;
  std::mutex workers_mutex_;  // guards workers_
  std::vector<std::unique_ptr<Worker>> workers_;
  std::mutex primitives_mutex_;  // guards primitives_
  std::unordered_map<Key, dnnl::matmul, KeyHash> primitives_;
};

MatmulCache::MatmulCache(Bf16 bf16) : impl_(std::make_unique<Impl>(bf16)) {}
MatmulCache::~MatmulCache() = default;
bool MatmulCache::native_bf16() const { return impl_->native_bf16(); }
void MatmulCache::run(const Matmul& op) {
  check_op(op);
  if (op.c.numel() > 0) impl_->run(op);
}

}  // namespace ms::tensor
