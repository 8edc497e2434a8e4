// Matmuls: all transposes, types, strides and edge shapes against f64; the same bits for any number of threads and for
// rows computed alone; several threads at once.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "matmul_case.h"
#include "tensor/cpu_matmul.h"
#include "tensor/team.h"

namespace ms::tensor::test {
namespace {

TEST(Matmul, EveryFormAndShape) {
  MatmulCache cache;
  for (const Form& f : forms()) {
    for (const Shape& s : kShapes) {
      for (const std::int64_t gap : {0, 3}) {
        SCOPED_TRACE(testing::Message() << to_string(f.type) << "->" << to_string(f.c_type) << " " << s.m << "x" << s.n
                                        << "x" << s.k << (f.transpose_a ? " a'" : "") << (f.transpose_b ? " b'" : "")
                                        << (f.accumulate ? " +=" : "") << (f.bias ? " bias" : "") << " gap " << gap);
        Memory memory;
        const Matmul op = make(memory, s, f, gap);
        const Mat want = matmul_reference(op, s);
        set_team_threads(1);
        cache.run(op);
        EXPECT_TRUE(close(op.c, want, tolerance_of(f.c_type, kF32)));
        EXPECT_TRUE(memory.guards_intact());
      }
    }
  }
}

// Whichever matmuls an instruction set has a kernel of its own for: across the edges of blocks, panels and slices, with
// odd numbers of terms. A row has the same bits in every company.
TEST(Matmul, OwnKernelsAcrossBlocks) {
  const auto ignore = [](const Matmul&) {};
  const auto few = [](const Form& f) { return f.accumulate != f.bias; };
  for (const Shape& s : {Shape{100, 800, 530}, {40, 1601, 70}, {1, 50, 1025}, {300, 33, 65}}) {
    for (const Form& f : forms()) {
      if (!few(f)) continue;
      SCOPED_TRACE(testing::Message() << to_string(f.type) << "->" << to_string(f.c_type) << " " << s.m << "x" << s.n
                                      << "x" << s.k << (f.transpose_a ? " a'" : "") << (f.transpose_b ? " b'" : "")
                                      << (f.accumulate ? " +=" : " bias"));
      Memory memory;
      Matmul op = make(memory, s, f, 3);
      const Memory::Image before = memory.save();
      const Mat want = matmul_reference(op, s);
      for (const CpuKernels* kernels : variants()) {
        SCOPED_TRACE(to_string(kernels->isa));
        memory.restore(before);
        set_team_threads(1);
        if (!kernels->matmul(op, ignore)) continue;
        EXPECT_TRUE(close(op.c, want, tolerance_of(f.c_type, kF32)));
        EXPECT_TRUE(memory.guards_intact());
        EXPECT_TRUE(memory.inputs_as_in(before, op));
        const Memory::Image one = memory.save();
        for (const int threads : {2, 7}) {
          memory.restore(before);
          set_team_threads(threads);
          kernels->matmul(op, ignore);
          EXPECT_TRUE(memory.save() == one) << threads << " threads";
        }
        memory.restore(before);
        for (const auto& [row, rows] : {std::pair{std::int64_t{0}, s.m - s.m / 3}, {s.m - s.m / 3, s.m / 3}}) {
          Matmul part = op;
          part.c = op.c.slice_rows(row, rows);
          part.a = f.transpose_a ? op.a.slice_cols(row, rows) : op.a.slice_rows(row, rows);
          if (rows > 0) kernels->matmul(part, ignore);
        }
        EXPECT_TRUE(memory.save() == one) << "in two parts";
      }
    }
  }
}

// Products of f32 are no less accurate than sums of f32 in order, whatever parts they are computed in: of numbers of
// like and of very different magnitudes.
TEST(Matmul, F32IsAsAccurateAsSumsInOrder) {
  const Shape s{24, 40, 2000};
  for (const int binades : {0, 12, 80}) {
    Memory memory;
    const Matmul op = make(memory, s, {DType::f32, DType::f32, false, true, false, false}, 0);
    for (const Tensor& x : {op.a, op.b}) {
      for (std::int64_t i = 0; i < x.numel() && binades > 0; ++i) {
        float& value = x.as<float>()[i];
        value = std::ldexp(value, static_cast<int>(i * 7 % binades) - binades / 2);
      }
    }
    const Mat want = matmul_reference(op, s);
    const auto error = [&](auto&& sum_of) {
      double total = 0;
      for (std::int64_t i = 0; i < s.m; ++i) {
        for (std::int64_t j = 0; j < s.n; ++j) {
          double size = 0;
          for (std::int64_t k = 0; k < s.k; ++k) size += std::abs(get(op.a, i, k) * get(op.b, j, k));
          total += std::pow((sum_of(i, j) - want(i, j)) / size, 2);
        }
      }
      return std::sqrt(total / static_cast<double>(s.m * s.n));
    };
    const double in_order = error([&](std::int64_t i, std::int64_t j) {
      float sum = 0;
      for (std::int64_t k = 0; k < s.k; ++k) sum += op.a.as<float>()[i * s.k + k] * op.b.as<float>()[j * s.k + k];
      return static_cast<double>(sum);
    });
    for (const CpuKernels* kernels : variants()) {
      if (!kernels->matmul(op, [](const Matmul&) {})) continue;
      EXPECT_LE(error([&](std::int64_t i, std::int64_t j) { return get(op.c, i, j); }), 1.1 * in_order)
          << to_string(kernels->isa) << ", " << binades << " binades";
    }
  }
}

// What is not finite shows in its row, whichever parts a number is computed in.
TEST(Matmul, PropagatesNanAndInfinity) {
  const Shape s{20, 40, 70};
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      Memory memory;
      const Matmul op = make(memory, s, {type, DType::f32, false, false, false, false}, 0);
      put(op.a, 3, 69, value);
      for (const CpuKernels* kernels : variants()) {
        if (!kernels->matmul(op, [](const Matmul&) {})) continue;
        for (std::int64_t i = 0; i < s.m; ++i) {
          for (std::int64_t j = 0; j < s.n; ++j) EXPECT_EQ(std::isfinite(get(op.c, i, j)), i != 3);
        }
      }
    }
  }
}

