// The analyses as text for a terminal: aligned tables, a sentence where one says it better. Names that come from traces
// are made printable. Every text ends with a line end.
#pragma once

#include <string>
#include <vector>

#include "tracepp/breakdown.h"
#include "tracepp/bubble.h"
#include "tracepp/change_points.h"
#include "tracepp/critical_path.h"
#include "tracepp/diff.h"
#include "tracepp/effective.h"
#include "tracepp/messages.h"

namespace ms::tracepp {

// Of the kinds of work the longest, or `all`.
std::string breakdown_text(const RunTrace& trace, const Breakdown& breakdown, bool all = false);
std::string bubble_text(const Bubble& bubble);
std::string effective_text(const Effective& effective);
std::string messages_text(const RunTrace& trace, const MessageReport& report);
std::string critical_path_text(const RunTrace& trace, const CriticalPaths& paths);
std::string change_points_text(const RunTrace& trace, const ChangePoints& found);
// The verdict first; then what changed: nothing else is in the tables.
std::string diff_text(const Diff& diff);

// As wrap() of base/text.h, but a number stays with the % behind it.
std::vector<std::string> lines_of(std::string text, std::size_t width);
// "rank 5 (dp 1 pp 0 tp 1, n0003)", of the rank with this index; the place only where the mesh is known.
std::string rank_text(const RunTrace& trace, std::size_t rank);
// "all_gather params", "forward".
std::string work_text(const KindOfWork& work);
// "dp all_gather params".
std::string class_text(const MessageClass& of);
// "4.00 MiB", "?".
std::string size_text(std::int64_t bytes);
// Cells whose unit the column's head says: microseconds; GB/s, or "-" where not known. A change as "+1.2%".
std::string us_text(double seconds);
std::string gb_text(double bytes_per_s);
std::string signed_percent(double part);

}  // namespace ms::tracepp
