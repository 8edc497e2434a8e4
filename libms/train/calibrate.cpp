#include "train/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <span>
#include <thread>

#include "base/text.h"
#include "comm/thread_world.h"
#include "cost/roofline.h"
#include "tensor/cpu_device.h"
#include "tensor/op_cost.h"
#include "train/sim_issuer.h"

namespace ms::train {
namespace {

using tensor::Op;
using tensor::Tensor;
using Time = std::chrono::steady_clock;

double seconds_since(Time::time_point begin) { return std::chrono::duration<double>(Time::now() - begin).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Models whose operations are timed: from those of a test to as large as seconds allow.
std::vector<Settings> models(std::string_view dtype, std::size_t sizes) {
  struct Size {
    std::int64_t hidden, heads, seq, microbatch, vocab;
  };
  static constexpr std::array<Size, 6> kSizes{{{32, 4, 32, 2, 257},
                                               {64, 4, 128, 2, 257},
                                               {160, 4, 128, 4, 257},
                                               {320, 4, 256, 2, 4096},
                                               {768, 12, 512, 1, 8192},
                                               {1024, 16, 512, 2, 8192}}};
  std::vector<Settings> result;
  for (const Size& size : std::span(kSizes).first(std::min(sizes, kSizes.size()))) {
    for (const std::int64_t tp : {1, 2}) {
      Settings s;
      s.model = {.layers = 2,
                 .hidden = size.hidden,
                 .heads = size.heads,
                 .vocab = size.vocab,
                 .seq = size.seq,
                 .tied_embeddings = false};
      s.mesh = {.tp = tp};
      s.train.dtype = std::string(dtype);
      s.train.microbatch = size.microbatch;
      s.train.global_batch = size.microbatch;
      result.push_back(s);
    }
  }
  return result;
}

// An operation with memory of its own, several times over: in a run, what an operation reads is seldom what was touched
// last, and so not in the nearest cache.
class Copies {
 public:
  Copies(tensor::Device& device, const Op& op) {
    constexpr double kTouched = 4 << 20;  // bytes, all together
    constexpr int kMost = 64;
    const int copies = std::clamp(static_cast<int>(kTouched / std::max(1.0, tensor::cost_of(op).bytes)), 1, kMost);
    for (int i = 0; i < copies; ++i) {
      std::visit(
          [&](auto& row) {
            row.each([&](tensor::Access, const Tensor& tensor) {
              if (!tensor) return;
              memory_.push_back(device.allocate(static_cast<std::size_t>(tensor.extent_bytes()), "calibration"));
              const_cast<Tensor&>(tensor).data = memory_.back()->data();
            });
          },
          ops_.emplace_back(op));
    }
  }
  const Op& operator[](int i) const { return ops_[static_cast<std::size_t>(i) % ops_.size()]; }

 private:
  std::vector<Op> ops_;
  std::vector<std::unique_ptr<tensor::Memory>> memory_;
};

class Bench {
 public:
  explicit Bench(tensor::CpuPool& pool) : device_(pool, matmuls_) {
    for (int i = 0; i < pool.size().workers; ++i)
      streams_.push_back(device_.make_stream("calibration", tensor::StreamKind::compute));
  }

  // Of one operation, while all workers do the same.
  double seconds(const Op& op) {
    std::vector<Copies> copies;  // of each worker
    for (std::size_t s = 0; s < streams_.size(); ++s) copies.emplace_back(device_, op);
    constexpr double kLong_s = 3e-3;
    constexpr int kRounds = 3;
    int count = 1;
    while (round(copies, count) < kLong_s && count < 4096) count *= 2;
    std::vector<double> times;
    for (int i = 0; i < kRounds; ++i) times.push_back(round(copies, count) / count);
    return median(std::move(times));
  }

 private:
  double round(const std::vector<Copies>& copies, int count) {
    const Time::time_point begin = Time::now();
    for (int i = 0; i < count; ++i)
      for (std::size_t s = 0; s < streams_.size(); ++s) streams_[s]->submit(copies[s][i]);
    for (const auto& stream : streams_) stream->synchronize();
    return seconds_since(begin);
  }

  tensor::MatmulCache matmuls_;
  tensor::CpuDevice device_;
  std::vector<std::unique_ptr<tensor::Stream>> streams_;
};

// To four digits: more say nothing.
double rounded(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 3);
  return std::round(value / unit) * unit;
}

struct Sample {
  cost::OpCost cost;
  double seconds = 0;
};

// A point for every third of a decade: the middle one of the rates there, as a share of `peak`.
std::vector<std::string> curve(const std::vector<std::pair<double, double>>& rates, double peak) {
  std::map<int, std::vector<double>> by_size;
  for (const auto& [size, rate] : rates) by_size[static_cast<int>(std::floor(3 * std::log10(size)))].push_back(rate);
  std::vector<std::string> points;
  for (auto& [third, values] : by_size)
    points.push_back(fmt::format("{:.3g}:{:.4g}", std::pow(10.0, (third + 0.5) / 3),
                                 std::clamp(median(std::move(values)) / peak, 1e-6, 1.0)));
  return points;
}

bool is_memory(const cost::OpCost& op) {
  return op.op_class != cost::OpClass::matmul && op.op_class != cost::OpClass::attention;
}

void fit_device(const std::vector<Sample>& samples, bool half, cost::DeviceConfig& device) {
  double product = 0, memory = 0;
  std::vector<std::pair<double, double>> products, attention, plain;
  for (const Sample& s : samples) {
    const double net = std::max(s.seconds - device.launch_s, 0.2 * s.seconds);
    if (s.cost.op_class == cost::OpClass::matmul) {
      products.emplace_back(s.cost.flops, s.cost.flops / net);
      product = std::max(product, s.cost.flops / net);
    } else if (s.cost.op_class == cost::OpClass::attention) {
      attention.emplace_back(s.cost.flops, s.cost.flops / net);
    } else if (s.cost.op_class == cost::OpClass::elementwise && s.cost.bytes > 0) {
      plain.emplace_back(s.cost.bytes, s.cost.bytes / net);
      memory = std::max(memory, s.cost.bytes / net);
    }
  }
  device.tflops = rounded(product * 1e-12);
  device.tflops_fp32 = half ? 0 : device.tflops;
  device.memory_gb_s = rounded(memory * 1e-9);
  device.products = curve(products, product);
  device.attention = curve(attention, product);
  device.memory = curve(plain, memory);
  const cost::Roofline roofline(device);
  std::map<cost::OpClass, std::vector<double>> times;
  for (const Sample& s : samples) {
    if (!is_memory(s.cost) || s.seconds < 4 * device.launch_s) continue;  // what is launched more than done says little
    const double plain_s = roofline.seconds(s.cost) - device.launch_s;
    times[s.cost.op_class].push_back((s.seconds - device.launch_s) / plain_s);
  }
  for (auto& [op_class, values] : times)
    if (op_class != cost::OpClass::elementwise)
      device.classes.push_back(fmt::format("{}:{:.3g}", to_string(op_class), median(std::move(values))));
}

// Seconds of an all-reduce of two ranks that are threads, as compute streams see it: with the events around it.
double message_s(tensor::CpuPool& pool, std::int64_t bytes) {
  constexpr int kRanks = 2, kCount = 200;
  comm::ThreadHub hub(kRanks, std::chrono::minutes(1));
  double seconds = 0;
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        const std::unique_ptr<comm::World> world = hub.world(r);
        tensor::MatmulCache matmuls;
        tensor::CpuDevice device(pool, matmuls);
        const auto compute = device.make_stream("compute", tensor::StreamKind::compute);
        const auto stream = device.make_stream("messages", tensor::StreamKind::comm);
        const auto group = world->open({"calibration", 0, {0, 1}}, *stream);
        const auto memory = device.allocate(static_cast<std::size_t>(bytes), "calibration");
        const Tensor x{memory->data(), 1, bytes / 4, bytes / 4, tensor::DType::f32};
        const int count = bytes > (1 << 20) ? kCount / 20 : kCount;
        Time::time_point begin;
        for (int i = 0; i <= count; ++i) {
          if (i == 1) begin = Time::now();  // the first one is warm-up
          stream->wait(compute->record());
          group->all_reduce(x);
          compute->wait(stream->record());
          if (i == 0) compute->synchronize();
        }
        compute->synchronize();
        if (r == 0) seconds = seconds_since(begin) / count;
        world->close();
      });
    }
  }
  return seconds;
}

}  // namespace

