// Small networks, trained by the ops that train language models, on the CPU device: an MLP over the table's columns,
// and a 1D-CNN over the series. Both end in two logits, healthy and failing, whose difference is the log-odds.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "optim/adamw.h"
#include "predict/model.h"
#include "tensor/cpu_device.h"

namespace ms::predict {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kFilters = 12;
constexpr std::int64_t kKernel = 5;  // bins that a filter sees
constexpr std::int64_t kStride = 2;
constexpr std::int64_t kBatch = 256;
constexpr std::int64_t kClasses = 2;
constexpr std::int64_t kEpochs = 3;
constexpr std::int64_t kMostSteps = 2500;
constexpr std::int64_t kFewestSteps = 300;
constexpr float kPeakRate = 1.5e-2F;

// The input of a network: columns of a row, scaled; for the 1D-CNN, unfolded so that its filters are a matmul.
class Input {
 public:
  Input(const Layout& layout, bool convolves)
      : first_(convolves ? layout.table_columns() : 0),
        count_(convolves ? layout.width() - layout.table_columns() : layout.table_columns()),
        channels_(static_cast<std::int64_t>(layout.channels())),
        convolves_(convolves) {}

  void learn(const TrainingSet& set) { scale_ = Scale(set, first_, count_); }
  void load(const Json& json) { scale_ = Scale(json, first_, count_); }
  Json save() const { return scale_.save(); }

  // A row of the model is this many rows of the input.
  std::int64_t positions() const {
    return convolves_ ? (static_cast<std::int64_t>(kSeriesBins) - kKernel) / kStride + 1 : 1;
  }
  std::int64_t columns() const { return convolves_ ? channels_ * kKernel : static_cast<std::int64_t>(count_); }

  void fill(std::span<const float> row, float* out) const {
    if (!convolves_) return scale_.apply(row, out);
    std::vector<float> scaled(count_);
    scale_.apply(row, scaled.data());
    for (std::int64_t position = 0; position < positions(); ++position) {
      for (std::int64_t channel = 0; channel < channels_; ++channel) {
        const float* from = scaled.data() + channel * static_cast<std::int64_t>(kSeriesBins) + position * kStride;
        out = std::copy_n(from, kKernel, out);
      }
    }
  }

 private:
  std::size_t first_, count_;
  std::int64_t channels_;
  bool convolves_;
  Scale scale_;
};

// Layers of a matmul with a bias each, GELU between them. The first layer's outputs of all positions are the second's
// input.
class Network final : public Model {
 public:
  Network(const Layout& layout, bool convolves)
      : input_(layout, convolves),
        sizes_{{{kFirst(convolves), input_.columns()},
                {kHidden, kFirst(convolves) * input_.positions()},
                {kClasses, kHidden}}},
        device_(pool_, matmuls_),
        stream_(device_.make_stream("predict", tensor::StreamKind::compute)) {
    std::int64_t parameters = 0;
    for (const auto& [out, in] : sizes_) parameters += out * in + out;
    const std::int64_t rows = kBatch * input_.positions();
    const std::int64_t floats = 4 * parameters + rows * (input_.columns() + 4 * kFirst(convolves)) +
                                kBatch * (4 * kHidden + 2 * kClasses + 8) + 64 * tensor::Arena::kAlignment;
    memory_ = device_.allocate(static_cast<std::size_t>(floats) * sizeof(float), "a network of ms-diag predict");
    tensor::Arena arena(*memory_);
    const auto take = [&](std::int64_t r, std::int64_t c) { return arena.take(DType::f32, r, c); };
    parameters_ = take(1, parameters);
    gradients_ = take(1, parameters);
    moments_ = {take(1, parameters), take(1, parameters)};
    std::int64_t at = 0;
    for (std::size_t i = 0; i < kLayers; ++i) {
      const auto [out, in] = sizes_[i];
      const auto view = [&, out = out, in = in](Tensor of) { return of.slice_cols(at, out * in).reshape(out, in); };
      const auto bias = [&, out = out, in = in](Tensor of) { return of.slice_cols(at + out * in, out); };
      layers_[i] = {view(parameters_), bias(parameters_), view(gradients_), bias(gradients_)};
      at += out * in + out;
      const std::int64_t count = i == 0 ? rows : kBatch;
      layers_[i].x = take(count, out);
      if (i + 1 < kLayers) {
        layers_[i].y = take(count, out);
        layers_[i].dy = take(count, out);
      }
    }
    in_ = take(rows, input_.columns());
    targets_ = arena.take(DType::i32, 1, kBatch);
    stats_ = take(3, kBatch);
    loss_ = take(1, kBatch);
    lse_ = take(1, kBatch);
    factor_ = take(1, 1);
    *factor_.as<float>() = 1;
  }

