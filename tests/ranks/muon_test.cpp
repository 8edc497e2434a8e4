// Muon in every layout: each step's parameters have the bits that its ops make of whole matrices on one rank from the
// same gradients, and so they do not depend on how ranks share the matrices.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "optim/matrix_updates.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr int kSteps = 20;
constexpr double kLossTolerance = 1e-3;  // Newton-Schulz turns the last bits of a momentum into some of bf16

const std::vector<Layout> kLayouts = {
    {1, 1, 1, 1, true, 1}, {2, 1, 1, 1, true, 0}, {4, 1, 1, 1, true, 1}, {8, 1, 1, 1, true, 1},
    {8, 1, 1, 1, true, 2}, {2, 1, 1, 1, true, 2}, {1, 4, 1, 1, true, 1}, {1, 2, 1, 1, false, 1},
    {1, 1, 4, 2, true, 1}, {2, 2, 2, 1, true, 0}, {2, 2, 2, 2, true, 1}, {2, 2, 2, 1, false, 2},
};
const std::vector<Layout> kExpertLayouts = {
    {4, 1, 1, 1, true, 1, 2},          {4, 1, 1, 1, true, 0, 2},         {4, 2, 1, 1, true, 2, 4},
    {2, 2, 2, 1, true, 1, 2},          folded({2, 2, 1, 1, true, 1, 2}), folded({4, 2, 1, 1, true, 2, 4}),
    folded({2, 2, 1, 1, false, 0, 1}), folded({1, 2, 2, 1, true, 1, 2}), folded({1, 2, 1, 1, true, 0, 1}),
};

struct Family {
  std::string family, scale, dtype = "fp32";
  std::string name() const { return family + "_" + scale.substr(0, 5) + "_" + dtype; }
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name(); }

train::Settings settings_of(const Family& family, const Layout& layout) {
  train::Settings settings = with(tiny_settings(family.family), layout);
  settings.optim.name = "muon";
  settings.optim.muon_scale = family.scale;
  settings.optim.groups = {"layers.3.* lr=0.5"};
  settings.train.dtype = family.dtype;
  settings.overlap.dp_message = 1;  // spans of a layer
  return settings;
}

bool is_whole(const std::string& name, const Matrix& matrix) {
  return name.starts_with("layers.") && std::min(matrix.rows, matrix.cols) > 1;
}

// Parameters on one rank: each is updated as one piece.
class Reference {
 public:
  Reference(const optim::OptimConfig& config, const Matrices& initial)
      : config_(config), memory_(device_.allocate(1 << 26, "test")), arena_(*memory_) {
    stream_ = device_.make_stream("compute", tensor::StreamKind::compute);
    scratch_ = optim::carve_matrix_scratch(arena_, 1 << 14, 1 << 7);
    factor_ = arena_.take(tensor::DType::f32, 1, 1);
    *factor_.as<float>() = 1;
    for (const auto& [name, matrix] : initial) {
      Held& held = held_[name];
      const auto n = static_cast<std::int64_t>(matrix.values.size());
      for (tensor::Tensor* each : {&held.param, &held.grad, &held.m, &held.v})
        *each = arena_.take(tensor::DType::f32, 1, n);
      held.direction = arena_.take(tensor::DType::bf16, 1, n);
      std::ranges::copy(matrix.values, held.param.as<float>());
    }
  }

  Matrices step(const Matrices& gradients, std::int64_t step) {
    Matrices result = gradients;
    for (auto& [name, matrix] : result) {
      const Held& held = held_.at(name);
      std::ranges::copy(matrix.values, held.grad.as<float>());
      const bool whole = is_whole(name, matrix), decays = matrix.rows > 1 || name.ends_with("router.weight");
      const optim::Rates rates = rates_of(config_, optim::parse_groups(config_), name, decays);
      optim::Update update{.config = config_,
                           .step = step,
                           .lr = static_cast<float>(config_.lr * rates.lr),
                           .weight_decay = static_cast<float>(rates.weight_decay),
                           .param = held.param,
                           .master = {},
                           .grad = held.grad,
                           .factor = factor_,
                           .states = whole ? std::vector{held.m} : std::vector{held.m, held.v},
                           .sums = {}};
      if (whole) {
        optim::issue_momentum(*stream_, update, held.direction);
        optim::orthogonalize(*stream_, held.direction.reshape(matrix.rows, matrix.cols), scratch_);
        optim::issue_muon_step(*stream_, update, held.direction, matrix.rows, matrix.cols);
      } else {
        optim::optimizer_kind("adamw").issue_update(*stream_, update);
      }
      stream_->synchronize();
      std::copy_n(held.param.as<float>(), matrix.values.size(), matrix.values.begin());
    }
    return result;
  }

 private:
  struct Held {
    tensor::Tensor param, grad, m, v, direction;
  };
  optim::OptimConfig config_;
  tensor::MatmulCache matmuls_;
  tensor::CpuPool pool_{{.workers = 1, .threads_per_op = 1}};
  tensor::CpuDevice device_{pool_, matmuls_};
  std::unique_ptr<tensor::Memory> memory_;
  tensor::Arena arena_;
  std::unique_ptr<tensor::Stream> stream_;
  optim::MatrixScratch scratch_;
  tensor::Tensor factor_;
  std::map<std::string, Held> held_;
};

