#include "train/simulate/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <tuple>

#include "base/text.h"
#include "comm/thread_world.h"
#include "cost/roofline.h"
#include "tensor/cpu_device.h"
#include "tensor/op_cost.h"
#include "train/engine/engine.h"
#include "train/simulate/simulate.h"

namespace ms::train {
namespace {

using tensor::Tensor;
using Time = std::chrono::steady_clock;

double seconds_since(Time::time_point begin) { return std::chrono::duration<double>(Time::now() - begin).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Models whose steps are timed: from those of a test to as large as seconds allow.
std::vector<Settings> models(std::string_view dtype, std::size_t sizes, int ranks) {
  struct Size {
    std::int64_t layers, hidden, heads, seq, microbatch, vocab;
  };
  static constexpr std::array<Size, 6> kSizes{{{2, 32, 4, 32, 2, 257},
                                               {2, 64, 4, 128, 2, 257},
                                               {2, 160, 4, 128, 4, 257},
                                               {2, 320, 4, 256, 2, 4096},
                                               {1, 768, 12, 512, 1, 8192},
                                               {1, 1024, 16, 512, 1, 8192}}};
  std::vector<Settings> result;
  for (const Size& size : std::span(kSizes).first(std::min(sizes, kSizes.size()))) {
    for (const std::int64_t tp : {1, 2}) {
      if (ranks % tp != 0) continue;
      Settings s;
      s.model = {.layers = size.layers,
                 .hidden = size.hidden,
                 .heads = size.heads,
                 .vocab = size.vocab,
                 .seq = size.seq,
                 .tied_embeddings = false,
                 .fused = false};  // each class by itself
      s.mesh = {.dp = ranks / tp, .tp = tp};
      s.train.dtype = std::string(dtype);
      s.train.microbatch = size.microbatch;
      s.train.global_batch = 2 * size.microbatch * s.mesh.dp;
      result.push_back(s);
    }
  }
  return result;
}

struct Sample {
  cost::OpCost cost;
  int count = 0;
  double seconds = 0;  // of one
};

// Measures how long operations of each cost take within a step: on memory as warm as the step leaves it, beside all
// other work of the ranks.
class Observer final : public tensor::OpObserver {
 public:
  void ran(const tensor::Op& op, double seconds) override {
    const cost::OpCost cost = tensor::cost_of(op);
    if (!counts || cost.op_class == cost::OpClass::init) return;
    std::lock_guard lock(mutex_);
    auto& [count, sum] = sums_[{cost.op_class, cost.half, cost.flops, cost.bytes}];
    ++count;
    sum += seconds;
  }
  std::vector<Sample> samples() const {
    std::vector<Sample> samples;
    for (const auto& [key, of] : sums_) {
      const auto& [op_class, half, flops, bytes] = key;
      samples.push_back(
          {{.op_class = op_class, .half = half, .flops = flops, .bytes = bytes}, of.first, of.second / of.first});
    }
    return samples;
  }
  std::atomic<bool> counts = false;

 private:
  std::mutex mutex_;
  std::map<std::tuple<cost::OpClass, bool, double, double>, std::pair<int, double>> sums_;
};

// Steps of all ranks, as threads of this process, for `seconds` after a warm-up. Returns the seconds of one.
double run_steps(const Plan& plan, tensor::CpuPool& pool, double seconds, Observer& observer) {
  const int ranks = plan.mesh.size();
  const Settings& settings = plan.settings;
  double step_s = 0;
  comm::ThreadHub hub(ranks, std::chrono::minutes(10));
  tensor::MatmulCache matmuls;
  std::barrier warm(ranks, [&]() noexcept { observer.counts = true; });
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      tensor::CpuDevice device(pool, matmuls);
      device.set_observer(&observer);
      const std::unique_ptr<comm::World> world = hub.world(r);
      {
        Engine engine(plan, *world, device);
        engine.initialize(settings.train.seed);
        std::vector<std::int32_t> tokens;
        if (engine.needs_input()) {
          const std::int64_t count = plan.microbatches * settings.train.microbatch * settings.model.seq;
          for (std::int64_t i = 0; i < count; ++i)
            tokens.push_back(static_cast<std::int32_t>(i * 7919 % settings.model.vocab));
        }
        std::int64_t step = 0;
        const auto one = [&](bool last) {
          Votes votes;
          votes.stop = last ? 1 : 0;
          engine.issue_step(step, settings.optim.lr, tokens, tokens, votes);
          return engine.finish_step(step++).votes.stop > 0;
        };
        one(false);
        engine.synchronize();
        warm.arrive_and_wait();
        const Time::time_point begin = Time::now();
        while (!one(seconds_since(begin) > seconds)) {}
        engine.synchronize();
        if (r == 0) step_s = seconds_since(begin) / static_cast<double>(step - 1);
      }
      world->close();
    });
  }
  threads.clear();
  observer.counts = false;
  return step_s;
}

// To four digits: more say nothing.
double rounded(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 3);
  return std::round(value / unit) * unit;
}

// Work that was done, in the seconds it took.
struct Done {
  double work = 0, seconds = 0;
  double rate() const { return work / seconds; }
};
// By thirds of a decade of the size of operations.
using Rates = std::map<int, Done>;
void add(Rates& rates, double size, const Sample& s, double net) {
  Done& done = rates[static_cast<int>(std::floor(3 * std::log10(size)))];
  done.work += s.count * size;
  done.seconds += s.count * net;
}
double peak(const Rates& rates) {
  double rate = 0;
  for (const auto& [third, done] : rates) rate = std::max(rate, done.rate());
  return rate;
}