cost::Cluster calibrate(const CalibrateOptions& options) {
  const int cores = tensor::CpuPool::usable_cores();
  const int ranks = options.ranks > 0 ? options.ranks : cores;
  const bool half = options.dtype == tensor::DType::bf16;
  tensor::CpuPool pool(tensor::CpuPool::size_for(cores, ranks, ranks));
  cost::Cluster cluster;
  cluster.device.name = fmt::format("CPU, {} threads", pool.size().threads_per_op);
  cluster.device.memory_bytes =
      static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(sysconf(_SC_PAGE_SIZE)) / ranks;
  cluster.node = {.ranks = ranks, .cores = std::min(ranks, pool.size().workers)};

  std::map<std::string, Op> ops;  // different ones, by class and size
  for (const Settings& settings : models(half ? "bf16" : "fp32", options.sizes)) {
    const Plan plan = make_plan(settings, static_cast<int>(settings.mesh.tp));
    for (const Op& op : SimIssuer(plan, ranks, 0).examples()) {
      const cost::OpCost cost = tensor::cost_of(op);
      if (cost.op_class == cost::OpClass::init) continue;
      ops.try_emplace(fmt::format("{} {:.4g} {:.4g}", op_name(op), cost.flops, cost.bytes), op);
    }
  }
  // In passes over all of them: what else the machine does for a while then spoils one of an operation's times.
  constexpr std::size_t kPasses = 3;
  Bench bench(pool);
  std::map<std::string, std::vector<double>> times;
  std::size_t timed = 0;
  for (std::size_t pass = 0; pass < kPasses; ++pass) {
    for (const auto& [name, op] : ops) {
      times[name].push_back(bench.seconds(op));
      if (options.progress) options.progress(++timed, kPasses * ops.size());
    }
  }
  std::vector<Sample> samples;
  double least_s = HUGE_VAL;
  for (const auto& [name, op] : ops) {
    const Sample& sample = samples.emplace_back(tensor::cost_of(op), median(std::move(times[name])));
    least_s = std::min(least_s, sample.seconds);
  }
  cluster.device.launch_s = rounded(least_s);
  fit_device(samples, half, cluster.device);

  if (ranks > 1) {
    const double small_s = message_s(pool, 64);
    const std::int64_t large = 8 << 20;
    cluster.node.latency_s = rounded(small_s / 2);  // two hops, there and back
    cluster.node.gb_s = rounded(static_cast<double>(large) / std::max(1e-9, message_s(pool, large) - small_s) * 1e-9);
  }
  return cluster;
}

}  // namespace ms::train
