// What differs between two runs that record their hosts: the cause is named, and the parts add up to the change.
#include "tracepp/findings/work_diff.h"

#include <gmock/gmock.h>

#include "kineto_job.h"
#include "tracepp/report/text.h"
#include "tracepp/steps/breakdown.h"

namespace ms::tracepp {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A run of two ranks: in every step a batch is loaded, attention and a GEMM run, gradients are reduced, and the host
// waits for the device.
struct RunOf {
  double load = 10, load_on_1 = 10, gemm = 300;
  bool flash = true;
  int line = 20;
  std::vector<KinetoJob> jobs() const {
    std::vector<KinetoJob> ranks;
    const double load_most = std::max(load, load_on_1), attention = flash ? 200 : 500;
    const double length = load_most + attention + gemm + 200;
    for (int r = 0; r < 2; ++r) {
      KinetoJob& job = ranks.emplace_back(r, 2);
      for (int s = 0; s < 5; ++s) {
        const double at = length * s, loaded = at + (r == 1 ? load_on_1 : load);
        const int id = 10 * s;
        job.step(s + 1, at, at + length)
            .python(fmt::format("train.py({}): train", line), at, at + length)
            .host("user_annotation", "enumerate(DataLoader)#_Iter.__next__", at, loaded)
            .op("aten::scaled_dot_product_attention", loaded, loaded + 12)
            .op(flash ? "aten::_scaled_dot_product_flash_attention" : "aten::_scaled_dot_product_attention_math",
                loaded + 1, loaded + 11)
            .launched(loaded + 2, loaded + 12, loaded + 12 + attention, id, flash ? "flash_fwd_kernel" : "softmax")
            .op("aten::mm", loaded + 13, loaded + 20)
            .launched(loaded + 14, loaded + 12 + attention, loaded + 12 + attention + gemm, id + 1)
            .all_reduce(loaded + 21, loaded + 13 + attention + gemm, at + length - 10, id + 2, s)
            .call("cudaStreamSynchronize", loaded + 30, at + length - 5, id + 3);
      }
    }
    return ranks;
  }
};

WorkDiff diff_of(const RunOf& before, const RunOf& after) {
  const auto totals = [](const RunOf& run) {
    const RunTrace trace = read_jobs(run.jobs());
    return work_totals(trace, device_paths(trace, match_operations(trace)), break_down(trace).steps.size());
  };
  WorkDiff diff = compare_work(totals(before), totals(after));
  double of_classes = 0, of_path = 0;
  for (const PathDiff& part : diff.classes) of_classes += part.ms.change();
  for (const PathDiff& part : diff.path) of_path += part.ms.change();
  EXPECT_NEAR(of_classes, diff.step_ms.change(), 1e-9);
  EXPECT_NEAR(of_path, diff.step_ms.change(), 1e-9);
  return diff;
}

TEST(WorkDiffs, ASlowLoaderOfOneRankIsNotAWaitForOthers) {
  const WorkDiff diff = diff_of({}, {.load_on_1 = 410});
  EXPECT_NEAR(diff.step_ms.change(), 0.4, 0.001);
  EXPECT_EQ(diff.classes.at(0).of, "data");
  EXPECT_NEAR(diff.classes[0].ms.change(), 0.4, 0.001);
  EXPECT_EQ(diff.path.at(0).rank, 1);
  EXPECT_THAT(work_diff_text(diff), HasSubstr("enumerate(DataLoader)"));
  EXPECT_THAT(diff.swaps, IsEmpty());
}

TEST(WorkDiffs, FlashAttentionThatIsNotTakenIsNamed) {
  const WorkDiff diff = diff_of({}, {.flash = false});
  EXPECT_NEAR(diff.step_ms.change(), 0.3, 0.001);
  ASSERT_THAT(diff.swaps, SizeIs(1));
  const OpSwap& swap = diff.swaps[0];
  EXPECT_EQ(swap.above, "aten::scaled_dot_product_attention");
  EXPECT_EQ(swap.before.name, "aten::_scaled_dot_product_flash_attention");
  EXPECT_EQ(swap.before.calls.before, 1);
  EXPECT_TRUE(swap.before.vanished());
  EXPECT_EQ(swap.after.name, "aten::_scaled_dot_product_attention_math");
  EXPECT_NEAR(swap.change_ms(), 0.3, 1e-6);
  EXPECT_EQ(diff.classes.at(0).of, "kernel");
  EXPECT_THAT(work_diff_text(diff), HasSubstr("aten::_scaled_dot_product_flash_attention 0 times a step (1 before)"));
}

TEST(WorkDiffs, AKernelThatTakesLongerIsNamed) {
  const WorkDiff diff = diff_of({}, {.gemm = 700});
  EXPECT_EQ(diff.classes.at(0).of, "kernel");
  EXPECT_EQ(diff.path.at(0).name, "gemm");
  EXPECT_NEAR(diff.path[0].ms.change(), 0.4, 0.001);
  EXPECT_EQ(diff.kernels.at(0).name, "gemm");
  EXPECT_EQ(diff.kernels[0].calls.change(), 0);
  EXPECT_NEAR(diff.kernels[0].ms.change(), 0.4, 1e-6);
  EXPECT_NEAR(diff.lines.at(0).ms.change(), 0.4, 1e-6);
}

TEST(WorkDiffs, CodeThatMovedIsTheSameCode) {
  const WorkDiff diff = diff_of({}, {.line = 25});
  EXPECT_NEAR(diff.step_ms.change(), 0, 1e-9);
  for (const PathDiff& part : diff.path) EXPECT_NEAR(part.ms.change(), 0, 1e-9) << part.of << part.name;
  ASSERT_THAT(diff.lines, SizeIs(1));
  EXPECT_EQ(diff.lines[0].name, "train.py: train");
  EXPECT_EQ(work_diff_text(diff), "");
}

TEST(WorkDiffs, AreNotKnownWithoutAHost) {
  const WorkTotals nothing{.unknown = "the trace does not record the host"};
  EXPECT_NE(compare_work(nothing, nothing).unknown, "");
  EXPECT_EQ(work_diff_text(compare_work(nothing, nothing)), "");
}

}  // namespace
}  // namespace ms::tracepp
