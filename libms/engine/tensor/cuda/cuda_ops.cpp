#include "tensor/cuda/cuda_ops.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "tensor/cpu_kernels.h"
#include "tensor/cuda/cuda_attention.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_matmul.h"
#include "tensor/matmul_blocks.h"

namespace ms::tensor {
kernels::Type kernel_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return kernels::Type::f32;
    case DType::bf16: return kernels::Type::bf16;
    case DType::f64: return kernels::Type::f64;
    case DType::i32: return kernels::Type::i32;
  }
  return kernels::Type::f32;
}

kernels::Matrix kernel_matrix(const Tensor& t) { return {t.data, t.rows, t.cols, t.ld, kernel_type(t.dtype)}; }

namespace {

kernels::Matrix matrix(const Tensor& t) { return kernel_matrix(t); }
kernels::Residual matrices(const Residual& of) { return {matrix(of.a), matrix(of.b), matrix(of.bias)}; }

template <class Op>
kernels::AdamWScalars scalars_of(const Op& op) {
  kernels::AdamWScalars scalars{.lr = 0,
                                .beta1 = 0,
                                .beta2 = 0,
                                .eps = op.eps,
                                .weight_decay = op.weight_decay,
                                .correction1 = op.correction1,
                                .correction2 = op.correction2};
  if constexpr (requires { op.lr; }) scalars.lr = op.lr;
  if constexpr (requires { op.beta1; }) scalars.beta1 = op.beta1, scalars.beta2 = op.beta2;
  return scalars;
}

// Copies the CPU's table, with the same bits: it is small and computed once.
void make_on_host(RotaryTable op, cudaStream_t stream) {
  const Tensor there = op.table;
  const auto size = static_cast<std::size_t>(size_of(there.dtype));
  const std::size_t width = static_cast<std::size_t>(there.cols) * size;
  std::vector<std::byte> here(static_cast<std::size_t>(there.rows) * width);
  op.table.data = here.data();
  op.table.ld = there.cols;
  cpu_kernels().run(op);
  check(cudaMemcpy2DAsync(there.data, static_cast<std::size_t>(there.ld) * size, here.data(), width, width,
                          static_cast<std::size_t>(there.rows), cudaMemcpyHostToDevice, stream),
        "copying to the GPU");
  check(cudaStreamSynchronize(stream), "copying to the GPU");  // before `here` is destroyed
}

// The scratch memory of an op that is neither a matmul nor attention.
template <class Row>
std::size_t scratch_of(const Row&) {
  return 0;
}
std::size_t scratch_of(const LayerNormBwd& op) { return kernels::column_sums_bytes(op.x.cols, 2); }
std::size_t scratch_of(const RmsNormBwd& op) { return kernels::column_sums_bytes(op.gain.cols, 1); }
std::size_t scratch_of(const EmbeddingBwd& op) { return kernels::embedding_bwd_bytes(op.dy.rows); }
std::size_t scratch_of(const RoundToFp8& op) { return sums_bytes(op); }
std::size_t scratch_of(const ColumnSum& op) { return kernels::column_sums_bytes(op.x.cols, 1); }
std::size_t scratch_of(const SumInto&) { return kernels::total_bytes(); }
std::size_t scratch_of(const SumSquares&) { return kernels::total_bytes(); }
std::size_t scratch_of(const LambMoments&) { return kernels::total_bytes(); }
std::size_t scratch_of(const Route& op) { return kernels::route_bytes(op.experts.numel()); }

template <class Row>
kernels::RouteRule rule_of(const Row& op) {
  return {op.sigmoid, op.normalized, op.scale};
}

}  // namespace

class CudaOps::Impl {
 public:
  Impl(bool deterministic, int multiprocessors, SharedPlans* shared)
      : matmul_(multiprocessors), attention_(attention(deterministic, shared)) {}
  HostIntegers& integers() { return integers_; }
  std::size_t prepare(std::span<const Op> ops, MatmulChoices& choices, bool timed) {
    matmul_.take(choices);
    std::size_t& most = most_prepared_;
    for (const Op& op : ops) {
      if (const auto* matmul = std::get_if<Matmul>(&op)) {
        most = std::max(most, matmul_.prepare(*matmul, choices, timed));
      } else if (const auto* forward = std::get_if<AttentionFwd>(&op)) {
        most = std::max(most, attention_->prepare(*forward));
      } else if (const auto* backward = std::get_if<AttentionBwd>(&op)) {
        most = std::max(most, attention_->prepare(*backward));
      } else {
        most = std::max(most, std::visit([](const auto& row) { return scratch_of(row); }, op));
      }
    }
    matmul_.run_new();
    return most;
  }
  void run(const Op& op, cudaStream_t stream, CudaScratch& scratch) {
    if (op_class(op) == OpClass::matmul || op_class(op) == OpClass::attention) scratch.take(most_prepared_);
    std::visit([&](const auto& row) { run(row, stream, scratch); }, op);
    check_launch(op_name(op));
  }

