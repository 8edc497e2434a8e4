// Attention over ranks of cp that pass keys around, solved in virtual time on all ranks at once. Tests that it finishes
// for every number of ranks although a send completes only when it is matched, that compute hides the transfers, and,
// by the race check, that events order all accesses to the same memory.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "comm/sim_solve.h"
#include "mesh/mesh.h"
#include "nn/context.h"

namespace ms::nn {
namespace {

// Sizes of a rank, and the time of a block's attention forward; backward it has 5 GEMMs in place of 2.
constexpr std::int64_t kPiece = 4, kContextHeads = 2, kHeadDim = 8, kCols = kContextHeads * kHeadDim;
constexpr double kBlock = 1, kBackwardBlock = 2.5, kLateBy = 7.5, kBlockPairs = 2 * kPiece * kPiece;
constexpr double kOwnBlock = 1 + 1.0 / (2 * kPiece);  // whose diagonals are whole
constexpr double kKeyBytes = 2 * kPiece * 2 * kCols * 4;

double context_seconds(const tensor::OpCost& op) {
  if (op.op_class == tensor::OpClass::attention)
    return kBlock * op.flops / (2 * 2 * kBlockPairs * kContextHeads * kHeadDim);
  return op.bytes == 4 ? kLateBy : 0;
}

// A rank of cp with the tensors of a layer's attention.
class ContextRank {
 public:
  ContextRank(int cp, int rank, DType dtype, std::int64_t window)
      : groups_({.dp = cp, .pp = 1, .tp = 1, .cp = cp}, 1, false), world_(rank, cp, cp) {
    device_.races().enable(true);
    compute_ = device_.make_stream("compute", tensor::StreamKind::compute);
    tp_ = open(groups_.along(mesh::Axis::tp, rank));
    next_ = open(groups_.ring(mesh::Axis::cp, rank)->out);
    previous_ = open(groups_.ring(mesh::Axis::cp, rank)->in);
    model_.hidden = kCols, model_.heads = kContextHeads;
    model_.seq = 2 * cp * kPiece, model_.window = window;
    shape_ = {.model = &model_, .batch = 1, .cp = cp, .cp_rank = rank, .cp_type = CpType::ring, .dtype = dtype};
    Arena arena = Arena::measuring();
    scratch_ = carve_scratch(arena, shape_, {});
    const auto take = [&](DType type, std::int64_t rows, std::int64_t cols) { return arena.take(type, rows, cols); };
    const std::int64_t tokens = shape_.tokens();
    op_.q = take(dtype, tokens, kCols), op_.k = take(dtype, tokens, kCols), op_.v = take(dtype, tokens, kCols);
    op_.o = take(dtype, tokens, kCols), op_.lse = take(DType::f32, kContextHeads, tokens);
    op_.dq = take(dtype, tokens, kCols), op_.dk = take(dtype, tokens, kCols), op_.dv = take(dtype, tokens, kCols);
    op_.dout = take(dtype, tokens, kCols), op_.delta = take(DType::f32, kContextHeads, tokens);
    op_.seq = model_.seq, op_.heads = op_.kv_heads = kContextHeads, op_.head_dim = kHeadDim, op_.window = window;
    flag_ = take(DType::f32, 1, 1);
  }
  ContextRank(const ContextRank&) = delete;
  ContextRank& operator=(const ContextRank&) = delete;

  void forward() {
    tensor::AttentionFwd op;
    op.o = op_.o, op.lse = op_.lse, op.q = op_.q, op.k = op_.k, op.v = op_.v;
    op.seq = op_.seq, op.heads = op.kv_heads = kContextHeads, op.head_dim = kHeadDim, op.window = op_.window;
    issue([&](const Layer& layer) { pass_keys_forward(layer, op); });
  }
  void backward() {
    issue([&](const Layer& layer) { pass_keys_backward(layer, op_); });
  }
  void be_late() { compute_->submit(tensor::Fill{flag_}); }
  comm::SimRecording record() { return {world_.rank(), device_.take_program(), world_.groups(), world_.comm_ops()}; }

