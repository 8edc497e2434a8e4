// Attention on the GPU, by cuDNN. Included by cuda_ops.cpp alone.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/cuda/attention_graph.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_ops.h"

namespace ms::tensor {

// Plans by shape, which the ranks of a process share. cuDNN does not promise that several threads may
// run a plan at once: they take turns at launching it.
class CudaAttention final : public SharedPlans::Plans {
 public:
  explicit CudaAttention(bool deterministic) : deterministic_(deterministic) {
    cudnnHandle_t handle = nullptr;
    check(cudnnCreate(&handle), "starting");
    handle_.reset(handle);
  }

  // Creates the plan and returns the scratch memory that it needs.
  template <class Attention>
  std::size_t prepare(const Attention& op) {
    const std::lock_guard lock(mutex_);
    return scratch_bytes(op, planned(op));
  }

  void run(const AttentionFwd& op, cudaStream_t stream, CudaScratch& scratch) {
    const std::lock_guard lock(mutex_);
    const Planned<AttentionForward>& of = planned(op);
    const auto& [names, plan] = of;
    Scalars scalars(op.scale, op.window);
    std::vector<std::pair<CudnnGraph::Id, void*>> tensors{{names.q, op.q.data},
                                                          {names.k, op.k.data},
                                                          {names.v, op.v.data},
                                                          {names.o, op.o.data},
                                                          {names.lse, op.lse.data},
                                                          {names.scale, &scalars.scale},
                                                          {names.minus_infinity, &scalars.minus_infinity}};
    if (names.window != 0) tensors.emplace_back(names.window, &scalars.window);
    if (names.starts != 0) tensors.emplace_back(names.starts, op.starts.data);
    check(cudnnSetStream(handle_.get(), stream), "taking a stream");
    plan.run(handle_.get(), tensors, scratch.take(scratch_bytes(op, of)));
  }

  void run(const AttentionBwd& op, cudaStream_t stream, CudaScratch& scratch) {
    const std::lock_guard lock(mutex_);
    const Planned<AttentionBackward>& of = planned(op);
    const auto& [names, plan] = of;
    Scalars scalars(op.scale, op.window);
    auto* workspace = static_cast<std::byte*>(scratch.take(scratch_bytes(op, of)));
    std::vector<std::pair<CudnnGraph::Id, void*>> tensors{{names.q, op.q.data},
                                                          {names.k, op.k.data},
                                                          {names.v, op.v.data},
                                                          {names.o, op.o.data},
                                                          {names.dout, op.dout.data},
                                                          {names.lse, op.lse.data},
                                                          {names.delta, op.delta.data},
                                                          {names.dq, op.dq.data},
                                                          {names.dk, op.dk.data},
                                                          {names.dv, op.dv.data},
                                                          {names.scale, &scalars.scale},
                                                          {names.one, &scalars.one},
                                                          {names.minus_infinity, &scalars.minus_infinity}};
    if (names.window != 0) tensors.emplace_back(names.window, &scalars.window);
    if (names.starts != 0) tensors.emplace_back(names.starts, op.starts.data);
    if (names.dq_sum != 0) {
      std::byte* sum = workspace + workspace_bytes(plan);
      tensors.emplace_back(names.dq_sum, sum);
      check(cudaMemsetAsync(sum, 0, sum_bytes(op, names), stream), "clearing a gradient");
    }
    check(cudnnSetStream(handle_.get(), stream), "taking a stream");
    plan.run(handle_.get(), tensors, workspace);
  }

 private:
  struct Scalars {  // passed by value: cuDNN reads them when the plan runs
    Scalars(float scale_of, std::int64_t window_of) : scale(scale_of), window(static_cast<float>(window_of)) {}
    float scale, window, one = 1, minus_infinity = masked();
    // Before 9.10 cuDNN subtracts infinities from each other in a fully masked tile.
    static float masked() {
      using Limits = std::numeric_limits<float>;
      return cudnnGetVersion() < 91000 ? Limits::lowest() : -Limits::infinity();
    }
  };
  template <class Attention>
  static AttentionKey key_of(const Attention& op) {
    MS_ASSERT(op.q.dtype == DType::bf16, "attention of {} on a GPU", to_string(op.q.dtype));
    op.each([](Access, const Tensor& t) {
      if (t.dtype != DType::bf16) return MS_ASSERT(t.contiguous(), "attention with gaps in its {}", to_string(t.dtype));
      MS_ASSERT(t.ld % 8 == 0 && reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0,
                "attention in rows that are not aligned to 16 bytes");
    });
    return {.batch = op.batch,
            .seq = op.seq,
            .heads = op.heads,
            .kv_heads = op.kv_heads,
            .head_dim = op.head_dim,
            .window = op.window < op.seq ? op.window : 0,
            .q_ld = op.q.ld,
            .k_ld = op.k.ld,
            .v_ld = op.v.ld,
            .o_ld = op.o.ld,
            .documents = static_cast<bool>(op.starts)};
  }
  static constexpr const char* kNoDocuments =
      "before Hopper cuDNN has no backward of attention within documents: set data.reset_attention = false";
  template <class Graph>
  struct Planned {
    Planned(const AttentionKey& key, cudnnHandle_t handle)
        : names(key), plan(handle, names.graph.finish(handle), key.documents ? kNoDocuments : "") {}
    Graph names;
    CudnnPlan plan;
  };
  const Planned<AttentionForward>& planned(const AttentionFwd& op) {
    MS_ASSERT(op.queries() == op.seq && op.keys() == op.seq && !op.merges && op.o.dtype == op.q.dtype,
              "attention of {} queries and {} keys of {} on a GPU", op.queries(), op.keys(), op.seq);
    const AttentionKey key = key_of(op);
    return forward_.try_emplace(key, key, handle_.get()).first->second;
  }
  const Planned<AttentionBackward>& planned(const AttentionBwd& op) {
    MS_ASSERT(
        op.queries() == op.seq && op.keys() == op.seq && !op.adds && !op.adds_queries && op.dq.dtype == op.q.dtype,
        "gradients of {} queries and {} keys of {} on a GPU", op.queries(), op.keys(), op.seq);
    AttentionKey key = key_of(op);
    key.deterministic = deterministic_;
    key.dq_ld = op.dq.ld, key.dk_ld = op.dk.ld, key.dv_ld = op.dv.ld, key.dout_ld = op.dout.ld;
    return backward_.try_emplace(key, key, handle_.get()).first->second;
  }
  static std::size_t workspace_bytes(const CudnnPlan& plan) {
    return static_cast<std::size_t>((plan.workspace_bytes() + 255) / 256 * 256);
  }
  // The bytes of dq in f32, into which non-deterministic plans add with atomics.
  static std::size_t sum_bytes(const AttentionBwd& op, const AttentionBackward& names) {
    if (names.dq_sum == 0) return 0;
    return static_cast<std::size_t>(op.batch * op.heads * op.seq * op.head_dim) * sizeof(float);
  }
  static std::size_t scratch_bytes(const AttentionFwd&, const Planned<AttentionForward>& of) {
    return workspace_bytes(of.plan);
  }
  static std::size_t scratch_bytes(const AttentionBwd& op, const Planned<AttentionBackward>& of) {
    return workspace_bytes(of.plan) + sum_bytes(op, of.names);
  }
  struct Close {
    void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
  };

  bool deterministic_;
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, Close> handle_;
  std::map<AttentionKey, Planned<AttentionForward>> forward_;
  std::map<AttentionKey, Planned<AttentionBackward>> backward_;
};

}  // namespace ms::tensor