 private:
  using S = cudaStream_t;

  static std::shared_ptr<CudaAttention> attention(bool deterministic, SharedPlans* shared) {
    const auto make = [&] { return std::make_shared<CudaAttention>(deterministic); };
    return shared == nullptr ? make() : std::static_pointer_cast<CudaAttention>(shared->made(make));
  }

  // An op without an overload fails to compile, instead of converting to Op and recursing.
  template <class Row>
  void run(const Row& op, S stream, CudaScratch& scratch) = delete;
  void run(const Matmul& op, S stream, CudaScratch& scratch) { matmul_.run(op, stream, scratch); }
  void run(const Amax& op, S stream, CudaScratch&) { kernels::compute_amax(stream, op.out.as<float>(), matrix(op.x)); }
  void run(const RoundToFp8& op, S stream, CudaScratch& scratch) {
    matmul_.round(op, scratch.take(scratch_of(op)), stream);
  }
  void run(const AttentionFwd& op, S stream, CudaScratch& scratch) { attention_->run(op, stream, scratch); }
  void run(const AttentionBwd& op, S stream, CudaScratch& scratch) { attention_->run(op, stream, scratch); }
  void run(const LayerNormFwd& op, S stream, CudaScratch&) {
    kernels::layernorm_fwd(stream, matrix(op.y), op.mean.as<float>(), op.rstd.as<float>(), matrix(op.x),
                           matrix(op.gain), matrix(op.bias), op.eps, matrices(op.residual), op.amax.as<float>());
  }
  void run(const LayerNormBwd& op, S stream, CudaScratch& scratch) {
    kernels::layernorm_bwd(stream, matrix(op.dx), matrix(op.dgain), matrix(op.dbias), matrix(op.dy), matrix(op.x),
                           op.mean.as<float>(), op.rstd.as<float>(), matrix(op.gain), op.accumulate,
                           scratch.take(scratch_of(op)), op.amax.as<float>());
  }
  void run(const RmsNormFwd& op, S stream, CudaScratch&) {
    kernels::rmsnorm_fwd(stream, matrix(op.y), op.rstd.as<float>(), matrix(op.x), matrix(op.gain), op.eps,
                         matrices(op.residual), static_cast<int>(op.heads), op.amax.as<float>());
  }
  void run(const RmsNormBwd& op, S stream, CudaScratch& scratch) {
    kernels::rmsnorm_bwd(stream, matrix(op.dx), matrix(op.dgain), matrix(op.dy), matrix(op.x), op.rstd.as<float>(),
                         matrix(op.gain), op.accumulate, scratch.take(scratch_of(op)), static_cast<int>(op.heads),
                         op.amax.as<float>());
  }
  void run(const GeluFwd& op, S stream, CudaScratch&) {
    kernels::gelu_fwd(stream, matrix(op.y), matrix(op.x), op.amax.as<float>(), op.exact);
  }
  void run(const GeluBwd& op, S stream, CudaScratch&) {
    kernels::gelu_bwd(stream, matrix(op.dx), matrix(op.dy), matrix(op.x), op.amax.as<float>(), op.exact);
  }
  void run(const SwigluFwd& op, S stream, CudaScratch&) {
    kernels::swiglu_fwd(stream, matrix(op.y), matrix(op.x), op.amax.as<float>(), op.factors.as<float>());
  }
  void run(const SwigluBwd& op, S stream, CudaScratch&) {
    kernels::swiglu_bwd(stream, matrix(op.dx), matrix(op.dy), matrix(op.x), op.amax.as<float>(),
                        op.factors.as<float>());
    if (op.factors) kernels::swiglu_factors_bwd(stream, op.dfactors.as<float>(), matrix(op.dy), matrix(op.x));
  }
  void run(const RotaryTable& op, S stream, CudaScratch&) { make_on_host(op, stream); }
  void run(const Rotary& op, S stream, CudaScratch&) {
    kernels::rotary(stream, matrix(op.x), matrix(op.table), op.seq, op.head_dim, op.inverse);
  }
  void run(const EmbeddingFwd& op, S stream, CudaScratch&) {
    kernels::embedding_fwd(stream, matrix(op.y), matrix(op.table), op.tokens.as<std::int32_t>(), op.first);
  }
  void run(const EmbeddingBwd& op, S stream, CudaScratch& scratch) {
    kernels::embedding_bwd(stream, matrix(op.dtable), matrix(op.dy), op.tokens.as<std::int32_t>(), op.first,
                           scratch.take(scratch_of(op)));
  }
  void run(const PositionFwd& op, S stream, CudaScratch&) {
    kernels::position_fwd(stream, matrix(op.y), matrix(op.table), op.offset);
  }
  void run(const PositionBwd& op, S stream, CudaScratch&) {
    kernels::position_bwd(stream, matrix(op.dtable), matrix(op.dy), op.offset);
  }
  void run(const LossStats& op, S stream, CudaScratch&) {
    kernels::loss_stats(stream, matrix(op.stats), matrix(op.logits), op.targets.as<std::int32_t>(), op.first, op.valid);
  }
  void run(const LossCombine& op, S stream, CudaScratch&) {
    kernels::loss_combine(stream, op.loss.as<float>(), op.lse.as<float>(), matrix(op.gathered),
                          op.targets ? op.targets.as<std::int32_t>() : nullptr);
  }
  void run(const LossBackward& op, S stream, CudaScratch&) {
    kernels::loss_backward(stream, matrix(op.logits), op.lse.as<float>(), op.targets.as<std::int32_t>(), op.first,
                           op.valid, op.scale, op.z);
  }
  void run(const Add& op, S stream, CudaScratch&) {
    kernels::add(stream, matrix(op.y), matrix(op.a), matrix(op.b), matrix(op.bias));
  }
  void run(const ColumnSum& op, S stream, CudaScratch& scratch) {
    kernels::column_sum(stream, matrix(op.out), matrix(op.x), op.accumulate, scratch.take(scratch_of(op)));
  }
  void run(const Copy& op, S stream, CudaScratch&) {
    if (op.dst.dtype != op.src.dtype) return kernels::convert(stream, matrix(op.dst), matrix(op.src));
    if (op.dst.contiguous() && op.src.contiguous()) {  // of any size, while a pitch has a limit
      return check(cudaMemcpyAsync(op.dst.data, op.src.data, static_cast<std::size_t>(op.dst.size_bytes()),
                                   cudaMemcpyDefault, stream),
                   "copying");
    }
    const auto size = static_cast<std::size_t>(size_of(op.dst.dtype));
    const auto pitch = [&](const Tensor& t) { return static_cast<std::size_t>(t.rows == 1 ? t.cols : t.ld) * size; };
    check(cudaMemcpy2DAsync(op.dst.data, pitch(op.dst), op.src.data, pitch(op.src),
                            static_cast<std::size_t>(op.dst.cols) * size, static_cast<std::size_t>(op.dst.rows),
                            cudaMemcpyDefault, stream),
          "copying");
  }
  void run(const Fill& op, S stream, CudaScratch&) { kernels::fill(stream, matrix(op.x), op.value); }
  void run(const SumInto& op, S stream, CudaScratch& scratch) {
    kernels::sum_into(stream, op.out.as<double>(), matrix(op.x), op.scale, scratch.take(scratch_of(op)));
  }
  void run(const SumSquares& op, S stream, CudaScratch& scratch) {
    kernels::sum_squares(stream, op.out.as<double>(), matrix(op.x), scratch.take(scratch_of(op)));
  }
  void run(const ClipFactor& op, S stream, CudaScratch&) {
    kernels::clip_factor(stream, op.factor.as<float>(), op.norm.as<float>(), op.sum_squares.as<double>(), op.max_norm,
                         op.skip_above);
  }
  void run(const AdamW& op, S stream, CudaScratch&) {
    kernels::adamw(stream, matrix(op.param), op.master.as<float>(), matrix(op.m), matrix(op.v), matrix(op.grad),
                   op.factor.as<float>(), scalars_of(op), op.seed);
  }
  void run(const LambMoments& op, S stream, CudaScratch& scratch) {
    kernels::lamb_moments(stream, op.norms.as<double>(), op.m.as<float>(), op.v.as<float>(), matrix(op.w),
                          matrix(op.grad), op.factor.as<float>(), scalars_of(op), scratch.take(scratch_of(op)));
  }
  void run(const LambApply& op, S stream, CudaScratch&) {
    kernels::lamb_apply(stream, matrix(op.param), op.master.as<float>(), op.m.as<float>(), op.v.as<float>(),
                        op.norms.as<double>(), op.factor.as<float>(), scalars_of(op));
  }
  void run(const MuonMomentum& op, S stream, CudaScratch&) {
    kernels::muon_momentum(stream, matrix(op.u), op.m.as<float>(), matrix(op.grad), op.factor.as<float>(), op.momentum);
  }
  void run(const Normalize& op, S stream, CudaScratch&) {
    kernels::normalize(stream, matrix(op.y), matrix(op.x), op.sum_squares.as<double>(), op.eps);
  }
  void run(const Blend& op, S stream, CudaScratch&) {
    kernels::blend(stream, matrix(op.y), matrix(op.a), matrix(op.b), op.alpha, op.beta);
  }
  void run(const MuonApply& op, S stream, CudaScratch&) {
    kernels::muon_apply(stream, matrix(op.param), op.master.as<float>(), matrix(op.u), op.factor.as<float>(), op.lr,
                        op.weight_decay, op.scale);
  }
  void run(const InitNormal& op, S stream, CudaScratch&) {
    kernels::init_normal(stream, matrix(op.x), op.valid_rows - op.row0, op.seed, op.key,
                         op.row0 * op.global_cols + op.col0, op.global_cols, op.std);
  }
  // cuBLASLt takes sizes from the host.
  void run(const GroupedMatmul& op, S stream, CudaScratch& scratch) {
    const std::vector<std::int32_t> offsets = integers_.read(op.offsets, stream);
    for (std::int64_t expert = op.range.first; expert < op.range.end(op.experts()); ++expert) {
      const Matmul part = expert_matmul(op, expert, offsets.data());
      if (part.a.rows > 0) {
        matmul_.run(part, stream, scratch);
      } else if (op.transpose_a && !op.accumulate) {
        kernels::fill(stream, matrix(part.c), 0.0F);
      }
    }
  }
  void run(const Route& op, S stream, CudaScratch& scratch) {
    kernels::route(
        stream,
        {op.experts.as<std::int32_t>(), op.slots.as<std::int32_t>(), op.tokens.as<std::int32_t>(),
         op.weights.as<float>(), op.offsets.as<std::int32_t>()},
        matrix(op.logits), static_cast<int>(op.experts.cols), rule_of(op),
        {op.bias ? op.bias.as<float>() : nullptr, static_cast<int>(op.groups), static_cast<int>(op.from_groups)},
        static_cast<int>(op.first), static_cast<int>(op.with_slots()), scratch.take(scratch_of(op)));
  }
  void run(const RouteBwd& op, S stream, CudaScratch&) {
    kernels::route_bwd(stream, matrix(op.dlogits), op.dweights.as<float>(), matrix(op.logits),
                       op.experts.as<std::int32_t>(), op.slots.as<std::int32_t>(), matrix(op.counts),
                       static_cast<int>(op.experts.cols), rule_of(op), op.balance, op.z);
  }
  void run(const ExpertCount& op, S stream, CudaScratch&) {
    kernels::expert_count(stream, matrix(op.counts), op.experts.as<std::int32_t>(), op.experts.numel());
  }
  void run(const ExpertBias& op, S stream, CudaScratch&) {
    kernels::expert_bias(stream, matrix(op.bias), op.counts.as<double>(), op.factor.as<float>(), op.rate);
  }
  void run(const ExpertDispatch& op, S stream, CudaScratch&) {
    kernels::embedding_fwd(stream, matrix(op.y), matrix(op.x), op.tokens.as<std::int32_t>(), 0);
  }
  void run(const ExpertCombine& op, S stream, CudaScratch&) {
    kernels::expert_combine(stream, matrix(op.y), matrix(op.x), op.slots.as<std::int32_t>(),
                            static_cast<int>(op.slots.cols));
  }
  // The kernel takes places from the host.
  void run(const ExpertSum& op, S stream, CudaScratch&) {
    const auto [begin, end] = op.rows(integers_.read(op.offsets, stream).data());
    if (begin == end) return;
    const Tensor y = op.y.slice_rows(begin, end - begin);
    MS_ASSERT(op.parts() <= kernels::kMostInputs, "{} parts", op.parts());
    const void* parts[kernels::kMostInputs];
    for (std::int64_t i = 0; i < op.parts(); ++i) parts[i] = op.part(i).slice_rows(begin, y.rows).data;
    kernels::reduce(stream, false, kernel_type(y.dtype), y.data, parts, static_cast<int>(op.parts()), y.numel());
  }

  HostIntegers integers_;
  CudaMatmul matmul_;
  std::shared_ptr<CudaAttention> attention_;
  // The scratch memory that a stream allocates at once: growing step by step, it would hold freed blocks for a while.
  std::size_t most_prepared_ = 0;
};

CudaOps::CudaOps(bool deterministic, int multiprocessors, SharedPlans* shared)
    : impl_(std::make_unique<Impl>(deterministic, multiprocessors, shared)) {}
CudaOps::~CudaOps() = default;
std::size_t CudaOps::prepare(std::span<const Op> ops, MatmulChoices& choices, bool timed) {
  return impl_->prepare(ops, choices, timed);
}
void CudaOps::run(const Op& op, cudaStream_t stream, CudaScratch& scratch) { impl_->run(op, stream, scratch); }
HostIntegers& CudaOps::integers() { return impl_->integers(); }

}  // namespace ms::tensor