// Shapes of training: a projection, its input gradient, its weight gradient (few rows and columns, many terms).
struct Step {
  Shape shape;
  Form form;
};
std::vector<Step> steps() {
  std::vector<Step> all;
  for (const auto& [type, c_type] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}}) {
    all.push_back({{512, 192, 256}, {type, c_type, false, true, false, true}});
    all.push_back({{256, 128, 384}, {type, c_type, false, false, false, false}});
    all.push_back({{96, 128, 4096}, {type, DType::f32, true, false, true, false}});
    all.push_back({{64, 64, 16384}, {type, DType::f32, true, false, true, false}});
    all.push_back({{128, 50, 64}, {type, c_type, false, true, false, false}});
  }
  return all;
}

TEST(Matmul, BitsDoNotDependOnThreadsNorOnOtherRows) {
  MatmulCache cache;
  for (const Step& step : steps()) {
    const auto& [s, f] = step;
    SCOPED_TRACE(testing::Message() << to_string(f.type) << "->" << to_string(f.c_type) << " " << s.m << "x" << s.n
                                    << "x" << s.k);
    Memory memory;
    const Matmul op = make(memory, s, f, 0);
    const Memory::Image before = memory.save();
    set_team_threads(1);
    cache.run(op);
    const Memory::Image one = memory.save();
    memory.restore(before);
    set_team_threads(2);
    cache.run(op);
    EXPECT_TRUE(memory.save() == one) << "two threads";
    // Rows of a alone, as sequence parallelism and microbatches split them. (A weight's gradient is never split.)
    if (f.transpose_a) continue;
    const Mat whole = read(op.c);
    for (const auto& [row, rows] :
         {std::pair{std::int64_t{0}, s.m / 2}, {s.m / 2, s.m / 2}, {s.m / 4, s.m / 4}, {s.m - 1, 1}}) {
      memory.restore(before);
      Matmul part = op;
      part.c = op.c.slice_rows(row, rows);
      part.a = op.a.slice_rows(row, rows);
      cache.run(part);
      Mat want(rows, s.n);
      std::copy_n(whole.values.begin() + row * s.n, rows * s.n, want.values.begin());
      EXPECT_TRUE(close(part.c, want, 0)) << rows << " rows from " << row;
    }
  }
}

