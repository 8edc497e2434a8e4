// Tensor parallelism with communication overlapping GEMMs: the same bits as without overlap if no sum over tp is split,
// and sums in ring order otherwise. First the GEMMs alone, on odd sizes, then whole training runs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "comm/thread_world.h"
#include "mesh/mesh.h"
#include "nn/tensor_parallel.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

using tensor::Add;
using tensor::Arena;
using tensor::Copy;
using tensor::DType;
using tensor::InitNormal;
using tensor::Matmul;
using tensor::StreamKind;
using tensor::Tensor;

struct Case {
  int tp;
  DType dtype;
  std::int64_t rows, k, n;  // of a block; columns of an input and of an output
};
constexpr std::array kCases = {
    Case{2, DType::f32, 7, 33, 17},   Case{2, DType::bf16, 64, 96, 130}, Case{3, DType::f32, 5, 20, 31},
    Case{3, DType::bf16, 21, 40, 24}, Case{4, DType::f32, 1, 64, 5},     Case{4, DType::bf16, 13, 129, 66},
    Case{8, DType::f32, 3, 48, 40},   Case{8, DType::bf16, 1, 16, 16},
};

bool same(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.data, b.data, static_cast<std::size_t>(a.size_bytes())) == 0;
}

// |a - b| <= tolerance * the root mean square of a.
bool near(const Tensor& a, const Tensor& b, double tolerance) {
  const auto at = [](const Tensor& x, std::int64_t i) {
    if (x.dtype == DType::f32) return double{x.as<float>()[i]};
    const std::uint32_t bits = std::uint32_t{x.as<tensor::bfloat16>()[i].bits} << 16U;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return double{value};
  };
  double squares = 0, worst = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    squares += at(a, i) * at(a, i);
    worst = std::max(worst, std::abs(at(a, i) - at(b, i)));
  }
  return squares > 0 && worst <= tolerance * std::sqrt(squares / static_cast<double>(a.numel()));
}

// One tp rank: its streams, communicators and tensors.
class Rank {
 public:
  Rank(const Case& c, bool sequence_parallel, comm::World& world, tensor::Device& device)
      : c_(c), rank_(world.rank()), world_(world), device_(device), groups_({.dp = 1, .pp = 1, .tp = c.tp}, 1, false) {
    compute_ = device.make_stream("compute", StreamKind::compute);
    tp_ = open(groups_.along(mesh::Axis::tp, rank_));
    out_ = open(groups_.ring(mesh::Axis::tp, rank_)->out);
    in_ = open(groups_.ring(mesh::Axis::tp, rank_)->in);
    model_.hidden = c.n;
    model_.seq = c.rows * c.tp;
    shape_ = {.model = &model_,
              .batch = 1,
              .tp = c.tp,
              .tp_rank = rank_,
              .sequence_parallel = sequence_parallel,
              .dtype = c.dtype};
    memory_ = device.allocate(std::size_t{1} << 22, "a test");
    arena_.emplace(*memory_);
    ring_.emplace(nn::Ring{*out_, *in_, take(shape_.shard_tokens(), c.n), rank_, c.tp});
  }

  Tensor take(std::int64_t rows, std::int64_t cols) { return arena_->take(c_.dtype, rows, cols); }
  // Returns N(0,1) numbers, different on every rank.
  Tensor random(std::int64_t rows, std::int64_t cols) {
    const Tensor x = take(rows, cols);
    const auto key = static_cast<std::uint64_t>(100 * ++randoms_ + rank_);
    compute_->submit(InitNormal{x, 7, key, 0, 0, cols, rows, 1.0F});
    return x;
  }
  nn::TensorParallel on(bool overlap) { return {*compute_, *tp_, shape_, overlap, &*ring_}; }
  std::int64_t all() const { return shape_.tokens(); }
  std::int64_t own() const { return shape_.shard_tokens(); }
  int rank() const { return rank_; }
  tensor::Stream& compute() { return *compute_; }
  comm::Communicator& tp() { return *tp_; }

 private:
  std::unique_ptr<comm::Communicator> open(const mesh::GroupSpec& group) {
    streams_.push_back(device_.make_stream(group.name, StreamKind::comm));
    return world_.open({group.name, group.id, group.ranks}, *streams_.back());
  }

  Case c_;
  int rank_;
  comm::World& world_;
  tensor::Device& device_;
  mesh::Groups groups_;
  std::unique_ptr<tensor::Memory> memory_;
  std::optional<Arena> arena_;
  std::vector<std::unique_ptr<tensor::Stream>> streams_;
  std::unique_ptr<tensor::Stream> compute_;
  std::unique_ptr<comm::Communicator> tp_, out_, in_;
  nn::ModelConfig model_;
  nn::Shape shape_;
  std::optional<nn::Ring> ring_;
  int randoms_ = 0;
};

