// oneDNN's matmul for the op list. Its primitives are created and run for one thread only: with more, oneDNN splits a
// long sum among the threads when there are few outputs, and the bits would depend on their number. Instead the team
// shares blocks of the output, each with whole sums.
//
// A block takes a worker from a small pool, for one thread at a time. The worker owns a stream, working memory and, for
// every shape it has met, a primitive with its memory objects, so that a call only sets pointers. Primitives are
// created once per shape for all workers.
#include "tensor/cpu_matmul.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "tensor/cpu/kernels.h"
#include "tensor/fp8.h"
#include "tensor/matmul_blocks.h"
#include "tensor/op_checks.h"
#include "tensor/team.h"

namespace ms::tensor {
namespace {

using dnnl::memory;

// Everything that a primitive depends on.
struct Key {
  std::int64_t m, n, k, lda, ldb, ldc;
  std::int64_t flags;  // types, transposes, bias, accumulate
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

// Returns the leading dimension. A matrix of one row has none that matters: all share one key.
std::int64_t stride_of(const Tensor& x) { return x.rows == 1 ? x.cols : x.ld; }

Key key_of(const Matmul& op) {
  const std::int64_t flags = (op.a.dtype == DType::bf16 ? 1 : 0) | (op.c.dtype == DType::bf16 ? 2 : 0) |
                             (op.transpose_a ? 4 : 0) | (op.transpose_b ? 8 : 0) | (op.bias ? 16 : 0) |
                             (op.accumulate ? 32 : 0);
  return {op.c.rows,       op.c.cols, op.transpose_a ? op.a.rows : op.a.cols, stride_of(op.a), stride_of(op.b),
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

// oneDNN 3 makes in one step what 2, that of Debian 12, makes in two.
dnnl::matmul::primitive_desc describe(const Matmul& op, const dnnl::primitive_attr& attributes,
                                      const dnnl::engine& engine) {
  const memory::desc a = describe(op.a, op.transpose_a), b = describe(op.b, op.transpose_b), c = describe(op.c, false);
#if DNNL_VERSION_MAJOR >= 3
  if (!op.bias) return {engine, a, b, c, attributes};
  return {engine, a, b, describe(op.bias, false), c, attributes};
#else
  if (!op.bias) return {dnnl::matmul::desc(a, b, c), attributes, engine};
  return {dnnl::matmul::desc(a, b, describe(op.bias, false), c), attributes, engine};
#endif
}

constexpr bool includes(dnnl::cpu_isa isa, dnnl::cpu_isa part) {
  return (static_cast<int>(isa) & static_cast<int>(part)) == static_cast<int>(part);
}

// Keeps oneDNN from AMX, where its bits depend on the number of rows, and returns what it uses. It accepts a limit
// once, before anything else is asked of it.
dnnl::cpu_isa limited_isa() {
  using dnnl::cpu_isa;
  static const cpu_isa kIsa = [] {
    constexpr std::array kByLimit{cpu_isa::sse41, cpu_isa::sse41, cpu_isa::avx2, cpu_isa::avx512_core};
    const auto limit = static_cast<std::size_t>(isa_limit());
    dnnl::set_max_cpu_isa(limit < kByLimit.size() ? kByLimit[limit] : cpu_isa::avx512_core_bf16);
    const cpu_isa effective = dnnl::get_effective_cpu_isa();
    if (includes(effective, cpu_isa::avx512_core_amx))
      log::warn("tensor",
                "oneDNN was used before ms, with AMX: the bits of a matmul's row depend on the number of rows");
    return effective;
  }();
  return kIsa;
}

// While this lives, oneDNN sees one thread.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Below this many multiply-adds a team costs more than it saves: about 10 microseconds.
constexpr double kSharedTerms = 1e6;
constexpr std::int64_t kPackedRows = 2048;  // of a transposed a, at a time: the head's has 50,000 columns

// Copies the block's a without gaps: oneDNN's kernels that sum in order accept a transposed a only in that layout. The
// copy is 1/cols of the matmul's work.
Tensor packed(const Matmul& op, const Matmul& part, void* memory) {
  const Tensor dense{static_cast<std::byte*>(memory), part.a.rows, part.a.cols, part.a.cols, part.a.dtype};
  Tensor gaps = part.a;
  gaps.ld = op.a.ld;
  cpu_kernels().run(Copy{.dst = dense, .src = gaps});
  return dense;
}

// A primitive with its memory objects.
struct Bound {
  dnnl::matmul primitive;
  memory c, a, b, bias, scratchpad;
  std::vector<dnnl_exec_arg_t> arguments;
  std::size_t scratchpad_bytes = 0;
};

// A buffer that only grows.
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
  Buffer packed;              // a block of a transposed a
  std::array<Buffer, 2> fp8;  // a and b where they are rounded
};

// Returns x rounded to fp8, still stored as bf16, in the worker's memory. `amax` as in Matmul, or absent.
Tensor rounded(const Tensor& x, const Tensor& amax, Fp8 format, Buffer& buffer) {
  Tensor result{nullptr, x.rows, x.cols, x.cols, x.dtype};
  result.data = static_cast<std::byte*>(buffer.at_least(static_cast<std::size_t>(result.size_bytes())));
  round_tensor_to_fp8(result, x, amax ? *amax.as<float>() : amax_of(x), format);
  return result;
}

}  // namespace

class MatmulCache::Impl {
 public:
  Impl() : isa_(limited_isa()), engine_(dnnl::engine::kind::cpu, 0) {}

