// Implements time_axis of incident.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/escape.h"
#include "base/text.h"
#include "driver/incident.h"

namespace ms::driver {
namespace {

constexpr double kWidth = 1160, kLabels = 150, kRight = 24;  // pixels
constexpr double kLane = 22, kMark = 9, kTop = 26;
constexpr std::size_t kRows = 16;  // of nodes
constexpr double kLeastSpan_s = 4;

class Axis {
 public:
  Axis(const Incident& incident, double now_s) : incident_(incident) {
    const AttemptEntry* const next = incident.next;
    double last_s = std::max(incident.attempt->ended_s, next == nullptr ? 0 : next->began_s);
    if (next != nullptr) last_s = std::max({last_s, next->first_step_s, next->first_step_s == 0 ? next->ended_s : 0});
    double first_s = incident.fault_s;
    for (const Moment& moment : incident.moments) {
      last_s = std::max(last_s, std::min(moment.at_s, now_s));
      if (moment.at_s > incident.fault_s - kBefore_s) first_s = std::min(first_s, moment.at_s);
    }
    const double pad_s = std::max(kLeastSpan_s, last_s - first_s) * 0.06;
    begin_s_ = first_s - 2 * pad_s;
    end_s_ = last_s + pad_s;
  }

  std::string svg() {
    std::string rows;
    double y = kTop;
    const std::set<std::string> all = nodes_of(incident_);
    std::vector<std::string> names(all.begin(), all.end());
    if (names.size() > kRows) names.resize(kRows);
    rows += row("the run", "", y, true);
    for (const std::string& name : names) rows += row(name, name, y, false);
    return fmt::format(
        "<svg class=\"axis\" viewBox=\"0 0 {} {:.0f}\" role=\"img\" aria-label=\"time axis\">\n{}{}</svg>\n", kWidth,
        y + 8, grid(y), rows);
  }

 private:
  static constexpr double kBefore_s = 120;  // the fault: earlier moments are in the list only

  double x(double at_s) const {
    const double part = std::clamp((at_s - begin_s_) / (end_s_ - begin_s_), 0.0, 1.0);
    return kLabels + part * (kWidth - kLabels - kRight);
  }

  std::string grid(double bottom) const {
    const double least_s = (end_s_ - begin_s_) / 8;
    double step_s = std::pow(10, std::floor(std::log10(least_s)));
    for (const double times : {2.0, 5.0, 10.0})
      if (step_s < least_s) step_s = std::pow(10, std::floor(std::log10(least_s))) * times;
    std::string svg;
    for (double at = std::ceil((begin_s_ - incident_.fault_s) / step_s); incident_.fault_s + at * step_s < end_s_;
         ++at) {
      const double place = x(incident_.fault_s + at * step_s);
      svg +=
          fmt::format("<line class=\"tick\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"18\" y2=\"{1:.1f}\"/>", place, bottom);
      svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"12\" text-anchor=\"middle\">{}{}</text>\n", place,
                         at > 0 ? "+" : "", at == 0 ? "last progress" : fmt::format("{:g} s", at * step_s));
    }
    return svg;
  }

  std::string bar(double from_s, double to_s, double y, std::string_view sort, std::string_view text) const {
    if (to_s <= from_s) return "";
    const double left = x(from_s), width = std::max(1.0, x(to_s) - left);
    std::string svg = fmt::format(
        "<rect class=\"bar {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"16\"><title>{}, {}</title></rect>",
        sort, left, y, width, text, format_duration(to_s - from_s));
    constexpr double kLetter = 6.6;
    if (width > kLetter * static_cast<double>(text.size()) + 8)
      svg += fmt::format("<text class=\"on\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", left + 4, y + 12, text);
    return svg + "\n";
  }

  std::string bars(double y) const {
    const AttemptEntry& it = *incident_.attempt;
    std::string svg = bar(std::max(begin_s_, it.began_s), incident_.fault_s, y, "well",
                          fmt::format("attempt {} makes progress", it.number));
    svg += bar(incident_.fault_s, incident_.alarm_s, y, "stalled", "no progress");
    svg += bar(incident_.alarm_s, it.ended_s, y, "ends", "evidence is kept");
    if (incident_.next == nullptr) return svg;
    const AttemptEntry& next = *incident_.next;
    svg += bar(it.ended_s, next.began_s, y, "waits", "checks, waits");
    const double step_s = next.first_step_s > 0 ? next.first_step_s : end_s_;
    svg += bar(next.began_s, step_s, y, "starts", fmt::format("attempt {} starts", next.number));
    return svg + (next.first_step_s > 0 ? bar(step_s, end_s_, y, "well", "makes progress") : "");
  }

  // Draws a row, and moves `y` below it. Marks that would overlap come in lanes.
  std::string row(const std::string& label, const std::string& node, double& y, bool is_run) {
    const double top = y;
    std::string svg = fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLabels - 10, top + 14,
                                  page_name(label));
    if (is_run) {
      svg += bars(top);
      y += kLane;
    }
    std::vector<double> lanes;  // where each is free again
    for (std::size_t i = 0; i < incident_.moments.size(); ++i) {
      const Moment& it = incident_.moments[i];
      if (it.node != node) continue;
      const double place = x(it.at_s);
      const auto free = std::ranges::find_if(lanes, [&](double until) { return until <= place; });
      const auto lane = static_cast<double>(free - lanes.begin());
      if (free == lanes.end()) lanes.push_back(0);
      lanes[static_cast<std::size_t>(lane)] = place + 2 * kMark + 2;
      const double middle = y + lane * kLane + kMark;
      svg += fmt::format(
          "<g><title>{}: {}</title><circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/><text class=\"on\" "
          "x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text></g>\n",
          safe_html(it.source), safe_html(it.text), to_string(it.sort), place, middle, kMark, place, middle + 4, i + 1);
    }
    y += std::max<double>(lanes.empty() ? 1 : 0, static_cast<double>(lanes.size())) * kLane;
    return svg +
           fmt::format("<line class=\"row\" x1=\"0\" x2=\"{0}\" y1=\"{1:.1f}\" y2=\"{1:.1f}\"/>\n", kWidth, y - 1);
  }

  static std::string page_name(const std::string& name) {
    constexpr std::size_t kLetters = 20;
    return safe_html(name.size() > kLetters ? name.substr(0, kLetters - 1) + "~" : name);
  }

  const Incident& incident_;
  double begin_s_ = 0, end_s_ = 0;
};

}  // namespace

std::string_view to_string(Sort sort) {
  constexpr std::array<std::string_view, 6> kNames{"progress", "output", "evidence", "check", "slurm", "action"};
  return kNames[static_cast<std::size_t>(sort)];
}

std::string time_axis(const Incident& incident, double now_s) { return Axis(incident, now_s).svg(); }

}  // namespace ms::driver
