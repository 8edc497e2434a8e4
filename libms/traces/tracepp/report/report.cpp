#include "tracepp/report/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tracepp/report/json.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

// Sets the what-if analysis of steps, or the reason why there is none: traces of other programs need not have such
// steps.
void find_diagnosis(const RunTrace& trace, Analysis& analysis) {
  try {
    analysis.diagnosis = find_suspects(trace);
  } catch (const Error& error) {
    if (error.kind() != "trace.shape") throw;
    analysis.no_diagnosis = error.message();
  }
}

bool has_work(const Analysis& analysis) {
  const StepTime sum = sum_of(analysis.breakdown.steps);
  return sum.busy_ns + sum.copy_ns > 0 ||
         std::ranges::any_of(sum.axes, [](const AxisTime& axis) { return axis.total_ns > 0; });
}

// Returns false if all events of a rank were taken as one step, for lack of numbers.
bool knows_steps(const Analysis& analysis) {
  return std::ranges::all_of(analysis.breakdown.steps, [](const StepTime& step) { return step.step != kNoStep; });
}

Json clocks_json(const Alignment& clocks) {
  Json hosts = Json::array();
  for (const HostClock& clock : clocks.hosts) {
    hosts.push_back({{"host", clock.host},
                     {"first_rank", clock.first_rank},
                     {"ranks", clock.ranks},
                     {"source", to_string(clock.source)},
                     {"offset_ns", clock.offset_ns},
                     {"drift_ppm", clock.drift_ppm},
                     {"expected_ns", clock.expected_ns},
                     {"bound_ns", clock.bound_ns}});
  }
  const auto spread = [](const EndSpread& of) {
    return Json{{"p50_ns", of.p50_ns}, {"p99_ns", of.p99_ns}, {"max_ns", of.max_ns}, {"ends", of.ends}};
  };
  return {{"trusted", clocks.trusted},       {"doubt", clocks.doubt},         {"bad_probes", clocks.bad_probes},
          {"before", spread(clocks.before)}, {"after", spread(clocks.after)}, {"hosts", hosts}};
}

}  // namespace

Analysis analyse(RunTrace& trace, double now_s) {
  Analysis analysis;
  analysis.matches = match_operations(trace);
  // Reads each rank's own clock only.
  analysis.hang = find_hang(trace, now_s);
  find_diagnosis(trace, analysis);
  analysis.idle = idle_causes(trace);
  analysis.kernels = measure_kernels(trace);
  analysis.clocks = align(trace, analysis.matches);
  analysis.breakdown = break_down(trace);
  analysis.comms = measure_communication(trace, analysis.matches);
  if (!analysis.idle.empty()) analysis.exposed = exposed_communication(trace);
  analysis.late = late_causes(trace, analysis.matches);
  if (!analysis.diagnosis)
    analysis.last_comer = find_last_comer(trace, analysis.breakdown, analysis.comms, analysis.late);
  analysis.bubble = measure_bubble(trace, analysis.matches, analysis.breakdown);
  analysis.device_paths = device_paths(trace, analysis.matches);
  if (!analysis.device_paths.unknown.empty())
    analysis.paths = critical_paths(trace, analysis.matches, analysis.breakdown);
  analysis.changes = find_change_points(trace, analysis.breakdown);
  analysis.effective = measure_effective(trace, analysis.breakdown);
  return analysis;
}

std::string verdict_text(const Analysis& analysis, const std::vector<Advice>& list) {
  constexpr double kSureOfNothing = 0.9;
  constexpr double kMuch = 0.1;  // of the time, lost without a known cause: then something may be wrong
  const bool has_fault = std::ranges::any_of(list, [](const Advice& a) { return a.is == Advice::Is::fault; });
  const bool has_lost =
      std::ranges::any_of(list, [](const Advice& a) { return a.is == Advice::Is::lost && a.cost_share >= kMuch; });
  const bool is_sure =
      analysis.diagnosis && analysis.diagnosis->quiet_confidence >= kSureOfNothing && !analysis.diagnosis->gaps.any();
  if (has_fault || !analysis.diagnosis) {
    if (!list.empty()) return "Look first at";
    return has_work(analysis) ? "Nothing stands out in what can be compared here."
                              : "These traces hold no computing and no communication: nothing can be said.";
  }
  if (has_lost) return "No rank, link or pause is surely at fault. Look first at";
  if (!is_sure) {
    std::string quiet = quiet_text(*analysis.diagnosis);
    quiet[0] = 'N';
    return quiet + (list.empty() ? "." : ". To be faster");
  }
  return list.empty() ? "Nothing is wrong, and nothing costs a hundredth of the time."
                      : "Nothing is wrong: no rank, link or pause stands out. To be faster";
}