// A point for every third of a decade, as a share of `peak`.
std::vector<std::string> curve(const Rates& rates, double peak) {
  std::vector<std::string> points;
  for (const auto& [third, done] : rates)
    points.push_back(
        fmt::format("{:.3g}:{:.4g}", std::pow(10.0, (third + 0.5) / 3), std::clamp(done.rate() / peak, 1e-6, 1.0)));
  return points;
}

bool is_memory(const cost::OpCost& op) {
  return op.op_class != cost::OpClass::matmul && op.op_class != cost::OpClass::attention;
}

void fit_device(const std::vector<Sample>& samples, bool half, cost::DeviceConfig& device) {
  Rates gemms, attention, plain;
  for (const Sample& s : samples) {
    const double net = std::max(s.seconds - device.launch_s, 0.2 * s.seconds);
    if (s.cost.op_class == cost::OpClass::matmul) {
      add(gemms, s.cost.flops, s, net);
    } else if (s.cost.op_class == cost::OpClass::attention) {
      add(attention, s.cost.flops, s, net);
    } else if (s.cost.op_class == cost::OpClass::elementwise && s.cost.bytes > 0) {
      add(plain, s.cost.bytes, s, net);
    }
  }
  const double gemm = peak(gemms), memory = peak(plain);
  device.tflops = rounded(gemm * 1e-12);
  device.tflops_fp32 = half ? 0 : device.tflops;
  device.memory_gb_s = rounded(memory * 1e-9);
  device.gemm = curve(gemms, gemm);
  device.attention = curve(attention, gemm);
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

struct Step {
  Plan plan;
  double seconds = 0;  // measured
};

// A message costs more or less in a step than by itself: ranks do not come to it at the same time and who waits sleeps,
// but a processor that has other work need not be woken. Returns the latency with which simulated steps are as long as
// those measured, by the mean of the logarithms of their ratios.
double fit_latency(cost::Cluster cluster, const std::vector<Step>& steps) {
  const auto ratio = [&](double latency_s) {
    cluster.node.latency_s = latency_s;
    double sum = 0;
    for (const Step& step : steps) sum += std::log(simulate(step.plan, cluster, {}).iteration_s / step.seconds);
    return sum;
  };
  double least = cluster.node.latency_s / 100, most = 100 * cluster.node.latency_s;
  constexpr int kHalvings = 14;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = std::sqrt(least * most);
    (ratio(middle) < 0 ? least : most) = middle;
  }
  return least;
}

}  // namespace

cost::Cluster calibrate(const CalibrateOptions& options) {
  const int cores = tensor::CpuPool::usable_cores();
  const int ranks = options.ranks > 0 ? options.ranks : cores;
  const bool half = options.dtype == tensor::DType::bf16;
  const int threads = tensor::CpuPool::threads_asked(0, std::getenv("OMP_NUM_THREADS"));
  tensor::CpuPool pool(tensor::CpuPool::size_for(cores, ranks, ranks, threads));
  cost::Cluster cluster;
  cluster.device.name = fmt::format("CPU, {} threads", pool.size().threads_per_op);
  cluster.device.memory_bytes =
      static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(sysconf(_SC_PAGE_SIZE)) / ranks;
  cluster.node = {.ranks = ranks, .cores = std::min(ranks, pool.size().workers)};

  // In passes over all models: what else the machine does for a while then spoils a part of each one's times.
  constexpr std::size_t kPasses = 3;
  constexpr double kSeconds = 0.8;
  const std::size_t sizes =
      ranks > cores ? std::min<std::size_t>(options.sizes, 5) : options.sizes;  // in bearable time
  const std::vector<Settings> all = models(half ? "bf16" : "fp32", sizes, ranks);
  Observer observer;
  std::vector<std::vector<double>> steps_s(all.size());
  for (std::size_t pass = 0; pass < kPasses; ++pass) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      steps_s[i].push_back(run_steps(make_plan(all[i], ranks), pool, kSeconds, observer));
      if (options.progress) options.progress(pass * all.size() + i + 1, kPasses * all.size());
    }
  }
  const std::vector<Sample> samples = observer.samples();
  cluster.device.launch_s = rounded(std::ranges::min(samples, {}, &Sample::seconds).seconds);
  fit_device(samples, half, cluster.device);

  if (ranks > 1) {
    const double small_s = message_s(pool, 64);
    const std::int64_t large = 8 << 20;
    cluster.node.latency_s = small_s / 2;  // two hops, there and back
    // Both members copy, on one processor if there is no other.
    const double transfer_s = std::max(1e-9, message_s(pool, large) - small_s) * (pool.size().workers > 1 ? 1 : 0.5);
    cluster.node.gb_s = rounded(static_cast<double>(large) / transfer_s * 1e-9);
    std::vector<Step> steps;
    for (std::size_t i = 0; i < all.size(); ++i) steps.push_back({make_plan(all[i], ranks), median(steps_s[i])});
    cluster.node.latency_s = rounded(fit_latency(cluster, steps));
  }
  return cluster;
}

}  // namespace ms::train
