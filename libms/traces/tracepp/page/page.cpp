#include "tracepp/page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <ranges>
#include <span>

#include "base/escape.h"
#include "base/html.h"
#include "base/text.h"
#include "tracepp/export/file.h"
#include "tracepp/heat/measures.h"
#include "tracepp/report/text.h"

namespace ms {

// The files beside this one.
extern const PagePart kReportStyle, kReportDataScript, kReportCanvasScript, kReportStepsScript, kReportCurvesScript,
    kReportExpertsScript, kReportHeatScript, kReportIdleScript, kReportFlameScript, kReportTimelineScript,
    kReportGridScript, kReportMainScript;

namespace tracepp {
namespace {

constexpr std::size_t kMostText = 2000;  // bytes of a sentence

// A view that a script draws.
struct ViewOf {
  std::string_view id, title, doc, keys;
};
constexpr std::string_view kZoomKeys =
    "+ and - zoom, a and d move, Home shows all; so do the wheel, once the chart has the "
    "focus, and dragging. ";
constexpr std::string_view kMeshKeys = "Arrows move along dp and pp, [ and ] along tp.";
constexpr ViewOf kGridView{
    "grid", "The mesh",
    "A plane is a pipeline stage. Colour: what a rank computes more (red) or less (blue) than the "
    "median of its stage. Of the selected rank: its dp group in orange, its tp group in yellow, its "
    "pipeline in green, with activations going down (blue) and gradients up (violet).",
    kMeshKeys};
constexpr ViewOf kHangGridView{
    "grid", "The mesh as it stands",
    "A plane is a pipeline stage. Red: suspect; yellow: waits for others; white: left no trace. "
    "Select a rank to see its last operation, its state and its error.",
    kMeshKeys};
constexpr ViewOf kStepsView{"steps", "Steps", "How long each step took, on the median rank; red: where that changed.",
                            "Arrows choose a step. "};
constexpr ViewOf kCurvesView{"curves", "Loss and speed",
                             "What metrics.jsonl of each run says, by step as ms-train counts them, from 1; of a long "
                             "run means of several steps.",
                             "Left and right choose a step, up and down a run. "};
constexpr ViewOf kExpertsView{
    "experts", "Load of experts",
    "Tokens of each expert of a layer, as a multiple of an even share: red is more, blue less. "
    "An expert that few tokens choose is trained little.",
    "Arrows choose a layer and an expert. "};
constexpr ViewOf kMeshView{
    "mesh", "Stages and replicas",
    "Seconds of a step, the slowest tp rank of each dp and pp: red is more than the median cell, blue "
    "less. A red cell is a slow rank, a red row a slow stage; where others wait, the slow one is blue.",
    kMeshKeys};
constexpr ViewOf kRanksView{
    "ranks", "Ranks by kind of work",
    "What each rank spends more (red) or less (blue) of a step on than the median rank of its stage. "
    "Above: the parts of a step; below, in grey: kinds of work, which overlap.",
    "Arrows choose a rank. "};
constexpr ViewOf kTimelineView{"timeline", "Timeline",
                               "An arrow leads from a send to the end of its receive. Framed in red: never ended. "
                               "Select an operator to see the kernels that it launched, a kernel to see its launch.",
                               "Arrows choose an event. "};

constexpr ViewOf kIdleView{"idle", "Why the device is idle",
                           "Idle time of the selected rank in each step, by cause. Without a device: of the rank.",
                           "Arrows choose a step. "};
constexpr ViewOf kFlameView{"flame", "Where the host is",
                            "The main thread of the selected rank in all steps: Python functions and modules in blue, "
                            "operators in violet, calls of the device's runtime in orange. ",
                            "Arrows choose a function. "};

std::string view_html(const ViewOf& view, bool zooms) {
  const std::string keys = fmt::format("{}{}", zooms ? kZoomKeys : "", view.keys);
  return fmt::format(
      "<section id=\"{0}\" hidden>\n<h2>{1}</h2>\n<p class=\"quiet\">{2} <span class=\"keys\">{3}</span></p>\n"
      "<canvas tabindex=\"0\" role=\"application\" aria-label=\"{1}. {3}\"></canvas>\n"
      "<output aria-live=\"polite\"></output>\n</section>\n",
      view.id, view.title, view.doc, keys);
}

std::string verdict_html(const Analysis& analysis, const std::vector<Advice>& list) {
  std::string html = fmt::format("<p class=\"verdict\">{}</p>\n", safe_html(verdict_text(analysis, list)));
  if (list.empty()) return html;
  html += "<ol class=\"first\">\n";
  for (const Advice& advice : list) {
    html += fmt::format("<li{}>{}", advice.is == Advice::Is::fault ? " class=\"bad\"" : "",
                        page_text(advice.sentence, kMostText));
    if (!advice.hint.empty())
      html += fmt::format(" <span class=\"quiet\">({})</span>", page_text(advice.hint, kMostText));
    html += "</li>\n";
  }
  return html + "</ol>\n";
}

std::string run_html(const RunTrace& trace, const Effective& effective) {
  std::string text = trace.run.empty() ? "A run" : "Run " + page_text(trace.run, 100);
  if (trace.has_mesh) text += fmt::format(" on dp {} x pp {} x tp {}", trace.mesh.dp, trace.mesh.pp, trace.mesh.tp);
  text += fmt::format(": {} traced", plural(trace.ranks.size(), "rank"));
  if (effective.steps > 0)
    text += fmt::format(", {}, {} each in the median", plural(effective.steps, "step"),
                        format_duration(effective.median_step_s));
  return fmt::format("<h1>ms-tracepp report</h1>\n<p class=\"quiet\">{}.</p>\n", text);
}

// A bar of the parts of a step, and a table of them.
std::string parts_html(const Breakdown& breakdown) {
  constexpr std::string_view kColours[] = {"#3b82c4", "#9aa4af", "#c9a227", "#2a9d8f", "#d9792b",
                                           "#7d8590", "#57606a", "#a16207", "#d62828", "#c4cad1"};
  constexpr double kWide = 1200;
  const std::vector<StepShare> shares = shares_of(breakdown);
  if (shares.empty()) return "";
  std::string bar, rows;
  double at = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const StepShare& part = shares[i];
    const std::string_view colour = kColours[i % std::size(kColours)];
    bar += fmt::format("<rect x=\"{:.1f}\" width=\"{:.1f}\" height=\"22\" fill=\"{}\"><title>{}</title></rect>\n", at,
                       part.share * kWide, colour, part.name);
    at += part.share * kWide;
    rows += fmt::format(
        "<tr><td><svg width=\"12\" height=\"12\"><rect width=\"12\" height=\"12\" fill=\"{}\"/></svg> {}</td>"
        "<td>{}</td><td>{:.1f} %</td></tr>\n",
        colour, part.name, format_duration(part.s), 100 * part.share);
  }
  return fmt::format(
      "<section id=\"parts\">\n<h2>Where the time went</h2>\n"
      "<svg viewBox=\"0 0 {0} 22\" width=\"100%\" height=\"22\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-label=\"The parts of a step\">\n{1}</svg>\n"
      "<table>\n<tr><th>part of a step</th><th>mean</th><th>share</th></tr>\n{2}</table>\n</section>\n",
      kWide, bar, rows);
}

std::string axes_html(const Breakdown& breakdown) {
  const StepTime sum = sum_of(breakdown.steps);
  std::string rows;
  for (const GroupAxis axis : kWaitOrder) {
    const AxisTime& time = sum.axis(axis);
    if (time.total_ns == 0) continue;
    const auto mean = [&](std::int64_t ns) {
      return format_duration(seconds(ns) / static_cast<double>(breakdown.steps.size()));
    };
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1f} %</td></tr>\n", trace::to_string(axis),
                        mean(time.total_ns), mean(time.exposed_ns), 100 * time.overlap());
  }
  if (rows.empty()) return "";
  return "<table>\n<tr><th>communication over</th><th>of a step</th><th>exposed</th><th>hidden</th></tr>\n" + rows +
         "</table>\n";
}

