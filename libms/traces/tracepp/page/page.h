// The visual report of a run: one HTML file with what happened, where the time went, a chart of steps, heat maps, a
// timeline and the mesh. ms-tracepp report -o writes it. All numbers come from the analyses of report.h; the scripts
// beside this file draw them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/expert_loads.h"
#include "tracepp/export/export.h"
#include "tracepp/page/columns.h"
#include "tracepp/page/curves.h"
#include "tracepp/report/report.h"

namespace ms::tracepp {

// A rank to look at, and why: by the findings and the diagnosis of a hang. At most kMostMarks, the worst first.
struct Mark {
  int rank = 0;
  std::string why;  // "slow_rank", "hang: silent"
  std::int64_t first_step = kNoStep;
};
inline constexpr std::size_t kMostMarks = 16;
std::vector<Mark> marks_of(const Analysis& analysis);

// Returns the ranks and steps of the timeline: all ranks and steps of a small run; of a large one the marked ranks,
// their neighbours on each axis and one rank of each stage, with the steps around the first mark, so that the page
// stays usable.
inline constexpr std::size_t kMostEvents = 200'000;  // of the timeline, unless the user chose ranks and steps
inline constexpr std::size_t kMostRanks = 32;
ExportOptions choose_timeline(const RunTrace& trace, const std::vector<Mark>& marks, const ExportOptions& asked);

// Return a part of the page's data, and add its numbers to `columns`.
Json measures_data(const RunTrace& trace, const Analysis& analysis, Columns& columns);
Json timeline_data(const RunTrace& trace, const ExportOptions& shown, Columns& columns);
Json hang_data(const RunTrace& trace, const Hang& hang, Columns& columns);
// Return idle time by step and cause, and the stacks of the main threads, in traces of torch.profiler; null: not
// recorded.
Json idle_data(const std::vector<RankIdle>& idle, Columns& columns);
Json flame_data(const RunTrace& trace, const ExportOptions& shown, Columns& columns);
// A section with the longest kernels and operators; empty: not recorded.
std::string kernels_html(const RunTrace& trace, const std::vector<RankKernels>& ranks);

// Parts of a page that are not of the traces.
struct PageExtras {
  std::vector<Curve> curves = {};                       // of this run and of others
  std::optional<trace::ExpertLoads> expert_loads = {};  // of this run
  std::string sections = {};                            // HTML
};
// `asked`: the ranks and steps of the timeline that the user chose.
std::string report_page(const RunTrace& trace, const Analysis& analysis, const ExportOptions& asked,
                        const PageExtras& extras = {});

}  // namespace ms::tracepp