  void train(const TrainingSet& set) {
    input_.learn(set);
    for (std::size_t i = 0; i < kLayers; ++i) {
      stream_->submit(tensor::InitNormal{.x = layers_[i].weight,
                                         .seed = set.seed,
                                         .key = rng_key("predict layer") + i,
                                         .global_cols = sizes_[i].second,
                                         .valid_rows = sizes_[i].first,
                                         .std = 1 / std::sqrt(static_cast<float>(sizes_[i].second))});
    }
    const auto rows = static_cast<std::int64_t>(set.chosen.size());
    const std::int64_t steps = std::clamp(rows * kEpochs / kBatch, kFewestSteps, kMostSteps);
    std::vector<double> until(set.weights.begin(), set.weights.end());  // rows are drawn by their weights
    std::partial_sum(until.begin(), until.end(), until.begin());
    optim::OptimConfig config;
    config.beta2 = 0.99;
    for (std::int64_t step = 0; step < steps; ++step) {
      stream_->synchronize();  // the host writes the batch
      for (std::int64_t i = 0; i < kBatch; ++i) {
        const double drawn = uniform(set.seed, rng_key("predict batch"), static_cast<std::uint64_t>(step * kBatch + i));
        const auto at = std::upper_bound(until.begin(), until.end() - 1, drawn * until.back());
        const std::size_t row = set.chosen[static_cast<std::size_t>(at - until.begin())];
        fill(i, set.rows.row(row));
        targets_.as<std::int32_t>()[i] = set.fails(row) ? 1 : 0;
      }
      forward(kBatch);
      backward();
      const float progress = static_cast<float>(step) / static_cast<float>(steps);
      optim::issue_adamw(*stream_, {.config = config,
                                    .step = step,
                                    .lr = kPeakRate * (1 - progress),
                                    .weight_decay = 0.02F,
                                    .param = parameters_,
                                    .master = {},
                                    .grad = gradients_,
                                    .factor = factor_,
                                    .states = {moments_.begin(), moments_.end()},
                                    .sums = {}});
    }
    stream_->synchronize();
  }

  void load(const Json& json) {
    input_.load(json.at("scale"));
    const std::vector<float> values = finite_numbers(json, "parameters", static_cast<std::size_t>(parameters_.numel()));
    std::copy(values.begin(), values.end(), parameters_.as<float>());
  }

  void score(std::span<const float> values, std::size_t width, std::span<float> out) const override {
    const auto rows = static_cast<std::int64_t>(out.size());
    for (std::int64_t begin = 0; begin < rows; begin += kBatch) {
      const std::int64_t count = std::min(kBatch, rows - begin);
      for (std::int64_t i = 0; i < count; ++i) {
        fill(i, values.subspan(static_cast<std::size_t>(begin + i) * width, width));
      }
      forward(count);
      stream_->synchronize();
      const float* logits = layers_.back().x.as<float>();
      for (std::int64_t i = 0; i < count; ++i) {
        out[static_cast<std::size_t>(begin + i)] = logits[i * kClasses + 1] - logits[i * kClasses];
      }
    }
  }

  Json save() const override {
    const std::span<const float> values(parameters_.as<float>(), static_cast<std::size_t>(parameters_.numel()));
    return Json{{"scale", input_.save()}, {"parameters", std::vector<float>(values.begin(), values.end())}};
  }

 private:
  static constexpr std::size_t kLayers = 3;
  static constexpr std::int64_t kFirst(bool convolves) { return convolves ? kFilters : kHidden; }

  struct Layer {
    Tensor weight, bias, dweight, dbias;
    Tensor x = {}, y = {};  // before and after GELU; the last layer has no y
    Tensor dy = {};
  };

