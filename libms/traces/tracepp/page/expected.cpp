#include "tracepp/page/expected.h"

#include <fmt/format.h>

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/escape.h"
#include "base/file.h"
#include "base/html.h"
#include "base/own_tool.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "trace/trace_file.h"
#include "tracepp/read/read.h"
#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr double kSimulation_s = 600;  // a simulation of every stage of a large cluster takes seconds
constexpr double kAsExpected = 0.1;    // of a step: the simulator is no more exact than that
constexpr double kVaries = 2;          // times the spread of single steps: a difference below that may be chance
constexpr double kSure = 0.75;         // confidence of a culprit that is named
constexpr std::size_t kMostNamed = 3;  // ranks that are sure
constexpr double kPart = 0.2;          // of the difference: what has less of it is not its cause
constexpr double kStalls = 0.02;       // of a simulated step: its ranks share cores
constexpr double kSingleVaries = 8;    // times that spread: a single step that takes so much longer is not chance
constexpr double kFarOff = 2;          // times as long or as short: then the cluster file describes another machine

// A directory that is gone with the object.
class Scratch {
 public:
  Scratch() {
    std::string path = (std::filesystem::temp_directory_path() / "ms-tracepp-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr)
      throw Error("expected.scratch", ms::Blame::storage, fmt::format("cannot make {}: {}", path, errno_text(errno)));
    path_ = path;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string config_of(const std::string& path) {
  const std::filesystem::path trace = std::filesystem::weakly_canonical(path);
  for (const std::filesystem::path& directory : {trace, trace.parent_path()}) {
    const std::filesystem::path config = directory / "config.toml";
    if (std::filesystem::is_regular_file(config)) return config.string();
  }
  throw user_error("expected.config", fmt::format("neither {} nor the directory above it has config.toml", path),
                   "--expected needs run.dir of a run of ms-train, or its trace directory");
}

// Returns what a fault is, how sure that is, and its host where it is on one.
std::string fault_text(const RunTrace& trace, const Finding& finding) {
  std::set<std::string> hosts;
  for (const int rank : finding.ranks)
    if (const RankTrace* const of = trace.rank(rank); of != nullptr) hosts.insert(of->host);
  const bool on_one = hosts.size() == 1 && !hosts.begin()->empty();
  return fmt::format("{}{}, confidence {:.2f}", finding.evidence, on_one ? ", on " + printable(*hosts.begin(), 80) : "",
                     finding.confidence);
}

// Returns the faults that are sure; empty where none is. A rank that computes longer than its peers is one whatever the
// mean says: they had the same steps, so that what all of them waited for does not hide it. Other faults must explain
// what a step takes more.
std::string culprit_of(const RunTrace& trace, const Diagnosis& diagnosis, double more_s) {
  std::string text;
  std::size_t named = 0;
  for (const Finding& finding : diagnosis.findings) {
    if (named == kMostNamed) break;
    if (!is_fault(finding) || finding.confidence < kSure) continue;
    const bool explains = more_s > 0 && finding.cost_s >= kPart * more_s;
    if (finding.code != FindingCode::slow_rank && (!explains || named > 0)) continue;
    text += (text.empty() ? "" : "; ") + fault_text(trace, finding);
    ++named;
  }
  return text;
}

// Returns why no rank is named.
std::string unknown_of(const Diagnosis& diagnosis) {
  return std::ranges::any_of(diagnosis.findings, is_fault) ? "nothing is sure enough to be named as the cause"
                                                           : quiet_text(diagnosis);
}

double spread_of(const Breakdown& breakdown) {
  std::vector<double> lengths_s;
  for (const StepTime& step : breakdown.steps) lengths_s.push_back(seconds(step.length_ns));
  return robust_spread(std::move(lengths_s)).sigma;
}

// Returns the step that a pause or a late batch made longest, by more than ranks that share cores can; empty: none is.
std::string single_step_of(const Diagnosis& diagnosis, double varies_s) {
  std::vector<double> steps_s = diagnosis.step_s;
  const double least_s = std::max(median(steps_s), kSingleVaries * varies_s);
  const Finding* most = nullptr;
  for (const Finding& finding : diagnosis.findings) {
    if (!is_delay(finding) || finding.first_step != finding.last_step) continue;
    if (most == nullptr || finding.cost_s > most->cost_s) most = &finding;
  }
  if (most == nullptr) return "";
  const double once_s = most->cost_s * static_cast<double>(diagnosis.steps.size());
  if (once_s < least_s) return "";
  const std::string text =
      fmt::format("step {} took {} more than others: {}", most->first_step, format_duration(once_s), most->evidence);
  if (most->ranks.empty() || most->evidence.starts_with("rank ")) return text;
  std::vector<int> ranks = most->ranks;
  std::ranges::sort(ranks);
  return text + fmt::format(", {} {}", ranks.size() == 1 ? "rank" : "ranks", trace::ranks_text(ranks));
}

std::string signed_duration(double seconds) { return (seconds < 0 ? "-" : "+") + format_duration(std::abs(seconds)); }

// About the mean step.
std::string mean_sentence(const Expected& expected) {
  const BeforeAfter& step = expected.diff.mean_step_s;
  if (step.before <= 0 || step.after <= 0) return "no step to compare with an expected one";
  const double off = step.change() / step.before;
  std::string text = fmt::format("a step takes {} in the mean, ", format_duration(step.after));
  if (std::abs(off) <= kAsExpected) return text + fmt::format("as expected: {}", format_duration(step.before));
  text += fmt::format("{} ({:.0f} %) {} than the {} expected of {}", format_duration(std::abs(step.change())),
                      100 * std::abs(off), off > 0 ? "more" : "less", format_duration(step.before), expected.cluster);
  if (step.after > kFarOff * step.before || step.before > kFarOff * step.after)
    return text + "; so far apart, the file does not describe these machines, or much else ran on them";
  if (std::abs(step.change()) < kVaries * expected.varies_s) {
    return text +
           fmt::format("; but single steps vary by {}, so the mean may be chance", format_duration(expected.varies_s));
  }
  std::string parts;
  for (const PartDiff& part : expected.diff.parts) {
    if (part.s.change() * off <= 0 || std::abs(part.s.change()) < kPart * std::abs(step.change())) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part.part, signed_duration(part.s.change()));
  }
  return text + (parts.empty() ? "" : ": " + parts);
}

}  // namespace

Expected compare_with_expected(const std::vector<std::string>& paths, const std::string& cluster,
                               const RunTrace& observed, const Analysis& analysis) {
  if (paths.size() != 1) throw user_error("cli.value", "--expected needs one PATH: run.dir/trace");
  const Scratch scratch;
  const SubprocessResult result = run_subprocess({own_tool("ms-train"), "simulate", config_of(paths.front()),
                                                  "--cluster", cluster, "--trace", scratch.path(), "--steps", "3"},
                                                 {.deadline_s = kSimulation_s});
  if (!result.ok()) {
    throw user_error("expected.simulate", fmt::format("ms-train simulate does not time this run: {}; it says: {}",
                                                      result.describe(), plain_text(result.err, 1000)));
  }
  const RunTrace simulated = read_run({scratch.path()}, {});
  const Breakdown breakdown = break_down(simulated);
  const CommReport comms = measure_communication(simulated, match_operations(simulated));
  Expected expected{.cluster = cluster,
                    .diff = compare({simulated, breakdown, comms}, {observed, analysis.breakdown, analysis.comms}),
                    .varies_s = spread_of(analysis.breakdown)};
  join_waits_for_cores(expected.diff);
  name_causes(expected, observed, analysis);
  return expected;
}

void join_waits_for_cores(Diff& diff) {
  const auto stalled = std::ranges::find(diff.parts, "stalled", &PartDiff::part);
  const auto for_tp = std::ranges::find(diff.parts, "waiting for tp", &PartDiff::part);
  if (stalled == diff.parts.end() || for_tp == diff.parts.end()) return;
  if (stalled->s.before < kStalls * diff.mean_step_s.before) return;
  for_tp->part = "waiting for a core or for tp";
  for_tp->s.before += stalled->s.before;
  for_tp->s.after += stalled->s.after;
  diff.parts.erase(stalled);
  std::ranges::stable_sort(diff.parts, std::greater<>{},
                           [](const PartDiff& part) { return std::abs(part.s.change()); });
}

void name_causes(Expected& expected, const RunTrace& observed, const Analysis& analysis) {
  const BeforeAfter& step = expected.diff.mean_step_s;
  const bool is_slower = step.change() > kAsExpected * step.before;
  if (!analysis.diagnosis) {
    if (is_slower) expected.unknown = "which rank it is cannot be known: " + analysis.no_diagnosis;
    return;
  }
  expected.culprit = culprit_of(observed, *analysis.diagnosis, step.change());
  if (expected.culprit.empty()) expected.single_step = single_step_of(*analysis.diagnosis, expected.varies_s);
  if (is_slower && expected.culprit.empty() && expected.single_step.empty())
    expected.unknown = unknown_of(*analysis.diagnosis);
}

std::string expected_sentence(const Expected& expected) {
  std::string text = mean_sentence(expected);
  for (const std::string* part : {&expected.culprit, &expected.single_step, &expected.unknown})
    if (!part->empty()) text += "; " + *part;
  return text;
}

std::string known_sentence(const Expected& expected) {
  const BeforeAfter& step = expected.diff.mean_step_s;
  if (!expected.diff.not_comparable.empty() || step.before <= 0 || step.after <= 0) return "";
  return expected_sentence(expected) + "\n";
}

std::string expected_text(const Expected& expected) {
  std::string text = expected_sentence(expected) + "\n";
  for (const std::string& why : expected.diff.not_comparable) text += fmt::format("not comparable: {}\n", why);
  TextTable table(columns("part of a step|expected>|observed>|>"));
  for (const PartDiff& part : expected.diff.parts) {
    if (part.s.before <= 0 && part.s.after <= 0) continue;
    table.row(
        {part.part, format_duration(part.s.before), format_duration(part.s.after), signed_duration(part.s.change())});
  }
  return text + table.str();
}

std::string expected_html(const Expected& expected) {
  std::string html = fmt::format("<section id=\"expected\">\n<h2>Against the simulator</h2>\n<p>{}</p>\n",
                                 page_text(expected_sentence(expected), 1000));
  for (const std::string& why : expected.diff.not_comparable)
    html += fmt::format("<p class=\"bad\">not comparable: {}</p>\n", page_text(why, 1000));
  html += "<table>\n<tr><th>part of a step</th><th>expected</th><th>observed</th><th>difference</th></tr>\n";
  for (const PartDiff& part : expected.diff.parts) {
    if (part.s.before <= 0 && part.s.after <= 0) continue;
    html +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", safe_html(part.part),
                    format_duration(part.s.before), format_duration(part.s.after), signed_duration(part.s.change()));
  }
  return html + "</table>\n</section>\n";
}

}  // namespace ms::tracepp
