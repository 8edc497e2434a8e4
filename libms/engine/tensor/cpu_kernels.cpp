// Chooses the CPU kernels: the sources of libms/engine/tensor/cpu/ are linked once per instruction set. The ops here
// use the C library to draw or tabulate numbers; they are compiled once, so that they have the same bits everywhere.
#include "tensor/cpu_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <vector>

#include "base/rng.h"
#include "tensor/cpu/kernels.h"
#include "tensor/fp8.h"
#include "tensor/op_checks.h"
#include "tensor/team.h"

namespace ms::tensor {

#if defined(__x86_64__) && !defined(MS_ONE_ISA)
#define MS_ISAS(X)               \
  X(sse41, x86_64_v2)            \
  X(avx2, x86_64_v3)             \
  X(avx512, x86_64_v4)           \
  X(avx512_bf16, x86_64_v4_bf16) \
  X(amx_bf16, x86_64_v4_amx)
#else
#define MS_ISAS(X) X(generic, generic)
#endif
#define MS_DECLARE_TABLE(isa, name)  \
  namespace name {                   \
  const KernelTable& kernel_table(); \
  }
MS_ISAS(MS_DECLARE_TABLE)
#undef MS_DECLARE_TABLE

namespace {

// Returns the index i at which a frequency base^(-i/half) makes so many turns in the original sequence.
double index_with_turns(double turns, double base, double half, const RotaryScaling& scaling) {
  return half * std::log(static_cast<double>(scaling.original_seq) / (turns * 2 * std::numbers::pi)) / std::log(base);
}

// Returns the share of frequency `i` of `half`, `plain`, that scaling keeps as it is.
double kept_share(double plain, double i, double base, double half, const RotaryScaling& scaling) {
  if (scaling.kind == RotaryScaling::Kind::linear) return 0;
  if (scaling.kind == RotaryScaling::Kind::llama3) {
    const double turns = static_cast<double>(scaling.original_seq) * plain / (2 * std::numbers::pi);
    return std::clamp((turns - scaling.low_freq) / (scaling.high_freq - scaling.low_freq), 0.0, 1.0);
  }
  const double first = std::max(std::floor(index_with_turns(scaling.high_freq, base, half, scaling)), 0.0);
  const double last = std::min(std::ceil(index_with_turns(scaling.low_freq, base, half, scaling)), 2 * half - 1);
  constexpr double kLeast = 0.001;  // where both limits are one index, as in transformers
  return 1 - std::clamp((i - first) / (last == first ? kLeast : last - first), 0.0, 1.0);
}

double frequency_of(std::int64_t i, std::int64_t half, const RotaryTable& op) {
  const auto base = static_cast<double>(op.base);
  const double plain = std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
  if (op.scaling.kind == RotaryScaling::Kind::none) return plain;
  return std::lerp(plain / op.scaling.factor, plain,
                   kept_share(plain, static_cast<double>(i), base, static_cast<double>(half), op.scaling));
}

void compute(const RotaryTable& op) {
  const std::int64_t half = op.table.cols / 2;
  for (std::int64_t position = 0; position < op.table.rows; ++position) {
    float* row = op.table.as<float>() + position * op.table.ld;
    for (std::int64_t i = 0; i < half; ++i) {
      // In f64: position * frequency is large, and its error would be the angle's.
      const double angle = static_cast<double>(op.first + position) * frequency_of(i, half, op);
      row[i] = static_cast<float>(op.scaling.magnitude * std::cos(angle));
      row[half + i] = static_cast<float>(op.scaling.magnitude * std::sin(angle));
    }
  }
}

void compute(const LossCombine& op) {
  const std::int64_t shards = op.gathered.rows / 3;
  const auto value = [&](std::int64_t shard, int row, std::int64_t t) {
    return op.gathered.as<float>()[(3 * shard + row) * op.gathered.ld + t];
  };
  for (std::int64_t t = 0; t < op.gathered.cols; ++t) {
    float top = value(0, 0, t), total = 0, target = 0;
    for (std::int64_t shard = 1; shard < shards; ++shard) top = std::max(top, value(shard, 0, t));
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      if (value(shard, 1, t) == 0.0F) continue;  // a shard without columns: its maximum is -inf
      total += value(shard, 1, t) * std::exp(value(shard, 0, t) - top);
      target += value(shard, 2, t);
    }
    const float lse = top + std::log(total);
    op.lse.as<float>()[t] = lse;
    op.loss.as<float>()[t] = op.targets && op.targets.as<std::int32_t>()[t] < 0 ? 0.0F : lse - target;
  }
}

void compute(const Amax& op) { *op.out.as<float>() = amax_of(op.x); }
void compute(const RoundToFp8& op) {
  float& amax = *op.amax.as<float>();
  if (!op.has_amax) amax = amax_of(op.x);
  round_tensor_to_fp8(op.out, op.x, amax, op.is_gradient ? Fp8::e5m2 : Fp8::e4m3);
  if (op.sums) cpu_kernels().run(ColumnSum{.out = op.sums, .x = op.x, .accumulate = op.accumulate});
}

void compute(const ClipFactor& op) {
  const double norm = std::sqrt(*op.sum_squares.as<double>());
  const auto rounded = static_cast<float>(norm);
  *op.norm.as<float>() = rounded;
  float factor = 1.0F;
  if (!std::isfinite(rounded) || rounded > op.skip_above) {
    factor = 0.0F;
  } else if (op.max_norm > 0.0F && norm > static_cast<double>(op.max_norm)) {
    factor = static_cast<float>(static_cast<double>(op.max_norm) / norm);
  }
  *op.factor.as<float>() = factor;
}

void compute(const ExpertSum& op, const KernelTable& table) {
  const auto [begin, end] = op.rows(op.offsets.as<std::int32_t>());
  const Tensor y = op.y.slice_rows(begin, end - begin);
  std::vector<const void*> parts;
  for (std::int64_t i = 0; i < op.parts(); ++i) parts.push_back(op.part(i).slice_rows(begin, y.rows).data);
  table.reduce(ReduceKind::sum, y.dtype, y.data, parts.data(), static_cast<int>(parts.size()), y.numel());
}

// Fills one row, a block of four numbers at a time.
void init_rows(const InitNormal& op, float* row, std::int64_t i) {
  const std::uint64_t first = static_cast<std::uint64_t>((op.row0 + i) * op.global_cols + op.col0);
  std::array<float, 4> block{};
  std::uint64_t have = ~std::uint64_t{0};
  for (std::int64_t j = 0; j < op.x.cols; ++j) {
    const std::uint64_t index = first + static_cast<std::uint64_t>(j);
    if (index / 4 != have) {
      have = index / 4;
      block = normal_block(op.seed, op.key, have);
    }
    row[j] = op.std * block[index % 4];
  }
}

void init_f32(const InitNormal& op) {
  const std::int64_t part = op.x.numel() > 4096 ? even_part(op.x.rows) : op.x.rows;
  share_work(op.x.rows, part, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* row = op.x.as<float>() + i * op.x.ld;
      if (op.row0 + i < op.valid_rows) {
        init_rows(op, row, i);
      } else {
        std::fill_n(row, op.x.cols, 0.0F);
      }
    }
  });
}

