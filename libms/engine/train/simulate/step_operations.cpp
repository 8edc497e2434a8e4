#include "train/simulate/step_operations.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tensor/op_cost.h"
#include "train/simulate/sim_issuer.h"

namespace ms::train {
namespace {

// Each form once: a step has millions of operations, and few forms.
class Collector final : public tensor::OpObserver {
 public:
  void ran(const tensor::Op& op, double) override {
    constexpr std::uintptr_t kAligned = 256;
    std::vector<std::int64_t> form{static_cast<std::int64_t>(op.index())};
    each_access(op, [&](tensor::Access, const tensor::Tensor& t) {
      const auto offset = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(t.data) % kAligned);
      form.insert(form.end(), {t.rows, t.cols, t.ld, static_cast<std::int64_t>(t.dtype), offset});
    });
    if (const auto* matmul = std::get_if<tensor::Matmul>(&op))
      form.insert(form.end(), {matmul->transpose_a, matmul->transpose_b, matmul->accumulate,
                               static_cast<bool>(matmul->bias), static_cast<bool>(matmul->gelu_y),
                               static_cast<bool>(matmul->gelu_x), static_cast<std::int64_t>(matmul->operands)});
    if (known_.insert(std::move(form)).second) ops.push_back(op);
  }
  std::vector<tensor::Op> ops;

 private:
  std::set<std::vector<std::int64_t>> known_;
};

class Counter final : public tensor::OpObserver {
 public:
  explicit Counter(const std::optional<cost::Ceilings>& device) : device_(device) {}
  void ran(const tensor::Op& op, double) override {
    const tensor::OpCost op_cost = tensor::cost_of(op);
    Work& sum = work[static_cast<std::size_t>(op_cost.op_class)];
    ++sum.operations;
    sum.flops += op_cost.flops;
    sum.bytes += op_cost.bytes;
    if (!device_) return;
    sum.least_s += std::max(op_cost.flops / (op_cost.fp8 ? device_->fp8_flops : device_->bf16_flops),
                            (op_cost.bytes - op_cost.cast_bytes) / device_->bytes_per_s) +
                   op_cost.cast_bytes / device_->bytes_per_s;
  }
  StepWork work{};

 private:
  std::optional<cost::Ceilings> device_;
};

}  // namespace

std::vector<tensor::Op> operations_of_step(const Plan& plan, int ranks_on_node, int rank) {
  Collector collector;
  SimIssuer issuer(plan, ranks_on_node, rank);
  issuer.set_observer(&collector);
  issuer.step(0);
  return std::move(collector.ops);
}

StepWork work_of_step(const Plan& plan, int rank, const std::optional<cost::Ceilings>& device) {
  Counter counter(device);
  SimIssuer issuer(plan, 1, rank);
  issuer.set_observer(&counter);
  issuer.step(0);
  return counter.work;
}

}  // namespace ms::train
