// Formats the analyses as text for a terminal: aligned tables, and sentences where they are clearer. Names from traces
// are made printable. Every text ends with a newline.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"
#include "tracepp/findings/change_points.h"
#include "tracepp/findings/diff.h"
#include "tracepp/findings/work_diff.h"
#include "tracepp/steps/breakdown.h"
#include "tracepp/steps/bubble.h"
#include "tracepp/steps/communication.h"
#include "tracepp/steps/critical_path.h"
#include "tracepp/steps/device_paths.h"
#include "tracepp/steps/effective.h"
#include "tracepp/steps/exposed.h"
#include "tracepp/steps/idle_causes.h"
#include "tracepp/steps/kernels.h"

namespace ms::tracepp {

// With the longest kinds of work, or `all`.
std::string breakdown_text(const RunTrace& trace, const Breakdown& breakdown, bool all = false);
// Idle time by cause, and where the host was, the longest first; empty: not known.
std::string idle_text(const RunTrace& trace, const std::vector<RankIdle>& idle, bool all = false);
// "aten::item below clip_grad_norm_ (train.py(212): step)"; empty: the trace does not say.
std::string place_text(const RunTrace& trace, const IdlePlace& place);
// The longest kernels and copies, launches, queues, and MFU; or `all`. Empty: not known.
std::string kernels_text(const RunTrace& trace, const std::vector<RankKernels>& ranks, bool all = false);
// "MFU 38.2 %: ... TFLOP/s of 989 (NVIDIA H100, dense 16-bit)", or why there is none.
std::string mfu_text(const RunTrace& trace, const std::vector<RankKernels>& ranks);
// A table for a terminal or a page.
struct ReportTable {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows = {};
  std::size_t left_out = 0;  // rows
  std::string text() const;
};
// Return the kernels of all ranks, by short names, and the operators, the longest first and at most so many.
ReportTable kernels_table(const RunTrace& trace, const std::vector<RankKernels>& ranks, std::size_t most);
ReportTable ops_table(const RunTrace& trace, const std::vector<RankKernels>& ranks, std::size_t most);
std::string bubble_text(const Bubble& bubble);
std::string effective_text(const Effective& effective);
std::string communication_text(const RunTrace& trace, const CommReport& report);
// The critical path through host, launches, streams and ranks, the longest parts first; and one part of it.
std::string device_paths_text(const RunTrace& trace, const DevicePaths& paths);
std::string path_work_text(const RunTrace& trace, const PathWork& work);
std::string critical_path_text(const RunTrace& trace, const CriticalPaths& paths);
// Communication by group and operation, what is hidden of it; empty: not known.
std::string exposed_text(const RunTrace& trace, const std::vector<ExposedComm>& exposed);
std::string change_points_text(const RunTrace& trace, const ChangePoints& found);
// Returns a summary first, then only what changed.
std::string diff_text(const Diff& diff, const WorkDiff& work = {.unknown = "not compared"});
// Returns the largest part of the change and its cause, then tables of what changed; empty: not known.
std::string work_diff_text(const WorkDiff& diff);

// Wraps like wrap() of base/text.h, but keeps a number together with the % behind it.
std::vector<std::string> lines_of(std::string text, std::size_t width);
// "rank 5 (dp 1 pp 0 tp 1, n0003)", of the rank with this index; the place only where the mesh is known.
std::string rank_text(const RunTrace& trace, std::size_t rank);
// "all_gather params", "forward".
std::string work_text(const KindOfWork& work);
// "dp all_gather params".
std::string class_text(const CommClass& of);
// "4.00 MiB", "?".
std::string size_text(std::int64_t bytes);
// Format cells whose unit is in the column's head: microseconds; GB/s, or "-" if not known. A change is "+1.2%".
std::string us_text(double seconds);
std::string gb_text(double bytes_per_s);
std::string signed_percent(double part);

}  // namespace ms::tracepp