// Rounds block by block: a whole parameter in f32 would take twice its memory.
void compute(const InitNormal& op, const KernelTable& table) {
  if (op.x.dtype == DType::f32) return init_f32(op);
  constexpr std::int64_t kElements = 1 << 20;
  const std::int64_t cols = op.x.cols, block = std::max<std::int64_t>(kElements / std::max<std::int64_t>(cols, 1), 1);
  std::vector<float> drawn(static_cast<std::size_t>(std::min(block, op.x.rows) * cols));
  for (std::int64_t row = 0; row < op.x.rows; row += block) {
    InitNormal part = op;
    part.row0 = op.row0 + row;
    const std::int64_t rows = std::min(block, op.x.rows - row);
    part.x = {reinterpret_cast<std::byte*>(drawn.data()), rows, cols, cols, DType::f32};
    init_f32(part);
    table(Copy{.dst = op.x.slice_rows(row, rows), .src = part.x});
  }
}

// Writes the amax of a result, if that was asked for.
template <class Row>
void write_amax(const Row& op) {
  if constexpr (requires { op.amax; }) {
    if (!op.amax) return;
    if constexpr (requires { op.dx; }) {
      *op.amax.template as<float>() = amax_of(op.dx);
    } else {
      *op.amax.template as<float>() = amax_of(op.y);
    }
  }
}

template <const KernelTable& (*kTable)()>
void run_op(const Op& op) {
  check_op(op);
  std::visit(
      [](const auto& row) {
        const KernelTable& table = kTable();
        if constexpr (requires { table(row); }) {
          table(row);
          write_amax(row);
        } else if constexpr (requires { compute(row, table); }) {
          compute(row, table);
        } else if constexpr (requires { compute(row); }) {
          compute(row);
        } else {
          static_assert(std::remove_cvref_t<decltype(row)>::kClass == OpClass::matmul,
                        "an op of the list has no CPU kernel");
          MS_ASSERT(false, "a {} runs in MatmulCache", row.kName);
        }
      },
      op);
}

template <const KernelTable& (*kTable)()>
CpuKernels kernels_of(CpuIsa isa) {
  return {isa, run_op<kTable>, kTable().reduce, kTable().matmul};
}

const auto& all_kernels() {
#define MS_ROW(isa, name) kernels_of<name::kernel_table>(CpuIsa::isa),
  static const std::array kAll{MS_ISAS(MS_ROW)};
#undef MS_ROW
  return kAll;
}

}  // namespace

const CpuKernels& cpu_kernels() {
  static const CpuKernels& kKernels = *std::ranges::find(all_kernels(), cpu_isa(), &CpuKernels::isa);
  return kKernels;
}

int cpu_kernel_variants(const CpuKernels** out, int capacity) {
  int count = 0;
  for (const CpuKernels& kernels : all_kernels()) {
    if (kernels.isa <= cpu_isa() && count < capacity) out[count++] = &kernels;
  }
  return count;
}

}  // namespace ms::tensor
