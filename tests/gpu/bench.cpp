// Measures the CUDA device, op by op, relative to what the same GPU achieves in the same run: the bandwidth of a plain
// copy, and the rate of the best large bf16 GEMM. usage: gpu_bench [--json FILE] [--small] [--gpu N] [--only PART]
// PART: memory, gemms, kernels or unordered. 77: no GPU
//
// The op list has no clock of its own, so an op is submitted repeatedly until the host's clock is exact enough. If
// issuing may be most of its time, the row is marked "issue". "below" lists those that reach less than 85 % of the
// copy's bandwidth.
#include "bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/file.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "tensor/cuda_plugin.h"

namespace ms::tensor::bench {
namespace {

constexpr double kPeakTflops = 989, kPeakGbs = 4800;  // H200 data sheet: dense bf16, memory
constexpr double kAim = 0.85;                         // of the copy's bandwidth
constexpr double kIssued_us = 15;                     // shorter ops may be limited by the host
constexpr double kMeasured_s = 0.02;                  // at least, per measurement
constexpr int kWarmUp = 3, kMeasurements = 7;
constexpr double kRotated_bytes = 400e6;  // at least, between two uses of the same memory: L2 has 50 MB
constexpr int kMostSets = 8;
constexpr std::int64_t kSource = 1 << 22;      // elements
constexpr std::int64_t kMostCopied = 1 << 28;  // elements: CUDA's copies refuse rows of 2 GiB

void print(const Row& row) {
  fmt::print("{:<34} {:<34} {:>10.1f} {:>8.1f} {:<8} {:>6.1f} %  {}{}\n", row.op, row.shape, row.us, row.rate, row.unit,
             100 * row.share, row.mark,
             row.scratch_bytes > 0 ? fmt::format("takes {} besides", format_size(row.scratch_bytes)) : "");
  std::fflush(stdout);
}

std::string quoted(std::string_view text) {
  std::string all = "\"";
  for (const char c : printable(text, 1000)) {
    if (c == '"' || c == '\\') all += '\\';
    all += c;
  }
  return all + "\"";
}
std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null"; }

std::string as_json(const Bench& bench, const std::string& gpu) {
  std::string text =
      fmt::format("{{\"gpu\": {}, \"small\": {}, \"copy_gbs\": {}, \"matmul_tflops\": {}, \"failed\": {}, \"rows\": [",
                  quoted(gpu), bench.small, number(bench.copy_gbs), number(bench.matmul_tflops), bench.failed());
  std::string_view comma;
  for (const Row& row : bench.rows()) {
    text += fmt::format(
        "{}\n  {{\"section\": {}, \"op\": {}, \"shape\": {}, \"us\": {}, \"{}\": {}, \"{}\": {}, \"share\": {}, "
        "\"scratch_bytes\": {}, \"mark\": {}}}",
        comma, quoted(row.section), quoted(row.op), quoted(row.shape), number(row.us),
        row.unit == "GB/s" ? "bytes" : "flops", number(row.amount), row.unit == "GB/s" ? "gbs" : "tflops",
        number(row.rate), number(row.share), number(row.scratch_bytes), quoted(row.mark));
    comma = ",";
  }
  return text + "\n]}\n";
}

// Returns the GPU's name, which Device does not.
std::string name_of(int gpu) {
  try {
    const SubprocessResult asked = run_subprocess(
        {"nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "-i", std::to_string(gpu)}, {.deadline_s = 10});
    if (asked.ok()) return std::string(trim(asked.out));
  } catch (const Error&) {}
  return "unknown";
}

void measure_ceilings(Bench& bench) {
  bench.section("ceilings", fmt::format("shares of the H200's data sheet: {} GB/s, {} TFLOP/s", kPeakGbs, kPeakTflops));
  // GEMMs first: an idle GPU takes a while to raise its clocks.
  struct Size {
    std::int64_t m, n, k;
  };
  for (const Size& p : {Size{8192, 8192, 8192}, Size{16384, 8192, 8192}, Size{16384, 16384, 8192}}) {
    const std::int64_t m = bench.size(p.m), n = bench.size(p.n), k = bench.size(p.k);
    const Case product{.shape = fmt::format("bf16 {}x{}x{}", m, n, k), .make = [=](Tensors& make) -> Op {
                         return Matmul{.c = make.zeros(DType::bf16, m, n),
                                       .a = make.normal(DType::bf16, m, k),
                                       .b = make.normal(DType::bf16, n, k),
                                       .bias = {},
                                       .transpose_b = true};
                       }};
    bench.matmul_tflops = std::max(bench.matmul_tflops, bench.computes(product, kPeakTflops));
  }
  const std::int64_t cols = bench.size(8192), bytes = bench.small ? 1 << 20 : std::int64_t{1} << 31;
  for (const bool flat : {false, true}) {
    const std::int64_t n = flat ? bytes / 8 : bytes / 4;  // for one row, see kMostCopied
    const Case copy{
        .shape = fmt::format("f32 {}", flat ? fmt::format("1x{}", n) : fmt::format("{}x{}", n / cols, cols)),
        .make = [=](Tensors& make) -> Op {
          const Tensor src = make.normal(DType::f32, flat ? 1 : n / cols, flat ? n : cols);
          return Copy{.dst = make.zeros(src.dtype, src.rows, src.cols), .src = src};
        }};
    bench.copy_gbs = std::max(bench.copy_gbs, bench.moves(copy, kPeakGbs));
  }
}

struct NamedPart {
  std::string_view name;
  void (*measure)(Bench&);
};
constexpr NamedPart kParts[] = {{"ceilings", measure_ceilings},
                                {"memory", measure_memory},
                                {"gemms", measure_gemms},
                                {"kernels", measure_kernels},
                                {"unordered", measure_unordered}};

int run(int gpu, bool small, const std::string& json, std::string_view only) {
  if (!only.empty() && std::ranges::none_of(kParts, [&](const NamedPart& part) { return part.name == only; })) {
    fmt::print(stderr, "gpu_bench: there is no part {}\n", only);
    return 2;
  }
  std::unique_ptr<Device> device, unordered;
  try {
    device = make_cuda_device(gpu, {.time_ops = false});
    unordered = make_cuda_device(gpu, {.deterministic = false, .time_ops = false});
  } catch (const Error& error) {
    if (error.kind() != "cuda.none") throw;
    fmt::print(stderr, "gpu_bench: {}\n", error.message());
    return 77;
  }
  const std::string name = name_of(gpu);
  fmt::print("GPU {}: {}{}\n", gpu, name, small ? ", small shapes: rates mean nothing" : "");
  Bench bench(*device, small);
  for (const auto& [part, measure] : kParts) {
    if (!only.empty() && part != only && part != "ceilings") continue;
    if (part == "unordered") bench.use(*unordered);
    measure(bench);
    if (!json.empty()) write_file_atomic(json, as_json(bench, name));  // later sections may be killed
  }
  const auto below =
      std::count_if(bench.rows().begin(), bench.rows().end(), [](const Row& row) { return row.mark == "below"; });
  fmt::print("\ncopy {:.0f} GB/s, best product {:.0f} TFLOP/s; of {} rows {} below {:.0f} % of the copy, {} failed\n",
             bench.copy_gbs, bench.matmul_tflops, bench.rows().size(), below, 100 * kAim, bench.failed());
  return bench.failed() == 0 ? 0 : 1;
}

}  // namespace

Source::Source(Device& device) : memory(device.allocate(kSource * 6, "random numbers")) {
  f32 = {memory->data(), 1, kSource, kSource, DType::f32};
  bf16 = {memory->data() + kSource * 4, 1, kSource, kSource, DType::bf16};
  const auto stream = device.make_stream("numbers", StreamKind::compute);
  stream->submit(InitNormal{.x = f32, .seed = 1, .key = 1, .global_cols = kSource, .valid_rows = 1});
  stream->submit(Copy{.dst = bf16, .src = f32});
  stream->synchronize();
}

Tensor Tensors::zeros(DType dtype, std::int64_t rows, std::int64_t cols) {
  const Tensor x{nullptr, rows, cols, cols, dtype};
  memory_.push_back(device_.allocate(static_cast<std::size_t>(x.size_bytes()), "a tensor"));
  return {memory_.back()->data(), rows, cols, cols, dtype};
}
Tensor Tensors::normal(DType dtype, std::int64_t rows, std::int64_t cols) {
  const Tensor x = zeros(dtype, rows, cols), flat = x.flat();
  std::int64_t have = std::min(kSource, x.numel());
  stream_->submit(Copy{.dst = flat.slice_cols(0, have), .src = source_.of(dtype).slice_cols(0, have)});
  while (have < x.numel()) {
    const std::int64_t more = std::min({have, x.numel() - have, kMostCopied});
    stream_->submit(Copy{.dst = flat.slice_cols(have, more), .src = flat.slice_cols(0, more)});
    have += more;
  }
  return x;
}
Tensor Tensors::filled(DType dtype, std::int64_t rows, std::int64_t cols, float value) {
  const Tensor x = zeros(dtype, rows, cols);
  stream_->submit(Fill{.x = x, .value = value});
  return x;
}
Tensor Tensors::numbers(const std::vector<std::int32_t>& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  const Tensor x = zeros(DType::i32, 1, n);
  memory_.push_back(device_.allocate_host(values.size() * sizeof(std::int32_t), "numbers"));
  std::memcpy(memory_.back()->data(), values.data(), values.size() * sizeof(std::int32_t));
  stream_->submit(Copy{.dst = x, .src = {memory_.back()->data(), 1, n, n, DType::i32}});
  return x;
}

void Bench::section(std::string name, std::string title) {
  section_ = std::move(name);
  fmt::print("\n{}: {}\n{:<34} {:<34} {:>10} {:>17} {:>8}\n", section_, title, "op", "shape", "us", "rate        ",
             "share");
}

double Bench::seconds_of(Stream& stream, const std::vector<Ready>& sets, int repetitions) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repetitions; ++i) sets[static_cast<std::size_t>(i) % sets.size()].issue();
  stream.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns the seconds of one repetition, the median of all measurements.
double Bench::median_s(Stream& stream, const std::vector<Ready>& sets, bool small) {
  const int warm_up = std::max(small ? 1 : kWarmUp, static_cast<int>(sets.size()));
  seconds_of(stream, sets, warm_up);  // creates plans and scratch memory
  if (small) return seconds_of(stream, sets, 1);
  const double about_s = seconds_of(stream, sets, warm_up) / warm_up;
  const int repetitions = std::max(1, static_cast<int>(std::ceil(kMeasured_s / about_s)));
  std::vector<double> all_s;
  for (int i = 0; i < kMeasurements; ++i) all_s.push_back(seconds_of(stream, sets, repetitions) / repetitions);
  std::nth_element(all_s.begin(), all_s.begin() + kMeasurements / 2, all_s.end());
  return all_s[kMeasurements / 2];
}

// Each row has its own stream: a failure affects one row only.
double Bench::measure(Row row, const Make& make, double ceiling) {
  const bool memory = row.unit == "GB/s";
  row.section = section_;
  try {
    Tensors tensors(*device_, source_);
    std::vector<Ready> sets{make(tensors)};
    const double bytes = sets[0].bytes;
    row.op = sets[0].op;
    row.amount = memory ? bytes : sets[0].flops;
    row.scratch_bytes = sets[0].scratch_bytes;
    const double wanted = std::min(std::ceil(kRotated_bytes / bytes), static_cast<double>(small ? 2 : kMostSets));
    while (memory && static_cast<double>(sets.size()) < wanted) sets.push_back(make(tensors));
    const double seconds = median_s(tensors.stream(), sets, small);
    row.us = 1e6 * seconds;
    row.rate = row.amount / seconds * (memory ? 1e-9 : 1e-12);
    row.share = ceiling > 0 ? row.rate / ceiling : 0;
    if (row.us < kIssued_us) {
      row.mark = "issue";
    } else if (memory && section_ != "ceilings" && row.share < kAim) {
      row.mark = "below";
    }
  } catch (const Error& error) {
    row.mark = "failed: " + error.message();
    ++failed_;
  }
  print(row);
  rows_.push_back(row);
  return row.rate;
}

double Bench::measure(const Case& measured, bool memory, double ceiling) {
  const auto make = [&](Tensors& tensors) -> Ready {
    const Op op = measured.make(tensors);
    const OpCost cost = cost_of(op);
    MatmulChoices none;
    const bool attends = op_class(op) == OpClass::attention;
    return {.op = fmt::format("{}{}{}", op_name(op), measured.remark.empty() ? "" : " ", measured.remark),
            .issue = [op, &stream = tensors.stream()] { stream.submit(op); },
            .bytes = measured.bytes > 0 ? measured.bytes : cost.bytes,
            .flops = cost.flops,
            .scratch_bytes = attends ? static_cast<double>(device_->prepare({&op, 1}, none, false)) : 0.0};
  };
  Row row;
  row.op = measured.remark, row.shape = measured.shape, row.unit = memory ? "GB/s" : "TFLOP/s";
  return measure(row, make, ceiling);
}

double Bench::moves(const KernelCase& measured) {
  const auto make = [&](Tensors& tensors) -> Ready {
    return {.op = measured.kernel, .issue = measured.make(tensors), .bytes = measured.bytes};
  };
  Row row;
  row.op = measured.kernel, row.shape = measured.shape, row.unit = "GB/s";
  return measure(row, make, copy_gbs);
}

}  // namespace ms::tensor::bench

int main(int argc, char** argv) {
  int gpu = 0;
  bool small = false;
  std::string json, only;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--small") {
      small = true;
    } else if (arg == "--json" && i + 1 < argc) {
      json = argv[++i];
    } else if (arg == "--gpu" && i + 1 < argc) {
      gpu = std::atoi(argv[++i]);
    } else if (arg == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else {
      fmt::print(stderr, "usage: gpu_bench [--json FILE] [--small] [--gpu N] [--only PART]\n");
      return 2;
    }
  }
  try {
    return ms::tensor::bench::run(gpu, small, json, only);
  } catch (const ms::Error& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.message());
    return 1;
  }
}
