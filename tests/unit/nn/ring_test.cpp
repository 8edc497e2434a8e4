// Tensor parallelism, solved in virtual time on all ranks at once. Tests that the rings finish for every number of
// ranks although a send completes only when it is matched, that communication overlaps matmuls, and, by the race check,
// that events order all accesses to the same memory.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>

#include "comm/sim_solve.h"
#include "mesh/mesh.h"
#include "nn/tensor_parallel.h"

namespace ms::nn {
namespace {

using tensor::StreamKind;

// The time of a matmul of one row block, of adding and of copying it, and the delay of a late rank.
constexpr double kMatmul = 1, kAdd = 0.125, kCopy = 0.125, kLate = 7.5;
constexpr std::int64_t kRows = 4, kColumns = 8;  // of a block
constexpr double kBlockBytes = kRows * kColumns * 4;

double seconds_of(const tensor::OpCost& op) {
  if (op.op_class == tensor::OpClass::matmul) return kMatmul * op.flops / (2 * kRows * kColumns * kColumns);
  return op.bytes == 3 * kBlockBytes ? kAdd : op.bytes == 2 * kBlockBytes ? kCopy : kLate;
}

struct Setting {
  int tp;
  bool sequence_parallel, overlap;
  double block_s;
};

// A tp rank with the tensors of a layer's matmuls.
class Rank {
 public:
  Rank(const Setting& setting, int rank)
      : setting_(setting),
        groups_({.dp = 1, .pp = 1, .tp = setting.tp}, 1, false),
        world_(rank, setting.tp, setting.tp) {
    device_.races().enable(true);
    compute_ = device_.make_stream("compute", StreamKind::compute);
    tp_ = open(groups_.along(mesh::Axis::tp, rank));
    out_ = open(groups_.ring(mesh::Axis::tp, rank)->out);
    in_ = open(groups_.ring(mesh::Axis::tp, rank)->in);
    model_.hidden = kColumns;
    model_.seq = kRows * setting.tp;
    shape_.model = &model_;
    shape_.batch = 1;
    shape_.tp = setting.tp;
    shape_.tp_rank = rank;
    shape_.sequence_parallel = setting.sequence_parallel;
    Arena arena = Arena::measuring();
    const auto take = [&](std::int64_t rows) { return arena.take(DType::f32, rows, kColumns); };
    const std::int64_t all = shape_.tokens(), own = shape_.shard_tokens();
    x = take(own), into = take(all), again = take(all), c = take(all), partial = take(all), reduced = take(own);
    weight = take(kColumns), gradient = take(kColumns), received_ = take(own);
    ring_.emplace(Ring{*out_, *in_, received_, rank, setting.tp});
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  TensorParallel on() { return {*compute_, *tp_, shape_, setting_.overlap, &*ring_}; }
  comm::SimRecording record() { return {world_.rank(), device_.take_program(), world_.groups(), world_.comm_ops()}; }

  Tensor x, into, again, c, partial, reduced, weight, gradient;

 private:
  std::unique_ptr<comm::Communicator> open(const mesh::GroupSpec& group) {
    streams_.push_back(device_.make_stream(group.name, StreamKind::comm));
    return world_.open({group.name, group.id, group.ranks}, *streams_.back());
  }

  Setting setting_;
  mesh::Groups groups_;
  tensor::SimDevice device_;
  comm::SimWorld world_;
  std::vector<std::unique_ptr<tensor::Stream>> streams_;
  std::unique_ptr<tensor::Stream> compute_;
  std::unique_ptr<comm::Communicator> tp_, out_, in_;
  ModelConfig model_;
  Shape shape_;
  Tensor received_;
  std::optional<Ring> ring_;
};

// Issues on every rank and solves; returns when the last rank ends. Streams that never finish are an error.
double time_of(const Setting& setting, const std::function<void(Rank&, int)>& issue) {
  std::vector<comm::SimRecording> recordings;
  for (int r = 0; r < setting.tp; ++r) {
    Rank rank(setting, r);
    issue(rank, r);
    recordings.push_back(rank.record());
  }
  cost::Cluster cluster;
  cluster.node.ranks = setting.tp;
  cluster.node.gb_s = setting.block_s > 0 ? kBlockBytes / setting.block_s * 1e-9 : 1;
  comm::SimSetup setup;
  setup.cluster = &cluster;
  for (const comm::SimRecording& recording : recordings)
    setup.ranks.push_back({.rank = recording.rank, .recording = &recording});
  setup.stands_for = [](int rank) { return static_cast<std::size_t>(rank); };
  setup.seconds = seconds_of;
  if (setting.block_s == 0) setup.is_free = [](const comm::Group&) { return true; };
  return comm::solve(setup).seconds;
}

void gather(Rank& rank, int) {
  rank.on().gather_matmul({.c = rank.c, .b = rank.weight, .transpose_b = true}, rank.x, rank.into);
}
void reduce(Rank& rank, int) {
  const TensorParallel on = rank.on();
  on.arrived(on.matmul_reduce({.c = rank.partial, .a = rank.c, .b = rank.weight, .transpose_b = true}, rank.reduced));
}

constexpr double kRounding = 1e-9;

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Tp, Ranks, testing::Values(2, 3, 4, 8));

TEST_P(Ranks, GatherOverlapsTheMatmul) {
  const int tp = GetParam();
  EXPECT_NEAR(time_of({tp, true, false, 0.5}, gather), (tp - 1) * 0.5 + tp * kMatmul, kRounding);
  EXPECT_NEAR(time_of({tp, true, true, 0.5}, gather), tp * kMatmul, kRounding);
  // If transfers take longer, the matmuls are hidden behind them.
  EXPECT_NEAR(time_of({tp, true, true, 3}, gather), (tp - 1) * 3 + kMatmul, kRounding);
}

TEST_P(Ranks, ReductionOverlapsTheMatmul) {
  const int tp = GetParam();
  EXPECT_NEAR(time_of({tp, true, false, 0.5}, reduce), tp * kMatmul + (tp - 1) * 0.5, kRounding);
  EXPECT_NEAR(time_of({tp, true, true, 0.5}, reduce), tp * kMatmul + kAdd, kRounding);
  EXPECT_NEAR(time_of({tp, true, true, 3}, reduce), kMatmul + (tp - 1) * (3 + kAdd), kRounding);
  // Without sequence parallelism a quarter of the all-reduce is exposed.
  const double all_reduce = 2 * (tp - 1) * 0.25;
  EXPECT_NEAR(time_of({tp, false, false, 0.25}, reduce), tp * kMatmul + all_reduce, kRounding);
  EXPECT_NEAR(time_of({tp, false, true, 0.25}, reduce), tp * kMatmul + all_reduce / 4, kRounding);
}

// A layer's backward: the input is gathered again during the matmul, and its result is reduced during the matmul of the
// weight's gradient.
void backward(Rank& rank, int) {
  const TensorParallel on = rank.on();
  on.gather_matmul({.c = rank.c, .b = rank.weight}, rank.x, rank.into);
  const Arriving again = on.gather(rank.x, rank.again);
  const Arriving dx = on.matmul_reduce({.c = rank.partial, .a = rank.c, .b = rank.weight}, rank.reduced);
  const auto weight_gradient = [&](const Tensor& input) {
    on.compute.submit(
        tensor::Matmul{.c = rank.gradient, .a = rank.c, .b = input, .transpose_a = true, .accumulate = true});
  };
  weight_gradient(rank.into);
  weight_gradient(on.arrived(again));
  const Tensor sum = on.arrived(dx);
  on.compute.submit(tensor::Add{rank.x, rank.x, sum, {}});
}

TEST_P(Ranks, BackwardExposesNoCommunication) {
  const int tp = GetParam();
  const double compute = 2 * tp * kMatmul + 2 * tp * kMatmul + kAdd;
  EXPECT_NEAR(time_of({tp, true, true, 0.5}, backward), compute, kRounding);
  EXPECT_NEAR(time_of({tp, true, false, 0.5}, backward), compute + 3 * (tp - 1) * 0.5, kRounding);
}

// Layer after layer in the same memory, ranks late by different times, every combination: all finish, nothing races.
TEST_P(Ranks, LateRanksDoNotDeadlock) {
  for (const bool sequence_parallel : {true, false}) {
    for (const bool overlap : {true, false}) {
      for (const double block_s : {0.0, 0.5, 3.0}) {
        for (int late = 0; late < GetParam(); ++late) {
          time_of({GetParam(), sequence_parallel, overlap, block_s}, [&](Rank& rank, int r) {
            for (int layer = 0; layer < 3; ++layer) {
              if (r == (late + layer) % GetParam()) rank.on().compute.submit(tensor::Fill{rank.x});
              gather(rank, r);
              reduce(rank, r);
              reduce(rank, r);
              backward(rank, r);
            }
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace ms::nn
