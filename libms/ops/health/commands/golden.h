// Golden values: what good nodes reach in the active checks, and nodes that reach less. Pure but for what measures.
//
// Limits: of eight good nodes and more an outlier is what lies below the median by more than four spreads (1.4826 times
// the median absolute deviation, as a share of the median), and by more than 5 percent; of fewer nodes the spread is
// not known, and the limit is 75 percent of the median. A node is accused only where a second measurement says the
// same.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "health/commands/report.h"

namespace ms::health {

struct GoldenRate {
  std::string code = {}, entity = {}, unit = {};
  double median = 0;
  double spread = 0;      // a share of the median
  std::size_t nodes = 0;  // that measured it
  double limit() const;
};
struct Golden {
  std::vector<std::string> nodes = {};
  std::vector<GoldenRate> rates = {};
};

// Learns from the reports of good nodes. Throws Error("golden.node", user) for one that is critical, whose check is
// broken, or that measured nothing: it is no model for others.
Golden learn_golden(const std::vector<Report>& reports);

std::string golden_json(const Golden& golden);
// Throws Error("golden.format", user).
Golden golden_from_json(const std::string& text, const std::string& name);

struct GoldenMiss {
  std::string node = {};
  GoldenRate rate = {};
  double first = 0, second = 0;  // measurements
};
struct GoldenComparison {
  std::size_t nodes = 0;                       // that measured anything
  std::vector<GoldenMiss> accused = {};        // both times below the limit
  std::vector<GoldenMiss> acquitted = {};      // the first time only
  std::vector<std::string> not_measured = {};  // "n3 perf.memory memory: why"; says nothing of the node

  int nagios_status() const;  // 2: less than half of golden; 1: accused; 3: nothing was measured; 0
};

// Runs the checks `only` of level 2 on nodes; reports in their order.
using Measure = std::function<std::vector<Report>(const std::vector<std::string>& nodes, const std::string& only)>;

GoldenComparison compare_golden(const Golden& golden, const std::vector<std::string>& nodes, const Measure& measure);
// Likewise, where the nodes are each other's golden: of the checks `only`. What fewer than three nodes measured is not
// judged.
GoldenComparison compare_peers(const std::vector<std::string>& nodes, const std::string& only, const Measure& measure);

std::string comparison_text(const GoldenComparison& comparison);
std::string comparison_json(const GoldenComparison& comparison);

}  // namespace ms::health