// A fused GELU gives the bits of the separate op.
TEST(Matmul, FusesGelu) {
  MatmulCache cache;
  for_each_gelu([&](Memory& memory, const GeluCase& made) {
    const Memory::Image before = memory.save();
    const double tolerance = gelu_tolerance(made.op.c.dtype);
    set_team_threads(2);
    cache.run(made.op);
    EXPECT_TRUE(close(made.op.c, made.c, tolerance));
    if (made.op.gelu_y) { EXPECT_TRUE(close(made.op.gelu_y, made.y, tolerance)); }
    EXPECT_TRUE(memory.guards_intact());
    EXPECT_TRUE(memory.inputs_as_in(before, made.op));
    const Memory::Image joined = memory.save();
    memory.restore(before);
    Matmul alone = made.op;
    alone.gelu_y = alone.gelu_x = {};
    cache.run(alone);
    if (made.op.gelu_y) cpu_kernels().run(GeluFwd{.y = made.op.gelu_y, .x = alone.c});
    if (made.op.gelu_x) cpu_kernels().run(GeluBwd{.dx = alone.c, .dy = alone.c, .x = made.op.gelu_x});
    EXPECT_TRUE(memory.save() == joined);
  });
}

// The sums of a weight gradient's operand have the bits of the separate op, and leave those of the gradient alone.
TEST(Matmul, SumsItsOperand) {
  MatmulCache cache;
  for_each_sums([&](Memory& memory, const Matmul& op, const Mat& c, const Mat& sums) {
    const Memory::Image before = memory.save();
    set_team_threads(2);
    cache.run(op);
    EXPECT_TRUE(close(op.c, c, tolerance_of(op.c.dtype, kF32)));
    EXPECT_TRUE(close(op.a_sums, sums, tolerance_of(op.c.dtype, kF32)));
    EXPECT_TRUE(memory.guards_intact());
    EXPECT_TRUE(memory.inputs_as_in(before, op));
    const Memory::Image joined = memory.save();
    memory.restore(before);
    Matmul alone = op;
    alone.a_sums = {};
    cache.run(alone);
    cpu_kernels().run(ColumnSum{.out = op.a_sums, .x = op.a, .accumulate = op.accumulate});
    EXPECT_TRUE(memory.save() == joined);
  });
}

TEST(Matmul, FusesGeluInBlocks) {
  MatmulCache cache;
  const Shape shape{512, 384, 256};
  for (const DType type : activation_types()) {
    Memory memory;
    const GeluCase made = gelu_case(memory, shape, {type, type, false, true, false, true}, 0, true);
    const Memory::Image before = memory.save();
    set_team_threads(1);
    cache.run(made.op);
    EXPECT_TRUE(close(made.op.gelu_y, made.y, gelu_tolerance(type)));
    const Memory::Image one = memory.save();
    for (const int threads : {2, 3}) {
      memory.restore(before);
      set_team_threads(threads);
      cache.run(made.op);
      EXPECT_TRUE(memory.save() == one) << threads << " threads";
    }
  }
}

TEST(Matmul, AcceptsEmptyOutputs) {
  MatmulCache cache;
  Memory memory;
  cache.run(make(memory, {0, 5, 3}, {DType::f32, DType::f32, false, false, false, false}, 0));
  cache.run(make(memory, {5, 0, 3}, {DType::f32, DType::f32, false, false, false, false}, 0));
  EXPECT_TRUE(memory.guards_intact());
  EXPECT_DEATH(cache.run(make(memory, {5, 5, 0}, {DType::f32, DType::f32, false, false, false, false}, 0)), "K is 0");
}

TEST(Matmul, ManyThreadsShareOneCache) {
  const Shape shapes[] = {{64, 64, 64}, {33, 20, 50}, {128, 96, 64}};
  MatmulCache cache;
  const Form form{DType::bf16, DType::f32, false, true, false, true};
  std::vector<std::vector<std::byte>> wanted;
  for (const Shape& s : shapes) {
    Memory memory;
    const Matmul op = make(memory, s, form, 0);
    set_team_threads(1);
    cache.run(op);
    wanted.emplace_back(op.c.data, op.c.data + op.c.size_bytes());
  }
  std::vector<int> wrong(4);
  {
    std::vector<std::jthread> threads;
    for (int& mine : wrong) {
      threads.emplace_back([&] {
        set_team_threads(1);
        for (int round = 0; round < 30; ++round) {
          for (std::size_t i = 0; i < std::size(shapes); ++i) {
            Memory memory;
            const Matmul op = make(memory, shapes[i], form, 0);
            cache.run(op);
            mine += std::memcmp(op.c.data, wanted[i].data(), wanted[i].size()) != 0;
          }
        }
      });
    }
  }
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace ms::tensor::test