void on_ranks(const Case& c, bool sequence_parallel, const std::function<void(Rank&)>& body) {
  SCOPED_TRACE(fmt::format("tp {} {} blocks of {} x {} x {}", c.tp, to_string(c.dtype), c.rows, c.k, c.n));
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool(tensor::CpuPool::size_for(2, c.tp, c.tp));
  // Transfers take a moment, so that streams drift apart.
  comm::ThreadHub hub(c.tp, std::chrono::seconds(60), {.latency_s = 1e-4, .bytes_per_s = 0});
  std::vector<std::jthread> threads;
  for (int r = 0; r < c.tp; ++r) {
    threads.emplace_back([&, r] {
      const std::unique_ptr<comm::World> world = hub.world(r);
      tensor::CpuDevice device(pool, matmuls);
      try {
        Rank rank(c, sequence_parallel, *world, device);
        body(rank);
        world->close();
      } catch (const Error& error) {
        world->abort(error);
        ADD_FAILURE() << "rank " << r << ": " << error.what();
      }
    });
  }
}

double rounding_of(DType dtype) { return dtype == DType::f32 ? 0x1p-23 : 0x1p-8; }

// Three consecutive rounds in the same memory: a round must not disturb the next.
TEST(TpOverlap, AllGatherOverlapChangesNoBit) {
  for (const Case& c : kCases) {
    for (const bool sequence_parallel : {true, false}) {
      on_ranks(c, sequence_parallel, [&](Rank& rank) {
        const Tensor into = rank.take(rank.all(), c.k), product = rank.take(rank.all(), c.n);
        std::vector<std::pair<Tensor, Tensor>> gathered, products;
        const auto kept = [&rank](const Tensor& x) {
          const Tensor copy = rank.take(x.rows, x.cols);
          rank.compute().submit(Copy{copy, x});
          return copy;
        };
        for (const bool transposed : {true, false, true}) {
          const Tensor x = rank.random(rank.own(), c.k), bias = rank.random(1, c.n);
          const Tensor b = transposed ? rank.random(c.n, c.k) : rank.random(c.k, c.n);
          const auto once = [&](bool overlap) {
            const Tensor all = rank.on(overlap).gather_matmul(
                {.c = product, .b = b, .bias = bias, .transpose_b = transposed}, x, into);
            return std::pair{kept(all), kept(product)};
          };
          const auto plain = once(false), ring = once(true);
          rank.compute().submit(tensor::Fill{x});  // the caller may overwrite it
          gathered.emplace_back(plain.first, ring.first);
          products.emplace_back(plain.second, ring.second);
        }
        rank.compute().synchronize();
        for (std::size_t i = 0; i < gathered.size(); ++i) {
          EXPECT_TRUE(same(gathered[i].first, gathered[i].second)) << "rank " << rank.rank() << ", round " << i;
          EXPECT_TRUE(same(products[i].first, products[i].second)) << "rank " << rank.rank() << ", round " << i;
        }
      });
    }
  }
}

// Returns the sum of this rank's block over all ranks' GEMM outputs, in ring order.
Tensor in_ring_order(Rank& rank, const Case& c, const Tensor& partial) {
  const Tensor everybody = rank.take(c.tp * rank.all(), c.n), sum = rank.take(rank.own(), c.n);
  rank.tp().stream().wait(rank.compute().record());
  rank.tp().all_gather(everybody, partial);
  rank.compute().wait(rank.tp().stream().record());
  for (int i = 1; i <= c.tp; ++i) {
    const int from = (rank.rank() + i) % c.tp;
    const Tensor part = everybody.slice_rows(from * rank.all() + rank.rank() * rank.own(), rank.own());
    if (i == 1) {
      rank.compute().submit(Copy{sum, part});
    } else {
      rank.compute().submit(Add{sum, sum, part, {}});
    }
  }
  return sum;
}

TEST(TpOverlap, ReduceScatterOverlapSumsInRingOrder) {
  for (const Case& c : kCases) {
    on_ranks(c, true, [&](Rank& rank) {
      const Tensor partial = rank.take(rank.all(), c.n), reduced = rank.take(rank.own(), c.n);
      struct Sums {
        Tensor plain, ring, want;
      };
      std::vector<Sums> sums;
      for (const bool accumulate : {false, true, false}) {
        const Tensor a = rank.random(rank.all(), c.k), b = rank.random(c.k, c.n), first = rank.random(rank.all(), c.n);
        const auto once = [&](bool overlap) {
          rank.compute().submit(Copy{partial, first});
          const nn::TensorParallel on = rank.on(overlap);
          const Tensor copy = rank.take(rank.own(), c.n);
          rank.compute().submit(Copy{
              copy, on.arrived(on.matmul_reduce({.c = partial, .a = a, .b = b, .accumulate = accumulate}, reduced))});
          return copy;
        };
        const Tensor plain = once(false), ring = once(true), whole = rank.take(rank.all(), c.n);
        rank.compute().submit(Copy{whole, first});
        rank.compute().submit(Matmul{.c = whole, .a = a, .b = b, .bias = {}, .accumulate = accumulate});
        sums.push_back({plain, ring, in_ring_order(rank, c, whole)});
      }
      rank.compute().synchronize();
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const auto& [plain, ring, want] = sums[i];
        EXPECT_TRUE(near(plain, ring, 8 * c.tp * rounding_of(c.dtype))) << "rank " << rank.rank() << ", round " << i;
        EXPECT_TRUE(same(ring, want)) << "rank " << rank.rank() << ", round " << i;
      }
    });
  }
}

