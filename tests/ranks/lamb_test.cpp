// LAMB in every layout: the update of each logical parameter equals the formula in f64 on the whole parameter, the
// losses equal those of one rank, and each element counts once in the norms.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <numeric>
#include <ostream>

#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr int kSteps = 20;
constexpr double kLossTolerance = 1e-4;  // of the parity tests

const std::vector<Layout> kLayouts = {
    {1, 1, 1, 1, true, 1},  {2, 1, 1, 1, true, 0}, {4, 1, 1, 1, true, 1}, {2, 1, 1, 1, true, 2}, {1, 4, 1, 1, true, 1},
    {1, 2, 1, 1, false, 1}, {1, 1, 4, 2, true, 1}, {2, 2, 2, 1, true, 0}, {2, 2, 2, 2, true, 1}, {2, 2, 2, 1, false, 2},
};

struct Family {
  std::string family;
  bool tied;
  std::string name() const { return family + (tied ? "_tied" : ""); }
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name(); }

train::Settings settings_of(const Family& family, const Layout& layout) {
  train::Settings settings = with(tiny_settings(family.family), layout);
  settings.model.tied_embeddings = family.tied;
  settings.optim.name = "lamb";
  settings.optim.lr = 5e-3;
  settings.optim.eps = 1e-6;
  return settings;
}

// Matrices have weight decay and a trust ratio; norms and biases, which are vectors, have neither.
bool is_scaled(const std::string& name) { return name.ends_with(".weight") && name.find("norm") == std::string::npos; }

// The paper's update of one whole parameter, in f64.
class Reference {
 public:
  Reference(const optim::OptimConfig& config, std::size_t size) : config_(config), m_(size), v_(size) {}
  // Returns what the step subtracts from w.
  std::vector<double> step(const Matrix& w, const Matrix& gradient, double factor, int step, bool scaled) {
    std::vector<double> u(w.values.size());
    double w_squares = 0, u_squares = 0;
    for (std::size_t i = 0; i < u.size(); ++i) {
      const double g = factor * double{gradient.values[i]};
      m_[i] = config_.beta1 * m_[i] + (1 - config_.beta1) * g;
      v_[i] = config_.beta2 * v_[i] + (1 - config_.beta2) * g * g;
      u[i] = m_[i] / (1 - std::pow(config_.beta1, step + 1)) /
             (std::sqrt(v_[i] / (1 - std::pow(config_.beta2, step + 1))) + config_.eps);
      if (scaled) u[i] += config_.weight_decay * double{w.values[i]};
      w_squares += double{w.values[i]} * double{w.values[i]};
      u_squares += u[i] * u[i];
    }
    const double ratio = scaled && w_squares > 0 && u_squares > 0 ? std::sqrt(w_squares / u_squares) : 1;
    for (double& x : u) x *= config_.lr * ratio;
    return u;
  }

 private:
  optim::OptimConfig config_;
  std::vector<double> m_, v_;
};

double difference(const Matrix& before, const Matrix& after, const std::vector<double>& step) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < step.size(); ++i) {
    error += std::pow(double{before.values[i]} - double{after.values[i]} - step[i], 2);
    size += step[i] * step[i];
  }
  return std::sqrt(error / size);
}

class Lamb : public testing::TestWithParam<std::tuple<Family, Layout>> {};

// From the layout's own gradients, so that only the optimizer is compared.
TEST_P(Lamb, UpdatesWholeParameters) {
  const auto& [family, layout] = GetParam();
  const train::Settings settings = settings_of(family, layout);
  std::vector<Matrices> parameters(4), gradients(3);
  std::vector<double> norms(3);
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
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
      const double norm = engine.finish_step(number).grad_norm;
      if (world.rank() == 0) norms[step] = norm;
      collect_gradients(engine, gradients[step]);
      collect_parameters(engine, parameters[step + 1]);
    }
  });
  std::map<std::string, Reference> references;
  for (std::size_t step = 0; step < gradients.size(); ++step) {
    ASSERT_EQ(gradients[step].size(), parameters[step].size());
    for (const auto& [name, before] : parameters[step]) {
      Reference& reference = references.try_emplace(name, settings.optim, before.values.size()).first->second;
      const std::vector<double> want = reference.step(before, gradients[step].at(name), std::min(1.0, 1 / norms[step]),
                                                      static_cast<int>(step), is_scaled(name));
      // w and w - update are rounded to f32, and the update is a thousandth of w in the smallest step.
      EXPECT_LT(difference(before, parameters[step + 1].at(name), want), 1e-4) << name << ", step " << step;
    }
  }
}

TEST_P(Lamb, ComputesWhatOneRankComputes) {
  const auto& [family, layout] = GetParam();
  static std::map<std::string, Outcome> references;
  Outcome& reference = references[family.name()];
  if (reference.losses.empty()) reference = run_threads(settings_of(family, kLayouts.front()), kSteps);
  ASSERT_LT(reference.losses.back(), reference.losses.front() - 0.1) << "the reference does not learn";
  const Outcome outcome = run_threads(settings_of(family, layout), kSteps);
  ASSERT_EQ(outcome.losses.size(), reference.losses.size());
  for (std::size_t i = 0; i < reference.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], reference.losses[i], kLossTolerance) << "step " << i;
  }
  EXPECT_NEAR(outcome.valid_loss, reference.valid_loss, kLossTolerance);
}

std::string case_name(const testing::TestParamInfo<Lamb::ParamType>& info) {
  return std::get<0>(info.param).name() + "_" + std::get<1>(info.param).name();
}
INSTANTIATE_TEST_SUITE_P(All, Lamb,
                         testing::Combine(testing::Values(Family{"gpt", true}, Family{"llama", false}),
                                          testing::ValuesIn(kLayouts)),
                         case_name);

