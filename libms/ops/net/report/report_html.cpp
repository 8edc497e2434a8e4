#include <algorithm>

#include "base/escape.h"
#include "base/html.h"
#include "net/report/report.h"

namespace ms::net {
namespace {

// 0 is bad (red), 1 is as good as the best (blue-green); for eyes that tell red from green, and those that do not.
std::string colour(double goodness) {
  const double g = std::clamp(goodness, 0.0, 1.0);
  const auto mix = [&](double bad, double good) { return static_cast<int>(bad + (good - bad) * g); };
  return fmt::format("rgb({},{},{})", mix(200, 60), mix(40, 160), mix(40, 170));
}

struct Cells {
  std::size_t n;
  std::vector<double> values;  // negative: none
  explicit Cells(std::size_t nodes) : n(nodes), values(nodes * nodes, -1) {}
  void put(int from, int to, double value) {
    if (value >= 0) values[static_cast<std::size_t>(from) * n + static_cast<std::size_t>(to)] = value;
  }
};

// One square a way; its number is what pointing at it tells.
std::string heat_map(const Checked& checked, const Cells& cells, std::string_view title, std::string_view unit,
                     bool more_is_better) {
  const int side = std::clamp(static_cast<int>(900 / std::max<std::size_t>(1, cells.n)), 3, 36);
  const int margin = 90;
  const int size = margin + side * static_cast<int>(cells.n) + 4;
  double best = -1;
  for (const double value : cells.values)
    if (value >= 0) best = best < 0 ? value : more_is_better ? std::max(best, value) : std::min(best, value);
  std::string svg = fmt::format("<h2>{}</h2>\n<svg width=\"{}\" height=\"{}\" font-size=\"11\">\n", title, size, size);
  const bool labels = side >= 10;
  for (std::size_t i = 0; i < cells.n && labels; ++i) {
    const int middle = margin + side * static_cast<int>(i) + side / 2 + 4;
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", margin - 4, middle,
                       safe_html(checked.nodes[i]));
    svg += fmt::format("<text transform=\"translate({},{}) rotate(-60)\">{}</text>\n", middle - 4, margin - 4,
                       safe_html(checked.nodes[i]));
  }
  for (std::size_t i = 0; i < cells.n; ++i) {
    for (std::size_t j = 0; j < cells.n; ++j) {
      const double value = cells.values[i * cells.n + j];
      const bool none = value < 0;
      const double goodness = none || best <= 0 ? 0 : more_is_better ? value / best : best / std::max(value, 1e-9);
      svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}><title>{} to {}: {}</title></rect>\n",
                         margin + side * static_cast<int>(j), margin + side * static_cast<int>(i), side - 1, side - 1,
                         i == j ? "class=\"self\""
                         : none ? "class=\"none\""
                                : fmt::format("fill=\"{}\"", colour(goodness)),
                         safe_html(checked.nodes[i]), safe_html(checked.nodes[j]),
                         none ? "not measured" : fmt::format("{:.4g} {}", value, unit));
    }
  }
  return svg + "</svg>\n";
}

}  // namespace

std::string as_html(const Checked& checked) {
  Cells gbps(checked.nodes.size()), latency(checked.nodes.size());
  for (const PairResult& r : checked.results) {
    gbps.put(r.a, r.b, r.there.gbps);
    gbps.put(r.b, r.a, r.back.gbps);
    latency.put(r.a, r.b, r.least_us);
    latency.put(r.b, r.a, r.least_us);
  }
  std::string html = "<h1>ms-netcheck</h1>\n";
  const std::vector<Finding> found = findings(checked);
  html += fmt::format("<p>{} nodes, {} rounds, {:.1f} s. {}</p>\n", checked.nodes.size(), checked.rounds,
                      checked.seconds, found.empty() ? "Nothing was found." : "Found:");
  if (!found.empty()) {
    html += "<ul>\n";
    for (const Finding& finding : found) html += fmt::format("<li>{}</li>\n", safe_html(finding.str()));
    html += "</ul>\n";
  }
  constexpr std::size_t kMostDrawn = 256;
  if (checked.nodes.size() > kMostDrawn) {
    html += fmt::format("<p>Heat maps are drawn for up to {} nodes.</p>\n", kMostDrawn);
  } else {
    html += heat_map(checked, gbps, "Bandwidth, from rows to columns", "Gbit/s", true);
    html += heat_map(checked, latency, "Shortest half of a round trip", "us", false);
  }
  return html_page({.title = "ms-netcheck", .body = std::move(html)});
}

}  // namespace ms::net
