// Logistic regression with a ridge, by Newton's method (iteratively reweighted least squares; Hastie, Tibshirani,
// Friedman: "The elements of statistical learning", 4.4.1). Deterministic: it has no seed.
#include <algorithm>
#include <cmath>

#include "predict/model.h"

namespace ms::predict {
namespace {

constexpr double kRidge = 1;
constexpr int kMostNewtonSteps = 25;
constexpr double kConverged = 1e-6;

class Logistic final : public Model {
 public:
  Logistic(Scale scale, std::vector<float> weights) : scale_(std::move(scale)), weights_(std::move(weights)) {}

  void score(std::span<const float> values, std::size_t width, std::span<float> out) const override {
    std::vector<float> scaled(scale_.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      scale_.apply(values.subspan(i * width, width), scaled.data());
      float odds = weights_.back();
      for (std::size_t c = 0; c < scaled.size(); ++c) odds += weights_[c] * scaled[c];
      out[i] = odds;
    }
  }
  Json save() const override { return Json{{"scale", scale_.save()}, {"weights", weights_}}; }

 private:
  Scale scale_;
  std::vector<float> weights_;  // the last is the intercept
};

// Solves a x = b in place of b, a n x n symmetric and positive definite (Cholesky).
void solve(std::vector<double>& a, std::vector<double>& b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= a[i * n + k] * b[k];
    b[i] /= a[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[k * n + i] * b[k];
    b[i] /= a[i * n + i];
  }
}

std::unique_ptr<Model> train_logistic(const TrainingSet& set) {
  const std::size_t columns = set.layout.table_columns(), n = columns + 1;
  const Scale scale(set, 0, columns);
  std::vector<float> x(set.chosen.size() * n, 1.0F);
  for (std::size_t i = 0; i < set.chosen.size(); ++i) scale.apply(set.rows.row(set.chosen[i]), x.data() + i * n);
  std::vector<double> weights(n);
  for (int step = 0; step < kMostNewtonSteps; ++step) {
    std::vector<double> hessian(n * n), gradient(n);
    for (std::size_t i = 0; i < set.chosen.size(); ++i) {
      const float* row = x.data() + i * n;
      double odds = 0;
      for (std::size_t c = 0; c < n; ++c) odds += weights[c] * row[c];
      const double p = 1 / (1 + std::exp(-odds));
      const double weight = set.weights[i], residual = weight * ((set.fails(set.chosen[i]) ? 1 : 0) - p);
      const double curvature = weight * std::max(p * (1 - p), 1e-6);
      for (std::size_t c = 0; c < n; ++c) {
        gradient[c] += residual * row[c];
        for (std::size_t d = 0; d <= c; ++d) hessian[c * n + d] += curvature * row[c] * row[d];
      }
    }
    for (std::size_t c = 0; c < columns; ++c) gradient[c] -= kRidge * weights[c];
    for (std::size_t c = 0; c < n; ++c) hessian[c * n + c] += kRidge;
    solve(hessian, gradient);
    double moved = 0;
    for (std::size_t c = 0; c < n; ++c) {
      const double change = std::clamp(gradient[c], -2.0, 2.0);
      weights[c] += change;
      moved = std::max(moved, std::abs(change));
    }
    if (moved < kConverged) break;
  }
  return std::make_unique<Logistic>(scale, std::vector<float>(weights.begin(), weights.end()));
}

std::unique_ptr<Model> load_logistic(const Json& json, const Layout& layout) {
  const std::size_t columns = layout.table_columns();
  return std::make_unique<Logistic>(Scale(json.at("scale"), 0, columns), finite_numbers(json, "weights", columns + 1));
}

}  // namespace

extern constinit const ModelKind kLogistic{.name = "logistic",
                                           .doc = "logistic regression with a ridge",
                                           .lacks = [] { return std::string(); },
                                           .train = train_logistic,
                                           .load = load_logistic};

}  // namespace ms::predict
