// Implements kernels_html, idle_data and flame_data of page.h: what torch.profiler tells of a device and its host.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/escape.h"
#include "base/html.h"
#include "base/text.h"
#include "tracepp/page/page.h"
#include "tracepp/report/text.h"
#include "tracepp/steps/host_threads.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostRows = 25;
constexpr std::size_t kMostDepth = 40, kMostNodes = 4000;  // of a rank's flame graph
constexpr std::size_t kFlameName = 80;                     // bytes

std::string table_html(const ReportTable& table) {
  std::string html = "<table>\n<tr>";
  for (const Column& column : table.columns) html += "<th>" + safe_html(column.title) + "</th>";
  for (const std::vector<std::string>& row : table.rows) {
    html += "</tr>\n<tr>";
    for (const std::string& cell : row) html += "<td>" + safe_html(cell) + "</td>";
  }
  return table.rows.empty() ? "" : html + "</tr>\n</table>\n";
}

// The stacks of the main thread, summed: a node is a call path.
class Flame {
 public:
  Flame(const RunTrace& trace, const std::vector<HostRole>& roles, const RankTrace& rank) : trace_(trace) {
    const HostThreads host(trace, roles, rank);
    std::vector<std::size_t> node_of(rank.events.size());
    for (const std::uint32_t at : host.events(host.main())) {
      const std::uint32_t around = host.around(at);
      const std::size_t parent = around == kAbsentEvent ? 0 : node_of[around];
      node_of[at] = parent;
      if (nodes_[parent].depth == kMostDepth) continue;
      const std::size_t node = node_of[at] = child(parent, trace.info(rank.events[at]).name);
      nodes_[node].ns += rank.events[at].duration_ns;
      ++nodes_[node].times;
    }
  }

  // Calls `add(name, depth, begin_ns, ns, times)` for nodes that are large enough to be seen.
  template <typename Add>
  void each(const Add& add) {
    constexpr double kLeast = 0.0005;  // of the whole
    std::int64_t whole = 0;
    for (const auto& [name, node] : nodes_[0].children) whole += nodes_[node].ns;
    left_ = kMostNodes;
    walk(0, 0, 0, static_cast<std::int64_t>(kLeast * static_cast<double>(whole)), add);
  }

 private:
  struct Node {
    std::map<std::uint32_t, std::size_t> children = {};  // by name
    std::int64_t ns = 0;
    std::uint32_t times = 0, depth = 0;
  };
  std::size_t child(std::size_t parent, std::uint32_t name) {
    const auto [at, is_new] = nodes_[parent].children.try_emplace(name, nodes_.size());
    const std::size_t node = at->second;
    if (is_new) nodes_.push_back({.depth = nodes_[parent].depth + 1});
    return node;
  }
  template <typename Add>
  void walk(std::size_t parent, std::uint32_t depth, std::int64_t begin_ns, std::int64_t least_ns, const Add& add) {
    std::vector<std::pair<std::uint32_t, std::size_t>> children(nodes_[parent].children.begin(),
                                                                nodes_[parent].children.end());
    std::ranges::stable_sort(children,
                             [&](const auto& a, const auto& b) { return nodes_[a.second].ns > nodes_[b.second].ns; });
    for (const auto& [name, node] : children) {
      if (nodes_[node].ns <= least_ns || left_ == 0) return;
      --left_;
      add(name, depth, begin_ns, nodes_[node].ns, nodes_[node].times);
      walk(node, depth + 1, begin_ns, least_ns, add);
      begin_ns += nodes_[node].ns;
    }
  }

  const RunTrace& trace_;
  std::vector<Node> nodes_{1};
  std::size_t left_ = 0;
};

}  // namespace

std::string kernels_html(const RunTrace& trace, const std::vector<RankKernels>& ranks) {
  const ReportTable ops = ops_table(trace, ranks, kMostRows);
  if (ops.rows.empty()) return "";
  return fmt::format(
      "<section id=\"kernels\">\n<h2>Kernels and operators</h2>\n<p class=\"quiet\">{}.</p>\n{}{}</section>\n",
      page_text(mfu_text(trace, ranks), 1000), table_html(kernels_table(trace, ranks, kMostRows)), table_html(ops));
}

Json idle_data(const std::vector<RankIdle>& idle, Columns& columns) {
  if (idle.empty()) return nullptr;
  Json causes = Json::array();
  for (std::size_t c = 0; c < kIdleCauses; ++c) causes.push_back(to_string(static_cast<IdleCause>(c)));
  std::vector<std::uint32_t> first{0};
  std::vector<std::int32_t> steps;
  std::vector<float> length, of_cause;
  for (const RankIdle& rank : idle) {
    for (const IdleStep& step : rank.steps) {
      steps.push_back(step.step);
      length.push_back(static_cast<float>(seconds(step.length_ns)));
      for (const std::int64_t ns : step.ns) of_cause.push_back(static_cast<float>(seconds(ns)));
    }
    first.push_back(static_cast<std::uint32_t>(steps.size()));
  }
  columns.add("idle.first", std::span<const std::uint32_t>(first));
  columns.add("idle.step", std::span<const std::int32_t>(steps));
  columns.add("idle.length", std::span<const float>(length));
  columns.add("idle.seconds", std::span<const float>(of_cause));
  return {{"causes", std::move(causes)}};
}

Json flame_data(const RunTrace& trace, const ExportOptions& shown, Columns& columns) {
  std::vector<std::uint32_t> first{0}, names, depths, times;
  std::vector<double> begins, lengths;
  std::map<std::uint32_t, std::uint32_t> ids;
  Json texts = Json::array();
  const std::vector<HostRole> roles = host_roles(trace);
  for (const RankTrace& rank : trace.ranks) {
    if (shown.has_rank(rank.rank)) {
      Flame(trace, roles, rank)
          .each([&](std::uint32_t name, std::uint32_t depth, std::int64_t begin_ns, std::int64_t ns,
                    std::uint32_t count) {
            const auto [at, is_new] = ids.try_emplace(name, static_cast<std::uint32_t>(ids.size()));
            if (is_new) texts.push_back(plain_text(trace.strings.text(name), kFlameName));
            names.push_back(at->second);
            depths.push_back(depth);
            begins.push_back(seconds(begin_ns));
            lengths.push_back(seconds(ns));
            times.push_back(count);
          });
    }
    first.push_back(static_cast<std::uint32_t>(names.size()));
  }
  if (names.empty()) return nullptr;
  columns.add("flame.first", std::span<const std::uint32_t>(first));
  columns.add("flame.name", std::span<const std::uint32_t>(names));
  columns.add("flame.depth", std::span<const std::uint32_t>(depths));
  columns.add("flame.begin", std::span<const double>(begins));
  columns.add("flame.length", std::span<const double>(lengths));
  columns.add("flame.times", std::span<const std::uint32_t>(times));
  return {{"names", std::move(texts)}};
}

}  // namespace ms::tracepp