  void run(const Matmul& op) {
    if (op.operands == Operands::as_given) return run_as_given(op);
    const Lease worker(*this);
    Matmul plain = op;
    const Fp8 format_a = fp8_of_a(op.operands);
    plain.a = op.a_rounded ? op.a_rounded : rounded(op.a, op.a_amax, format_a, (*worker).fp8[0]);
    plain.b = op.b_rounded ? op.b_rounded : rounded(op.b, op.b_amax, kFp8OfB, (*worker).fp8[1]);
    plain.a_rounded = plain.b_rounded = {};
    plain.operands = Operands::as_given;
    run_as_given(plain);
  }
  void run_as_given(const Matmul& op) {
    try {
      compute(op);
    } catch (const dnnl::error& error) {
      throw Error("tensor.matmul", Blame::node,
                  fmt::format("matmul [{},{}] = [{},{}] [{},{}] of {}: oneDNN: {}", op.c.rows, op.c.cols, op.a.rows,
                              op.a.cols, op.b.rows, op.b.cols, to_string(op.a.dtype), error.what()));
    }
  }

 private:
  // Holds a worker for the lifetime of this object.
  class Lease {
   public:
    explicit Lease(Impl& pool) : pool_(pool) {
      {
        const std::lock_guard lock(pool_.workers_mutex_);
        if (!pool_.workers_.empty()) {
          worker_ = std::move(pool_.workers_.back());
          pool_.workers_.pop_back();
        }
      }
      if (!worker_) worker_ = std::make_unique<Worker>(pool_.engine_);
    }
    ~Lease() {
      const std::lock_guard lock(pool_.workers_mutex_);
      pool_.workers_.push_back(std::move(worker_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Worker& operator*() const { return *worker_; }

   private:
    Impl& pool_;
    std::unique_ptr<Worker> worker_;
  };

  // A primitive, and whether its sums run over k in order, however the shape is split.
  struct Primitive {
    dnnl::matmul primitive;
    memory::desc scratchpad;
    bool in_order = false;
  };

  Primitive primitive_for(const Matmul& op, const Key& key) {
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
    const OneThread one_thread;
    const dnnl::matmul::primitive_desc desc = describe(op, attributes, engine_);
    const bool in_order = std::string_view(desc.impl_info_str()).starts_with("brg:");
    return primitives_.emplace(key, Primitive{dnnl::matmul(desc), desc.scratchpad_desc(), in_order}).first->second;
  }

  // oneDNN's older kernels, for transposed narrow outputs, split a sum depending on the whole shape: there the blocks
  // are the same for every number of threads.
  MatmulBlock blocks_of(const Matmul& op, int threads) {
    constexpr std::int64_t kFixed = 256;
    const MatmulBlock whole{op.c.rows, op.c.cols};
    const Key key = key_of(op);
    const auto terms = static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k);
    if (terms < kSharedTerms) return whole;
    if (!primitive_for(op, key).in_order) return {std::min(whole.rows, kFixed), std::min(whole.cols, kFixed)};
    if (threads == 1) return whole;
    // Not every split has a kernel that sums in order: some need an output without gaps between its rows.
    for (const MatmulBlock& blocks : matmul_cuts(whole.rows, whole.cols, threads)) {
      const Matmul block = matmul_block(op, 0, 0, blocks);
      const Matmul last = matmul_block(op, (whole.rows - 1) / blocks.rows * blocks.rows,
                                       (whole.cols - 1) / blocks.cols * blocks.cols, blocks);
      if (primitive_for(block, key_of(block)).in_order && primitive_for(last, key_of(last)).in_order) return blocks;
    }
    return whole;
  }

  // Applies the fused GELU while c is in the nearest cache.
  static void apply_gelu(const Matmul& op) {
    if (op.gelu_y) cpu_kernels().run(GeluFwd{.y = op.gelu_y, .x = op.c});
    if (op.gelu_x) cpu_kernels().run(GeluBwd{.dx = op.c, .dy = op.c, .x = op.gelu_x});
  }

  // Below AVX-512 oneDNN has nothing but its older kernels; with AMX f32 is faster on tiles.
  void compute(const Matmul& op) {
    const bool onednn_has = op.a.dtype == DType::f32 && includes(isa_, dnnl::cpu_isa::avx512_core);
    if ((onednn_has && cpu_isa() != CpuIsa::amx_bf16) || !cpu_kernels().matmul(op, apply_gelu)) share(op);
  }

  void share(const Matmul& op) {
    const int threads = team_threads();
    MatmulBlock blocks = blocks_of(op, threads);
    if (op.transpose_a && blocks.rows < op.c.rows) blocks.rows = std::min(blocks.rows, kPackedRows);
    const std::int64_t across = (op.c.cols + blocks.cols - 1) / blocks.cols;
    const std::int64_t count = (op.c.rows + blocks.rows - 1) / blocks.rows * across;
    if (count == 1) {
      const Lease worker(*this);
      execute(op, *worker);
      return apply_gelu(op);
    }
    share_work(count, 1, [&](std::int64_t begin, std::int64_t end, int) {
      const Lease worker(*this);
      for (std::int64_t i = begin; i < end; ++i) {
        Matmul part = matmul_block(op, i / across * blocks.rows, i % across * blocks.cols, blocks);
        if (op.transpose_a) {
          part.a = packed(op, part, (*worker).packed.at_least(static_cast<std::size_t>(part.a.size_bytes())));
        }
        execute(part, *worker);
        apply_gelu(part);
      }
    });
  }

  Bound bind(const Matmul& op, const Key& key) {
    Bound bound;
    const Primitive made = primitive_for(op, key);
    bound.primitive = made.primitive;
    const auto add = [&](int argument, memory& object, const memory::desc& desc) {
      object = memory(desc, engine_, nullptr);
      bound.arguments.push_back({argument, object.get()});
    };
    add(DNNL_ARG_SRC, bound.a, describe(op.a, op.transpose_a));
    add(DNNL_ARG_WEIGHTS, bound.b, describe(op.b, op.transpose_b));
    add(DNNL_ARG_DST, bound.c, describe(op.c, false));
    if (op.bias) add(DNNL_ARG_BIAS, bound.bias, describe(op.bias, false));
    bound.scratchpad_bytes = made.scratchpad.get_size();
    if (bound.scratchpad_bytes > 0) add(DNNL_ARG_SCRATCHPAD, bound.scratchpad, made.scratchpad);
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
    if (bound.scratchpad_bytes > 0)
      bound.scratchpad.set_data_handle(worker.scratchpad.at_least(bound.scratchpad_bytes));
    const OneThread one_thread;
    dnnl::error::wrap_c_api(dnnl_primitive_execute(bound.primitive.get(), worker.stream.get(),
                                                   static_cast<int>(bound.arguments.size()), bound.arguments.data()),
                            "could not execute a matmul");
  }

  dnnl::cpu_isa isa_;
  dnnl::engine engine_;
  std::mutex workers_mutex_;  // guards workers_
  std::vector<std::unique_ptr<Worker>> workers_;
  std::mutex primitives_mutex_;  // guards primitives_
  std::unordered_map<Key, Primitive, KeyHash> primitives_;
};

MatmulCache::MatmulCache() : impl_(std::make_unique<Impl>()) {}
MatmulCache::~MatmulCache() = default;
void MatmulCache::run(const Matmul& op) {
  check_op(op);
  if (op.c.numel() > 0) impl_->run(op);
  if (op.a_sums) cpu_kernels().run(ColumnSum{.out = op.a_sums, .x = op.a, .accumulate = op.accumulate});
}

}  // namespace ms::tensor
