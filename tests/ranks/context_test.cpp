// Context parallelism: ranks that share sequences compute what one rank computes, in every way to see the others'
// tokens, under every mask, beside every other axis; and a run may resume with another number of them.
#include <gtest/gtest.h>

#include <functional>
#include <mutex>

#include "tensor/op_cost.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr int kSteps = 4;
// Sums of the same f32 numbers in another order, relative to the norm of a parameter's gradient, and of a loss of 4;
// gradients differ by 1e-6, except for gains of norms of keys, whose terms cancel. A sum over tp is that of matmuls'
// parts: tp alone differs as much. A ring sums attention itself in another order, and gradients of queries, whose terms
// cancel, differ by 2e-6, and gains by 2.5e-6. Muon rounds to bf16 what differs in the last bits; how much that is,
// depends on the processor.
constexpr double kGradientTolerance = 2e-6, kOfOtherSums = 5e-6, kLossTolerance = 1e-6, kOfMuon = 1e-4;

const std::vector<std::string> kTypes = {"all-gather", "all-to-all", "ring"};

Layout shared(int cp, const std::string& type, Layout layout = {}) {
  layout.cp = cp, layout.cp_type = type;
  return layout;
}

struct Mask {
  std::string name;
  std::int64_t window = 0;
  bool documents = false;
};
const std::vector<Mask> kMasks = {{"causal"}, {"window", 5}, {"documents", 0, true}, {"both", 3, true}};

train::Settings settings_of(const std::string& family, const Mask& mask) {
  train::Settings settings = tiny_settings(family);
  settings.model.layers = 4;
  settings.model.window = mask.window;
  settings.data.reset_attention = mask.documents;
  settings.train.microbatch = 2;  // whose rows are those of both sequences' first pieces, then those of the second ones
  settings.optim.lr = 1e-3;
  if (family == "llama") {
    settings.model.qk_norm = true;
    settings.model.rotary_scaling = "llama3", settings.model.rotary_original_seq = 8;
  }
  if (family == "moe") settings.train.moe_aux_loss = 0;
  return settings;
}

void expect_same(const Outcome& reference, const train::Settings& settings) {
  const Outcome outcome = run_threads(settings, static_cast<int>(reference.losses.size()));
  ASSERT_EQ(outcome.losses.size(), reference.losses.size());
  const Distance gradients = distance(reference.gradients, outcome.gradients);
  const bool sums_otherwise = settings.mesh.tp > 1 || settings.mesh.cp_type == "ring";
  EXPECT_LE(gradients.value, sums_otherwise ? kOfOtherSums : kGradientTolerance) << gradients.name;
  const double tolerance = settings.optim.name == "muon" ? kOfMuon : kLossTolerance;
  for (std::size_t i = 0; i < outcome.losses.size(); ++i)
    EXPECT_NEAR(outcome.losses[i], reference.losses[i], tolerance) << "step " << i;
  EXPECT_NEAR(outcome.norms[0], reference.norms[0], kGradientTolerance * reference.norms[0]);
  EXPECT_NEAR(outcome.valid_loss, reference.valid_loss, tolerance);
}

class Context : public testing::TestWithParam<std::tuple<std::string, Mask>> {};

TEST_P(Context, ComputesWhatOneRankComputes) {
  const auto& [family, mask] = GetParam();
  const train::Settings settings = settings_of(family, mask);
  const Outcome reference = run_threads(settings, kSteps);
  ASSERT_LT(reference.losses.back(), reference.losses.front()) << "the reference does not learn";
  for (const std::string& type : kTypes) {
    for (const Layout& layout :
         {shared(2, type), shared(4, type), shared(8, type), shared(2, type, {2, 1, 1, 1, true, 0}),
          shared(2, type, {2, 1, 1, 1, true, 2}), shared(2, type, {1, 2, 1, 1, true, 1}),
          shared(2, type, {1, 2, 1, 1, false, 1}), shared(4, type, {1, 2, 1, 1, true, 2}),
          shared(2, type, {1, 1, 2, 2, true, 1}), shared(2, type, {2, 1, 2, 1, true, 1})}) {
      SCOPED_TRACE(layout.name());
      expect_same(reference, with(settings, layout));
    }
    if (settings.model.experts > 0)
      expect_same(reference, with(settings, folded(shared(2, type, {1, 2, 1, 1, true, 1}))));
  }
}

std::string context_name(const testing::TestParamInfo<Context::ParamType>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param).name;
}
INSTANTIATE_TEST_SUITE_P(Llama, Context, testing::Combine(testing::Values("llama"), testing::ValuesIn(kMasks)),
                         context_name);
INSTANTIATE_TEST_SUITE_P(Others, Context,
                         testing::Combine(testing::Values("gpt", "neox", "moe"), testing::Values(kMasks[3])),
                         context_name);

