#include "train/preparation.h"

#include <unistd.h>

#include <set>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "train/rank_tensors.h"
#include "train/sim_issuer.h"

namespace ms::train {
namespace {

constexpr std::string_view kKey = "matmul choices";

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
    if (const auto* product = std::get_if<tensor::Matmul>(&op))
      form.insert(form.end(), {product->transpose_a, product->transpose_b, product->accumulate});
    if (known_.insert(std::move(form)).second) ops.push_back(op);
  }
  std::vector<tensor::Op> ops;

 private:
  std::set<std::vector<std::int64_t>> known_;
};

tensor::MatmulChoices choices_in(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return {};
  return tensor::MatmulChoices::parse(read_file(path), path);
}

}  // namespace

std::vector<tensor::Op> operations_of_step(const Plan& plan, int ranks_on_node, int rank) {
  Collector collector;
  SimIssuer issuer(plan, ranks_on_node, rank);
  issuer.set_observer(&collector);
  issuer.step(0);
  return std::move(collector.ops);
}

Preparation::Preparation(const Plan& plan, comm::World& world, tensor::Device& device,
                         std::chrono::milliseconds deadline)
    : device_(device) {
  if (device.kind() != "cuda") return;
  ops_ = operations_of_step(plan, world.ranks_on_node(), world.rank());
  if (!plan.settings.run.matmul_choices.empty()) choose(plan, world, deadline);
  check_memory(plan, world, device_.prepare(ops_, choices_, false));
}

// Ranks of a pipeline stage compute the same forms. The first rank of each times what those of the stages before have
// not; all take what the last one knows.
void Preparation::choose(const Plan& plan, comm::World& world, std::chrono::milliseconds deadline) {
  const std::string& path = plan.settings.run.matmul_choices;
  const auto leader = [&](int stage) { return plan.mesh.rank({.dp = 0, .pp = stage, .tp = 0}); };
  const auto told_by = [&](int stage) {  // each stage has its time
    const std::string text = world.store().get(leader(stage), kKey, deadline * (stage + 1));
    return tensor::MatmulChoices::parse(text, "another rank's message");
  };
  const int stage = plan.mesh.coord(world.rank()).pp, last = plan.mesh.pp - 1;
  tensor::MatmulChoices known;
  if (world.rank() == leader(stage)) {
    choices_ = known = stage == 0 ? choices_in(path) : told_by(stage - 1);
    device_.prepare(ops_, choices_, true);
    if (choices_ != known) {
      log::info("train", "{} of products timed", plural(choices_.algorithms.size() - known.algorithms.size(), "form"));
    }
    world.store().put(kKey, choices_.to_text());
    world.store().commit();
  }
  choices_ = told_by(last);
  if (world.rank() == 0 && choices_ != known) write_file_atomic(path, choices_.to_text());
}

void Preparation::check_memory(const Plan& plan, comm::World& world, const tensor::Readiness& readiness) const {
  const std::int64_t tensors = rank_memory(plan, plan.mesh.coord(world.rank())).total_bytes;
  const auto size = [](std::int64_t bytes) { return format_size(static_cast<double>(bytes)); };
  if (world.rank() == 0) {
    log::info("train", "a rank takes {} of its GPU, and operations up to {} besides; {} are free", size(tensors),
              size(readiness.scratch_bytes), size(readiness.free_bytes));
  }
  if (readiness.free_bytes >= tensors + readiness.scratch_bytes) return;
  throw user_error(
      "tensor.memory",
      fmt::format("out of memory: the GPU has {} free, and this rank takes {} for its tensors and up to {} "
                  "for operations",
                  size(readiness.free_bytes), size(tensors), size(readiness.scratch_bytes)),
      "'ms-train plan' says what takes it; more ranks, a smaller train.microbatch or train.recompute take "
      "less");
}

void Preparation::take(const std::string& choices) {
  if (ops_.empty() || choices.empty()) return;
  tensor::MatmulChoices saved = tensor::MatmulChoices::parse(choices, "the checkpoint");
  if (saved.library == choices_.library)
    saved.algorithms.insert(choices_.algorithms.begin(), choices_.algorithms.end());
  const tensor::MatmulChoices own = choices_;
  choices_ = saved;
  device_.prepare(ops_, choices_, false);
  if (!choices_.algorithms.empty() || own.algorithms.empty()) return;
  choices_ = own;  // those of the checkpoint were of another GPU
  device_.prepare(ops_, choices_, false);
}

}  // namespace ms::train