class Muon : public testing::TestWithParam<std::tuple<Family, Layout>> {};

TEST_P(Muon, HasTheBitsOfWholeMatrices) {
  const auto& [family, layout] = GetParam();
  train::Settings settings = settings_of(family, layout);
  settings.optim.clip = 0;
  std::vector<Matrices> parameters(4), gradients(3);
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    device.races().enable(true);
    train::Engine engine(plan, world, device);
    engine.initialize(7);
    std::vector<std::int32_t> tokens, targets;
    collect_parameters(engine, parameters[0]);
    for (std::size_t step = 0; step < gradients.size(); ++step) {
      tokens.clear();
      targets.clear();
      const auto number = static_cast<std::int64_t>(step);
      if (engine.needs_input()) fill_batch(plan, number, engine.at().dp, tokens, targets);
      engine.issue_step(number, settings.optim.lr, tokens, targets);
      engine.finish_step(number);
      collect_gradients(engine, gradients[step]);
      collect_parameters(engine, parameters[step + 1]);
    }
  });
  Reference reference(settings.optim, parameters.front());
  for (std::size_t step = 0; step < gradients.size(); ++step) {
    const Matrices want = reference.step(gradients[step], static_cast<std::int64_t>(step));
    for (const auto& [name, matrix] : want) {
      EXPECT_EQ(matrix.values, parameters[step + 1].at(name).values) << name << ", step " << step;
    }
  }
}

std::string case_name(const testing::TestParamInfo<Muon::ParamType>& info) {
  std::string name = std::get<0>(info.param).name() + "_" + std::get<1>(info.param).name();
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Dense, Muon,
                         testing::Combine(testing::Values(Family{"gpt", "original"},
                                                          Family{"llama", "match-rms-adamw"}),
                                          testing::ValuesIn(kLayouts)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Experts, Muon,
                         testing::Combine(testing::Values(Family{"moe", "match-rms-adamw"}),
                                          testing::ValuesIn(kExpertLayouts)),
                         case_name);

TEST(MuonLosses, AreThoseOfOneRank) {
  for (const Family& family : {Family{"gpt", "match-rms-adamw"}, Family{"llama", "original"}}) {
    const Outcome one = run_threads(settings_of(family, kLayouts.front()), kSteps);
    ASSERT_LT(one.losses.back(), one.losses.front() - 0.1) << "the reference does not learn";
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(family.name() + " " + layout.name());
      const Outcome outcome = run_threads(settings_of(family, layout), kSteps);
      ASSERT_EQ(outcome.losses.size(), one.losses.size());
      for (std::size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(outcome.losses[i], one.losses[i], kLossTolerance) << "step " << i;
    }
  }
}

Matrices train_equal_rows(const Family& family, const Layout& layout) {
  train::Settings settings = settings_of(family, layout);
  settings.train.global_batch = 4;
  train_matrices_only(settings);
  Matrices parameters;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(7);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      std::vector<std::int32_t> tokens, targets;
      if (engine.needs_input()) fill_batch(plan, step, 0, tokens, targets);
      equal_rows(plan, tokens, targets);
      engine.issue_step(step, settings.optim.lr, tokens, targets);
      engine.finish_step(step);
    }
    collect_parameters(engine, parameters);
  });
  return parameters;
}

TEST(MuonBits, DoNotDependOnDataParallelism) {
  for (const Family& family : {Family{"gpt", "match-rms-adamw"}, Family{"llama", "original", "bf16"}}) {
    const Matrices one = train_equal_rows(family, {1, 1, 1, 1, true, 1});
    for (const int dp : {1, 2, 4}) {
      for (const int zero : {0, 1, 2}) {
        const Layout layout{dp, 1, 1, 1, true, zero};
        EXPECT_TRUE(same_bits(one, train_equal_rows(family, layout))) << family.name() << " " << layout.name();
      }
    }
  }
}

TEST(MuonBits, DoNotDependOnThePipelineOrOnZeRO1) {
  const auto run = [](const Layout& layout) {
    train::Settings settings = settings_of({"llama", "match-rms-adamw"}, layout);
    settings.optim.clip = 0;
    return run_threads(settings, kSteps);
  };
  const Outcome one = run({2, 2, 1, 1, true, 0});
  for (const Layout& layout : {Layout{2, 2, 1, 1, true, 1}, Layout{2, 2, 2, 1, true, 1}, Layout{2, 2, 2, 2, true, 0},
                               Layout{2, 2, 2, 2, true, 1}}) {
    const Outcome other = run(layout);
    EXPECT_EQ(one.losses, other.losses) << layout.name();
    EXPECT_TRUE(same_bits(one.parameters, other.parameters)) << layout.name();
  }
}

}  // namespace
}  // namespace ms::testing_case
