// Matrix products on a GPU: all transposes, types, strides and edge shapes against f64.
#include "../ops/matmul_case.h"

namespace ms::tensor::test {
namespace {

TEST(Matmul, EveryFormAndShape) {
  for (const Form& f : forms()) {
    for (const Shape& s : kShapes) {
      for (const std::int64_t gap : {0, 3}) {
        SCOPED_TRACE(testing::Message() << to_string(f.type) << "->" << to_string(f.c_type) << " " << s.m << "x" << s.n
                                        << "x" << s.k << (f.transpose_a ? " a'" : "") << (f.transpose_b ? " b'" : "")
                                        << (f.accumulate ? " +=" : "") << (f.bias ? " bias" : "") << " gap " << gap);
        Memory memory;
        const Matmul op = make(memory, s, f, gap);
        const Mat want = product(op, s);
        everywhere(memory, op, [&] { EXPECT_TRUE(close(op.c, want, tolerance_of(f.c_type, kF32))); });
      }
    }
  }
}

TEST(Matmul, NothingToDo) {
  for (const Shape& s : {Shape{0, 5, 3}, {5, 0, 3}}) {
    Memory memory;
    everywhere(memory, make(memory, s, {DType::bf16, DType::bf16, false, false, false, false}, 0), [] {});
  }
}

}  // namespace
}  // namespace ms::tensor::test