std::string first_text(const RunTrace& trace, const Analysis& analysis) {
  const std::vector<Advice> list = look_first(trace, analysis);
  std::string text;
  for (const std::string& line : lines_of(verdict_text(analysis, list), 110)) text += line + "\n";
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::vector<std::string> lines = lines_of(list[i].sentence, 100);
    for (std::size_t l = 0; l < lines.size(); ++l)
      text += l == 0 ? fmt::format("  {}. {}\n", i + 1, lines[l]) : fmt::format("     {}\n", lines[l]);
    if (!list[i].hint.empty()) text += fmt::format("     hint: {}\n", list[i].hint);
  }
  if (const std::string gaps = gaps_text(find_gaps(trace)); !gaps.empty()) {
    for (const std::string& line : lines_of("Not everything was traced: " + gaps + ".", 110)) text += line + "\n";
  }
  if (!trace.other_recordings.empty()) {
    text += fmt::format("Of {} recordings here this is the newest, of {}.\n", trace.other_recordings.size() + 1,
                        plain_text(trace.recording, 200));
  }
  if (const std::string unknown = unknown_device_text(trace); !unknown.empty()) text += unknown + ".\n";
  if (!analysis.no_diagnosis.empty())
    text += fmt::format("No search for slow ranks by replaying steps: {}.\n", plain_text(analysis.no_diagnosis, 300));
  return text;
}

std::string paths_text(const RunTrace& trace, const Analysis& analysis) {
  return analysis.device_paths.unknown.empty() ? device_paths_text(trace, analysis.device_paths)
                                               : critical_path_text(trace, analysis.paths);
}

std::string report_text(const RunTrace& trace, const Analysis& analysis, bool all) {
  std::string text = first_text(trace, analysis) + "\n";
  text += info_text(trace) + clocks_text(analysis.clocks) + "\n";
  if (!knows_steps(analysis)) text += "no steps are known: all events of a rank are taken as one step\n";
  text += effective_text(analysis.effective) + "\n";
  text += breakdown_text(trace, analysis.breakdown, all);
  if (const std::string idle = idle_text(trace, analysis.idle, all); !idle.empty()) text += "\n" + idle;
  if (const std::string kernels = kernels_text(trace, analysis.kernels, all); !kernels.empty()) text += "\n" + kernels;
  if (!all) return analysis.device_paths.unknown.empty() ? text + "\n" + paths_text(trace, analysis) : text;
  return text + "\n" + bubble_text(analysis.bubble) + "\n" + communication_text(trace, analysis.comms) +
         exposed_text(trace, analysis.exposed) + "\n" + paths_text(trace, analysis) + "\n" +
         change_points_text(trace, analysis.changes);
}

Json report_json(const RunTrace& trace, const Analysis& analysis) {
  Json json{{"schema", 1}, {"info", Json::parse(info_json(trace))}, {"clocks", clocks_json(analysis.clocks)}};
  json["look_first"] = Json::array();
  for (const Advice& advice : look_first(trace, analysis)) {
    json["look_first"].push_back({{"cost_share", advice.cost_share},
                                  {"is", to_string(advice.is)},
                                  {"sentence", advice.sentence},
                                  {"hint", advice.hint},
                                  {"confidence", advice.confidence < 0 ? Json(nullptr) : Json(advice.confidence)},
                                  {"cause", advice.cause.empty() ? Json(nullptr) : Json(advice.cause)},
                                  {"rank", advice.rank < 0 ? Json(nullptr) : Json(advice.rank)},
                                  {"line", advice.line.empty() ? Json(nullptr) : Json(advice.line)}});
  }
  json["steps_known"] = knows_steps(analysis);
  json["findings"] = Json::array();
  if (analysis.last_comer) json["findings"].push_back(finding_json(*analysis.last_comer));
  if (analysis.diagnosis)
    for (const Finding& finding : analysis.diagnosis->findings) json["findings"].push_back(finding_json(finding));
  json["effective"] = effective_json(trace, analysis.effective);
  json["breakdown"] = breakdown_json(trace, analysis.breakdown);
  json["idle"] = idle_json(trace, analysis.idle);
  json["kernels"] = kernels_json(trace, analysis.kernels);
  json["bubble"] = bubble_json(analysis.bubble);
  json["messages"] = communication_json(trace, analysis.comms);
  json["critical_path"] = analysis.device_paths.unknown.empty() ? device_paths_json(trace, analysis.device_paths)
                                                                : critical_path_json(trace, analysis.paths);
  json["exposed"] = exposed_json(trace, analysis.exposed);
  json["late"] = late_causes_json(trace, analysis.late);
  json["change_points"] = change_points_json(trace, analysis.changes);
  json["hang"] = Json::parse(hang_json(analysis.hang, trace));
  return json;
}

}  // namespace ms::tracepp