// Sequences of several tiles of the attention's, whose pieces begin within a tile.
TEST(ContextTiles, ComputeWhatOneRankComputes) {
  for (const Mask& mask : {kMasks[0], Mask{"window", 70}, kMasks[2]}) {
    train::Settings settings = settings_of("llama", mask);
    settings.model.seq = 240;
    settings.model.layers = 2;
    settings.train.global_batch = 2;
    const Outcome reference = run_threads(settings, 1);
    for (const std::string& type : kTypes) {
      for (const int cp : {2, 4}) {
        SCOPED_TRACE(mask.name + " " + shared(cp, type).name());
        expect_same(reference, with(settings, shared(cp, type)));
      }
    }
  }
}

// What is recomputed, halves of a backward and the optimizer change nothing.
TEST(ContextModes, ComputeWhatOneRankComputes) {
  const std::vector<std::pair<std::string, std::function<void(train::Settings&)>>> modes = {
      {"selective", [](train::Settings& s) { s.train.recompute = "selective"; }},
      {"full", [](train::Settings& s) { s.train.recompute = "full"; }},
      {"zb-h1", [](train::Settings& s) { s.mesh.schedule = "zb-h1", s.mesh.pp = 2; }},
      {"muon", [](train::Settings& s) { s.optim.name = "muon"; }},
      {"lamb", [](train::Settings& s) { s.optim.name = "lamb"; }},
      {"overlap", [](train::Settings& s) { s.overlap.tp = true, s.mesh.tp = 2; }}};
  for (const auto& [name, set] : modes) {
    train::Settings settings = settings_of("llama", kMasks[3]);
    set(settings);
    const Outcome reference = run_threads(settings, 2);
    for (const std::string& type : kTypes) {
      SCOPED_TRACE(name + " " + type);
      train::Settings cut = settings;
      cut.mesh.cp = 2, cut.mesh.cp_type = type;
      expect_same(reference, cut);
    }
  }
}

TEST(ContextBits, AreThoseOfTheConfiguration) {
  for (const std::string& type : kTypes) {
    train::Settings settings = with(settings_of("llama", kMasks[3]), shared(4, type));
    settings.train.dtype = "bf16";
    const Outcome first = run_threads(settings, 2), second = run_threads(settings, 2);
    EXPECT_EQ(first.losses, second.losses) << type;
    EXPECT_TRUE(same_bits(first.parameters, second.parameters)) << type;
  }
}

// Those that gather or exchange attend alike, forward: token by token the losses are those of one rank, and only their
// sum has an order.
TEST(ContextBits, OfTheForwardDoNotDependOnTheRanks) {
  const train::Settings settings = settings_of("llama", kMasks[3]);
  const Outcome one = run_threads(settings, 1), gathered = run_threads(with(settings, shared(4, "all-gather")), 1),
                exchanged = run_threads(with(settings, shared(4, "all-to-all")), 1);
  EXPECT_EQ(gathered.losses, exchanged.losses);
  constexpr double kOfTheSum = 1e-14;
  EXPECT_NEAR(one.losses[0], gathered.losses[0], kOfTheSum * one.losses[0]);
}

TEST(ContextBf16, Learns) {
  train::Settings settings = settings_of("llama", kMasks[0]);
  settings.train.dtype = "bf16";
  settings.optim.lr = 3e-3;
  constexpr double kRounding = 0.03;  // the tolerance of other axes (ranks_parity)
  const Outcome one = run_threads(settings, 10);
  for (const std::string& type : kTypes) {
    const Outcome shared_by_two = run_threads(with(settings, shared(2, type)), 10);
    for (std::size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(one.losses[i], shared_by_two.losses[i], kRounding) << type << " " << i;
  }
}

// The work of attention, in pairs of queries and keys, is the same for each rank.
TEST(ContextWork, IsEven) {
  for (const std::string& type : kTypes) {
    std::mutex mutex;  // ranks are threads
    std::vector<double> flops;
    on_threads(with(settings_of("llama", kMasks[0]), shared(4, type)),
               [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
                 class Counter final : public tensor::OpObserver {
                  public:
                   void ran(const tensor::Op& op, double) override {
                     if (op_class(op) == tensor::OpClass::attention) flops += tensor::cost_of(op).flops;
                   }
                   double flops = 0;
                 } counter;
                 observe_step(plan, world, device, counter);
                 const std::lock_guard lock(mutex);
                 flops.push_back(counter.flops);
               });
    ASSERT_EQ(flops.size(), 4U);
    EXPECT_GT(flops[0], 0);
    for (const double of_rank : flops) EXPECT_EQ(of_rank, flops[0]) << type;
  }
}

}  // namespace
}  // namespace ms::testing_case
