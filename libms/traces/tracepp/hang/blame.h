// Judges a root of the graph: which of its ranks is at fault, and why. If the members of one operation disagree, the
// majority is right; without a majority, the same groups elsewhere in the mesh decide. Called by hang.cpp.
#pragma once

#include <string>
#include <vector>

#include "tracepp/hang/graph.h"

namespace ms::tracepp {

inline constexpr double kJustNow_s = 1;  // a shorter wait in a dump is usual

struct Blame {
  std::vector<HangSuspect> suspects;  // the likeliest first; all belong to the same root
  std::string sentence;               // without the ranks that wait for it
  int op = -1;                        // that others wait in
  double own_s = -1;                  // how long it has been in what it does; -1: not known
  bool is_seen = true;  // the traces show it, not only the lack of another explanation; and it is not usual
  std::size_t behind = 0;
};

HangSuspect suspect_of(const HangScan& scan, int rank, Reason reason, double confidence);
Blame blame(const HangRoot& root, const HangGraph& graph, const HangScan& scan);

// Text that the sentences of hang.cpp share.
std::string rank_label(const HangScan& scan, int rank);  // "rank 5 (dp 1 pp 0 tp 1, node n03)"
std::string lost_label(const HangScan& scan, int rank);  // "rank 5 left no trace", "the dump of rank 5 is cut off"
std::string left_out_text(const HangScan& scan);         // "; the dumps of rank 1 and rank 3 are ..."; may be empty
std::string op_label(const RunTrace& trace, const StuckOp& op);               // "all_reduce 17 of group dp[pp 0 tp 1]"
std::string few_names(const RunTrace& trace, const std::vector<int>& ranks);  // "rank 1, rank 3 and 2 more"
std::string seconds_label(double seconds);                                    // "212 s"
std::string event_label(const RunTrace& trace, const Event& event);   // "forward (chunk 0, microbatch 3, step 7)"
std::string evidence_text(const RunTrace& trace, const StuckOp& op);  // how far its members are
// Adds where the host of the members stands, the fewest first, and what the times rest on.
void add_details(std::vector<std::string>& evidence, const HangScan& scan, const StuckOp& op);
std::string longest_wait(const HangScan& scan);           // the wait nearest to its deadline; "" where none is near
std::string doing(const HangScan& scan, std::size_t at);  // the last thing it did and its current one

}  // namespace ms::tracepp