TEST(TpOverlap, AllReduceOverlapChangesNoBit) {
  for (const Case& c : kCases) {
    on_ranks(c, false, [&](Rank& rank) {
      const Tensor plain = rank.take(rank.all(), c.n), pieces = rank.take(rank.all(), c.n);
      const Tensor a = rank.random(rank.all(), c.k), b = rank.random(c.n, c.k);
      rank.on(false).matmul_reduce({.c = plain, .a = a, .b = b, .transpose_b = true}, {});
      const nn::TensorParallel on = rank.on(true);
      EXPECT_EQ(on.arrived(on.matmul_reduce({.c = pieces, .a = a, .b = b, .transpose_b = true}, {})).data, pieces.data);
      rank.compute().synchronize();
      EXPECT_TRUE(same(plain, pieces)) << "rank " << rank.rank();
    });
  }
}

// Whole training runs.

struct Run {
  Layout layout;
  const char *recompute, *dtype;
  std::string name() const { return fmt::format("{}_{}_{}", layout.name(), recompute, dtype); }
};
void PrintTo(const Run& run, std::ostream* out) { *out << run.name(); }

train::Settings settings_of(const std::string& family, const Run& run, bool overlap) {
  train::Settings settings = with(tiny_settings(family), run.layout);
  if (run.layout.tp == 3) {  // sizes divisible by three
    settings.model.hidden = 48;
    settings.model.heads = 12;
    settings.model.kv_heads = family == "gpt" ? 0 : 6;
    settings.model.seq = 18;
  }
  settings.train.recompute = run.recompute;
  settings.train.dtype = run.dtype;
  settings.overlap.tp = overlap;
  return settings;
}

class TpOverlapRun : public testing::TestWithParam<std::tuple<std::string, Run>> {};

std::string run_name(const testing::TestParamInfo<TpOverlapRun::ParamType>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param).name();
}

constexpr std::array kRuns = {
    Run{{1, 2, 1, 1, true}, "none", "fp32"},      Run{{1, 3, 1, 1, true}, "full", "fp32"},
    Run{{1, 4, 2, 1, true}, "selective", "fp32"}, Run{{1, 8, 1, 1, true}, "none", "fp32"},
    Run{{2, 2, 2, 2, true}, "full", "fp32"},      Run{{1, 3, 1, 1, false}, "none", "fp32"},
    Run{{2, 2, 2, 1, false}, "full", "fp32"},     Run{{2, 4, 1, 1, true}, "none", "bf16"},
    Run{{1, 4, 2, 1, false}, "none", "bf16"},
};
INSTANTIATE_TEST_SUITE_P(All, TpOverlapRun,
                         testing::Combine(testing::Values("gpt", "llama", "moe"), testing::ValuesIn(kRuns)), run_name);

TEST_P(TpOverlapRun, ComputesWhatOneRankComputes) {
  const auto& [family, run] = GetParam();
  constexpr int kSteps = 4;
  const Outcome outcome = run_threads(settings_of(family, run, true), kSteps);
  // Without a split sum over tp, overlap changes no bit; with one, the bits are the same every time.
  const bool same_sums = !run.layout.sequence_parallel;
  const Outcome other = run_threads(settings_of(family, run, !same_sums), kSteps);
  EXPECT_EQ(outcome.losses, other.losses);
  EXPECT_EQ(outcome.norms, other.norms);
  EXPECT_EQ(outcome.valid_loss, other.valid_loss);
  EXPECT_TRUE(same_bits(outcome.gradients, other.gradients));
  EXPECT_TRUE(same_bits(outcome.parameters, other.parameters));

  train::Settings settings = settings_of(family, run, false);
  settings.mesh = {};
  settings.train.recompute = "none";
  static std::map<std::string, Outcome> references;
  Outcome& one = references[fmt::format("{} {} {}", family, run.layout.tp == 3, run.dtype)];
  if (one.losses.empty()) one = run_threads(settings, kSteps);
  // f32: sums of the same numbers in another order, as between any two layouts. bf16: relative 2^-8 per rounded value,
  // averaged over many.
  const bool exact = settings.train.dtype == std::string("fp32");
  const Distance gradients = distance(one.gradients, outcome.gradients);
  // In bf16 a token with two scores that are nearly equal may go to another expert: of some tokens one is a lot.
  if (exact || family != "moe") { EXPECT_LE(gradients.value, exact ? 1e-5 : 0.1) << gradients.name; }
  ASSERT_EQ(one.losses.size(), outcome.losses.size());
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(one.losses[i], outcome.losses[i], exact ? 1e-4 : 0.03) << "step " << i;
  }
  EXPECT_NEAR(one.valid_loss, outcome.valid_loss, exact ? 1e-4 : 0.03);
}

}  // namespace
}  // namespace ms::testing_case