  void fill(std::int64_t i, std::span<const float> row) const {
    input_.fill(row, in_.as<float>() + i * input_.positions() * input_.columns());
  }

  // The input of layer `i` for so many rows of the model.
  Tensor input_of(std::size_t i, std::int64_t count) const {
    if (i == 0) return in_.slice_rows(0, count * input_.positions());
    return layers_[i - 1].y.reshape(kBatch, sizes_[i].second).slice_rows(0, count);
  }

  void forward(std::int64_t count) const {
    for (std::size_t i = 0; i < kLayers; ++i) {
      const std::int64_t rows = i == 0 ? count * input_.positions() : count;
      const Layer& layer = layers_[i];
      stream_->submit(tensor::Matmul{.c = layer.x.slice_rows(0, rows),
                                     .a = input_of(i, count),
                                     .b = layer.weight,
                                     .bias = layer.bias,
                                     .transpose_b = true});
      if (layer.y) stream_->submit(tensor::GeluFwd{layer.y.slice_rows(0, rows), layer.x.slice_rows(0, rows)});
    }
  }

  // The loss is the mean over the batch of the cross entropy. Gradients of logits replace them.
  void backward() {
    const Tensor logits = layers_.back().x;
    stream_->submit(tensor::Fill{.x = gradients_, .value = 0});
    stream_->submit(tensor::LossStats{.stats = stats_, .logits = logits, .targets = targets_, .valid = kClasses});
    stream_->submit(tensor::LossCombine{.loss = loss_, .lse = lse_, .gathered = stats_, .targets = targets_});
    stream_->submit(tensor::LossBackward{.logits = logits,
                                         .lse = lse_,
                                         .targets = targets_,
                                         .valid = kClasses,
                                         .scale = 1.0F / static_cast<float>(kBatch)});
    for (std::size_t i = kLayers; i-- > 0;) {
      const Layer& layer = layers_[i];
      const Tensor dx = i + 1 == kLayers ? logits : layer.dy;
      if (layer.y) stream_->submit(tensor::GeluBwd{.dx = dx, .dy = dx, .x = layer.x});
      stream_->submit(tensor::Matmul{.c = layer.dweight, .a = dx, .b = input_of(i, kBatch), .transpose_a = true});
      stream_->submit(tensor::ColumnSum{.out = layer.dbias, .x = dx});
      if (i == 0) break;
      stream_->submit(
          tensor::Matmul{.c = layers_[i - 1].dy.reshape(kBatch, sizes_[i].second), .a = dx, .b = layer.weight});
    }
  }

  Input input_;
  std::array<std::pair<std::int64_t, std::int64_t>, kLayers> sizes_;  // outputs and inputs of a layer
  tensor::MatmulCache matmuls_;
  tensor::CpuPool pool_{{.workers = 1, .threads_per_op = 1}};
  tensor::CpuDevice device_;
  std::unique_ptr<tensor::Memory> memory_;
  std::unique_ptr<tensor::Stream> stream_;
  Tensor parameters_, gradients_, in_, targets_, stats_, loss_, lse_, factor_;
  std::array<Tensor, 2> moments_;
  std::array<Layer, kLayers> layers_;
};

template <bool convolves>
std::unique_ptr<Model> train_network(const TrainingSet& set) {
  auto network = std::make_unique<Network>(set.layout, convolves);
  network->train(set);
  return network;
}
template <bool convolves>
std::unique_ptr<Model> load_network(const Json& json, const Layout& layout) {
  auto network = std::make_unique<Network>(layout, convolves);
  network->load(json);
  return network;
}
std::string nothing() { return {}; }

}  // namespace

extern constinit const ModelKind kMlp{.name = "mlp",
                                      .doc = "a network of three layers over the same columns",
                                      .lacks = nothing,
                                      .train = train_network<false>,
                                      .load = load_network<false>};
extern constinit const ModelKind kCnn{.name = "cnn",
                                      .doc = "a 1D-CNN over the last 24 bins of faults and metrics",
                                      .lacks = nothing,
                                      .train = train_network<true>,
                                      .load = load_network<true>};

}  // namespace ms::predict