 private:
  void issue(const std::function<void(const Layer&)>& attend) {
    const TensorParallel on{
        .compute = *compute_, .tp = *tp_, .shape = shape_, .cp_next = next_.get(), .cp_previous = previous_.get()};
    attend({on, weights_, acts_, {}, scratch_});
  }
  std::unique_ptr<comm::Communicator> open(const mesh::GroupSpec& group) {
    streams_.push_back(device_.make_stream(group.name, tensor::StreamKind::comm));
    return world_.open({group.name, group.id, group.ranks}, *streams_.back());
  }

  mesh::Groups groups_;
  tensor::SimDevice device_;
  comm::SimWorld world_;
  std::vector<std::unique_ptr<tensor::Stream>> streams_;
  std::unique_ptr<tensor::Stream> compute_;
  std::unique_ptr<comm::Communicator> tp_, next_, previous_;
  ModelConfig model_;
  Shape shape_;
  LayerWeights weights_;
  LayerActs acts_;
  LayerScratch scratch_;
  tensor::AttentionBwd op_;
  Tensor flag_;
};

struct RingSetting {
  int cp;
  double transfer_s;  // of a block's keys and values, or of their gradients
  DType dtype = DType::f32;
  std::int64_t window = 0;
};

// Issues on every rank and solves; returns when the last rank ends. Streams that never finish are an error.
double ring_time(const RingSetting& setting, const std::function<void(ContextRank&, int)>& issue) {
  std::vector<comm::SimRecording> recordings;
  for (int r = 0; r < setting.cp; ++r) {
    ContextRank rank(setting.cp, r, setting.dtype, setting.window);
    issue(rank, r);
    recordings.push_back(rank.record());
  }
  cost::Cluster cluster;
  cluster.node.ranks = setting.cp;
  cluster.node.gb_s = setting.transfer_s > 0 ? kKeyBytes / setting.transfer_s * 1e-9 : 1;
  comm::SimSetup setup;
  setup.cluster = &cluster;
  for (const comm::SimRecording& recording : recordings)
    setup.ranks.push_back({.rank = recording.rank, .recording = &recording});
  setup.stands_for = [](int rank) { return static_cast<std::size_t>(rank); };
  setup.seconds = context_seconds;
  if (setting.transfer_s == 0) setup.is_free = [](const comm::Group&) { return true; };
  return comm::solve(setup).seconds;
}

class ContextRing : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Cp, ContextRing, testing::Values(2, 3, 4, 8));

constexpr double kTimeRounding = 1e-9;

TEST_P(ContextRing, AttentionHidesTheTransfers) {
  const int cp = GetParam();
  const auto forward = [](ContextRank& rank, int) { rank.forward(); };
  EXPECT_NEAR(ring_time({cp, 0.9}, forward), kOwnBlock + (cp - 1) * kBlock, kTimeRounding);
  // If transfers take longer, attention is hidden behind them.
  EXPECT_NEAR(ring_time({cp, 3}, forward), (cp - 1) * 3 + kBlock, kTimeRounding);
}

// But for the last one, which brings the gradients of the own keys home.
TEST_P(ContextRing, GradientsTravelBehindTheirKeys) {
  const int cp = GetParam();
  const auto backward = [](ContextRank& rank, int) { rank.backward(); };
  EXPECT_NEAR(ring_time({cp, 1.2}, backward), kBackwardBlock * (kOwnBlock + cp - 1) + 1.2, kTimeRounding);
}

// Layer after layer in the same memory, ranks late by different times: all finish, nothing races.
TEST_P(ContextRing, LateRanksDoNotDeadlock) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t window : {0, 2}) {
      for (const double transfer_s : {0.0, 0.5, 3.0}) {
        ring_time({GetParam(), transfer_s, dtype, window}, [&](ContextRank& rank, int r) {
          for (int layer = 0; layer < 3; ++layer) {
            if (r == layer % GetParam()) rank.be_late();
            rank.forward();
            rank.forward();
            rank.backward();
            rank.backward();
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace ms::nn