std::string experts_html(const trace::ExpertLoads& loads) {
  std::string text = fmt::format("In step {}, of {} with {} each.", loads.step, plural(loads.layers(), "layer"),
                                 plural(loads.experts(), "expert"));
  if (loads.dropped > 0) text += fmt::format(" {:.1f} % of the rows were dropped.", 100 * loads.dropped);
  std::string html = view_html(kExpertsView, true) + fmt::format("<p class=\"quiet\">{}</p>\n", text);
  if (const std::string warning = trace::starving_experts(loads.by_layer); !warning.empty())
    html += fmt::format("<p class=\"bad\">{}.</p>\n", safe_html(warning));
  return html;
}

Json experts_data(const trace::ExpertLoads& loads, Columns& columns) {
  std::vector<float> values;
  for (const std::vector<double>& layer : loads.by_layer) {
    values.insert(values.end(), layer.begin(), layer.end());
    if (layer.empty()) values.resize(values.size() + loads.experts(), std::numeric_limits<float>::quiet_NaN());
  }
  columns.add("experts", std::span<const float>(values));
  return {{"layers", loads.layers()}, {"experts", loads.experts()}};
}

std::string tables_html(const RunTrace& trace, const Analysis& analysis) {
  const std::string text = info_text(trace) + clocks_text(analysis.clocks) + "\n" + effective_text(analysis.effective) +
                           "\n" + breakdown_text(trace, analysis.breakdown, true) + "\n" +
                           bubble_text(analysis.bubble) + "\n" + communication_text(trace, analysis.comms) + "\n" +
                           paths_text(trace, analysis);
  std::string lines;
  for (const auto line : std::views::split(text, '\n'))
    lines += safe_html(std::string_view(line.begin(), line.end())) + "\n";
  return fmt::format(
      "<details id=\"tables\">\n<summary>All tables, as ms-tracepp report --all prints them</summary>\n<pre>{}</pre>\n"
      "</details>\n",
      lines);
}