// If dp does not shard a parameter, its sums are in one order, whatever the pipeline.
TEST(LambBits, DoNotDependOnThePipeline) {
  const auto run = [](const Layout& layout) {
    train::Settings settings = settings_of({"gpt", false}, layout);
    settings.optim.clip = 0;
    return run_threads(settings, kSteps);
  };
  const Outcome one = run({2, 2, 1, 1, true, 0}), other = run({2, 2, 2, 2, true, 0});
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_TRUE(same_bits(one.parameters, other.parameters));
}

// The optimizer alone, on a span with a replicated matrix, a vector without decay, and a matrix sharded over tp: checks
// the norms themselves. A parameter that counted twice would have the same ratio of norms, so no training result would
// show it.
class LambNorms : public testing::TestWithParam<Layout> {};

TEST_P(LambNorms, EveryElementCountsOnce) {
  const Layout layout = GetParam();
  const train::Settings settings = settings_of({"gpt", false}, layout);
  constexpr std::int64_t kReplicated = 256, kVector = 64, kCut = 192, kNumel = 1024;  // 512 of padding
  std::mutex mutex;
  int checked = 0;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    const mesh::Coord at = plan.mesh.coord(world.rank());
    const mesh::Groups groups(plan.mesh, plan.chunks, false);
    std::vector<std::unique_ptr<tensor::Stream>> streams;
    const auto open = [&](const mesh::GroupSpec& group) {
      streams.push_back(device.make_stream(group.name, tensor::StreamKind::comm));
      return world.open({group.name, group.id, group.ranks}, *streams.back());
    };
    const auto everyone = open(groups.world()), tp = open(groups.along(mesh::Axis::tp, world.rank())),
               dp = open(groups.along(mesh::Axis::dp, world.rank()));
    const std::unique_ptr<tensor::Stream> compute = device.make_stream("compute", tensor::StreamKind::compute);
    optim::SpanLayout span;
    span.params = {{"replicated", 0, kReplicated, true},
                   {"vector", kReplicated, kReplicated + kVector, false},
                   {"cut", kReplicated + kVector, kReplicated + kVector + kCut, true}};
    span.numel = kNumel;
    span.replicated = kReplicated + kVector;
    const auto memory = device.allocate(1 << 20, "test");
    tensor::Arena arena(*memory);
    optim::SharedBuffers shared;
    if (layout.zero == 2) shared.grads = arena.take(tensor::DType::f32, 1, kNumel);
    const optim::SpanMemory held =
        optim::carve_span(arena, settings.optim, span, tensor::DType::f32, plan.mesh.shard_place(false, at), shared);
    ASSERT_EQ(optim::parameter_sums(settings.optim, span), 4);
    const optim::StepScalars scalars = optim::carve_scalars(arena, 4);
    // On all dp * tp ranks each element has the same value; gradients add up over dp to 1.
    const auto value = [&](std::int64_t i) {
      const std::int64_t place = i < span.replicated ? i : i + at.tp * 1000;
      return static_cast<float>(1 + place % 7);
    };
    const std::int64_t end = span.params.back().end;
    for (std::int64_t i = 0; i < end; ++i) held.values.as<float>()[i] = value(i);
    const optim::Replicas replicas =
        layout.zero == 0 && layout.dp > 1 ? optim::Replicas{.replicate = dp.get()} : optim::Replicas{.shard = dp.get()};
    optim::ShardedOptimizer optimizer(settings.optim, {span}, {held}, *compute, {replicas, *tp, *everyone, nullptr},
                                      scalars);
    optimizer.begin_step();
    compute->submit(tensor::Fill{held.grads.slice_cols(0, end), 1.0F / static_cast<float>(layout.dp)});
    optimizer.reduce(0, compute->record());
    optimizer.finish_step(0, 0.0);
    compute->synchronize();

    // In the first step the update of an element is 1 + weight_decay * w, up to eps.
    const auto expect = [&](std::int64_t begin, std::int64_t stop, int ranks, const double* norms) {
      double w_squares = 0, u_squares = 0;
      for (int r = 0; r < ranks; ++r) {
        for (std::int64_t i = begin; i < stop; ++i) {
          const auto w = static_cast<double>(1 + (ranks == 1 ? i : i + r * 1000) % 7);
          w_squares += w * w;
          u_squares += std::pow(1 + settings.optim.weight_decay * w, 2);
        }
      }
      EXPECT_NEAR(norms[0], w_squares, 1e-9 * w_squares);
      EXPECT_NEAR(norms[1], u_squares, 1e-3 * u_squares);
    };
    const std::lock_guard lock(mutex);
    SCOPED_TRACE(testing::Message() << "rank " << world.rank());
    expect(0, kReplicated, 1, scalars.parameter_sums.as<double>());
    expect(kReplicated + kVector, end, layout.tp, scalars.parameter_sums.as<double>() + 2);
    ++checked;
    for (const auto& stream : streams) stream->synchronize();
  });
  EXPECT_EQ(checked, layout.dp * layout.tp);
}

INSTANTIATE_TEST_SUITE_P(All, LambNorms,
                         testing::Values(Layout{1, 1, 1, 1, true, 1}, Layout{4, 1, 1, 1, true, 0},
                                         Layout{4, 1, 1, 1, true, 1}, Layout{1, 4, 1, 1, true, 1},
                                         Layout{2, 4, 1, 1, true, 0}, Layout{2, 4, 1, 1, true, 1},
                                         Layout{2, 4, 1, 1, true, 2}),
                         [](const auto& row) { return row.param.name(); });

}  // namespace
}  // namespace ms::testing_case