Json steps_data(const Analysis& analysis) {
  Json events = Json::array();
  const auto add = [&](std::int64_t step, const std::string& text) {
    events.push_back({{"step", step}, {"text", text}});
  };
  for (const ChangePoint& point : analysis.changes.points)
    add(point.step, fmt::format("{} -> {}", format_duration(point.before_s), format_duration(point.after_s)));
  for (const Pause& pause : analysis.changes.pauses)
    add(pause.step, fmt::format("{} once, usually {}", format_duration(pause.step_s), format_duration(pause.usual_s)));
  if (analysis.diagnosis) {
    for (const Finding& finding : analysis.diagnosis->findings)
      if (is_fault(finding))
        add(finding.first_step, fmt::format("{}, rank {}", to_string(finding.code), fmt::join(finding.ranks, " and ")));
  }
  return {{"numbers", analysis.changes.steps}, {"seconds", analysis.changes.step_s}, {"events", std::move(events)}};
}

}  // namespace

std::string report_page(const RunTrace& trace, const Analysis& analysis, const ExportOptions& asked,
                        const PageExtras& extras) {
  const std::vector<Mark> marks = marks_of(analysis);
  Columns columns;
  Json run = measures_data(trace, analysis, columns);
  const mesh::Mesh mesh = mesh_of(trace);
  run["mesh"] = {{"dp", mesh.dp}, {"pp", mesh.pp}, {"tp", mesh.tp}};
  run["knows_mesh"] = trace.has_mesh;
  run["usual_step_s"] = analysis.effective.median_step_s;
  run["steps"] = steps_data(analysis);
  run["curves"] = curves_data(extras.curves, columns);
  if (extras.expert_loads) run["experts"] = experts_data(*extras.expert_loads, columns);
  run["idle"] = idle_data(analysis.idle, columns);
  const ExportOptions shown = choose_timeline(trace, marks, asked);
  run["flame"] = flame_data(trace, shown, columns);
  run["hang"] = hang_data(trace, analysis.hang, columns);
  // The events are most of the page: the other views are drawn before they are there.
  Columns events;
  Json& timeline = run["timeline"] = timeline_data(trace, shown, events);
  timeline["columns"] = events.directory();
  Json& marked = run["marks"] = Json::array();
  for (const Mark& mark : marks) marked.push_back({{"rank", mark.rank}, {"why", mark.why}, {"step", mark.first_step}});
  run["columns"] = columns.directory();
  // The charts begin with the rank of the first answer.
  const std::vector<Advice> advice = look_first(trace, analysis);
  if (!advice.empty() && trace.rank(advice.front().rank) != nullptr) run["rank"] = advice.front().rank;

  const bool hangs = !run["hang"].is_null();
  std::string body = run_html(trace, analysis.effective);
  body += verdict_html(analysis, advice) +
          "<p id=\"problem\" class=\"bad\"></p>\n"
          "<form id=\"search\" hidden><label>Rank <input name=\"rank\" type=\"number\" min=\"0\"></label> "
          "<button>select in all charts</button></form>\n";
  if (hangs) body += view_html(kHangGridView, false);
  body += view_html(kStepsView, true);
  if (!extras.curves.empty()) body += view_html(kCurvesView, true) + curves_html(extras.curves);
  if (extras.expert_loads) body += experts_html(*extras.expert_loads);
  if (trace.has_mesh) body += view_html(kMeshView, false);
  body += view_html(kRanksView, true);
  if (!hangs && trace.has_mesh) body += view_html(kGridView, false);
  body += parts_html(analysis.breakdown) + axes_html(analysis.breakdown) + extras.sections +
          view_html(kIdleView, false) + kernels_html(trace, analysis.kernels) + view_html(kTimelineView, true) +
          view_html(kFlameView, true);
  body += tables_html(trace, analysis) + page_data("run", run) + page_bytes("numbers", gzip(columns.bytes()));
  return html_page({.title = "ms-tracepp report " + plain_text(trace.run, 100),
                    .body = std::move(body),
                    .styles = {&kReportStyle},
                    .scripts = {&kReportDataScript, &kReportCanvasScript, &kReportStepsScript, &kReportCurvesScript,
                                &kReportExpertsScript, &kReportHeatScript, &kReportIdleScript, &kReportFlameScript,
                                &kReportTimelineScript, &kReportGridScript, &kReportMainScript},
                    .late = page_bytes("events", gzip(events.bytes()))});
}

}  // namespace tracepp
}  // namespace ms
