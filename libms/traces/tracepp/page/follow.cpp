#include "tracepp/page/follow.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tracepp/page/curves.h"
#include "tracepp/page/page.h"
#include "tracepp/read/command.h"

namespace ms::tracepp {
namespace {

constexpr double kEvery_s = 2;     // files are looked at
constexpr double kVisited_s = 30;  // a page asks every two seconds; a browser may slow down one that nobody sees

double interval_s(double took_s) { return std::max(kEvery_s, took_s / kReadingShare); }

bool is_over(RunState state) { return state != RunState::cut_off && state != RunState::hang; }

}  // namespace

FollowedRun::FollowedRun(std::vector<std::string> paths, ExportOptions asked, Clock& clock, std::string cluster)
    : paths_(std::move(paths)), asked_(std::move(asked)), clock_(clock), cluster_(std::move(cluster)) {}

void FollowedRun::begin(const std::function<void(const RunTrace&)>& check) {
  const double begin_s = clock_.now_s();
  const FilesSeen files = look();  // before they are read: what grows meanwhile is new
  RunTrace trace = read_with_progress(named_runs(paths_).traces);
  check(trace);
  make_page(trace, files, begin_s);
  visited_s_ = clock_.now_s();
}

void FollowedRun::refresh() {
  const double begin_s = clock_.now_s();
  const Read last = newest();
  {
    const std::lock_guard lock(mutex_);
    if (begin_s < next_look_s_ || begin_s - visited_s_ > kVisited_s) return;
  }
  const FilesSeen files = look();
  const bool is_silent = !is_over(last.state) && silent_s(files) > 2 * last.silent_s + kEvery_s;
  if (files != last.files || is_silent || !last.problem.empty()) {
    try {
      RunTrace trace = read_run(named_runs(paths_).traces);
      make_page(trace, files, begin_s);
    } catch (const Error& error) {  // files of ranks may be half there at this moment
      const std::lock_guard lock(mutex_);
      read_.problem = error.message();
    }
  }
  const double end_s = clock_.now_s();
  next_look_s_ = end_s + interval_s(end_s - begin_s);
}

void FollowedRun::make_page(RunTrace& trace, const FilesSeen& files, double begin_s) {
  const Analysis analysis = analyse(trace, clock_.wall_s());
  const std::uint64_t version = newest().version + 1;
  const std::vector<Curve> curves = read_curves(named_runs(paths_).runs);
  auto page = std::make_shared<const std::string>(
      report_page(trace, analysis, asked_, curves, expected_html_of(trace, analysis), std::to_string(version)));
  const std::lock_guard lock(mutex_);
  read_ = {.page = std::move(page),
           .version = version,
           .state = analysis.hang.state,
           .files = files,
           .at_s = begin_s,
           .took_s = clock_.now_s() - begin_s,
           .silent_s = silent_s(files)};
}

std::string FollowedRun::expected_html_of(const RunTrace& trace, const Analysis& analysis) {
  if (cluster_.empty()) return "";
  if (!expected_ || !expected_->is_current()) expected_.emplace(named_runs(paths_).traces, cluster_);
  return expected_html(expected_->compare_with(trace, analysis));
}

FilesSeen FollowedRun::look() const {
  const NamedRuns named = named_runs(paths_);
  std::vector<std::string> paths = named.traces;
  for (const std::string& run : named.runs) paths.push_back(metrics_of_run(run));
  return look_at_files(paths);
}

double FollowedRun::silent_s(const FilesSeen& files) const { return std::max(0.0, clock_.wall_s() - files.written_s); }

FollowedRun::Read FollowedRun::newest() const {
  const std::lock_guard lock(mutex_);
  return read_;
}

std::shared_ptr<const std::string> FollowedRun::page() {
  const std::lock_guard lock(mutex_);
  visited_s_ = clock_.now_s();
  return read_.page;
}

std::string FollowedRun::state() {
  const Read read = newest();
  const double now_s = clock_.now_s();
  std::string text = fmt::format(
      "The data were read {} ago; the newest file was {} old then. They are read at most every {}: reading takes {}.",
      format_duration(now_s - read.at_s), format_duration(read.silent_s), format_duration(interval_s(read.took_s)),
      format_duration(read.took_s));
  if (!read.problem.empty()) text += fmt::format(" They cannot be read now: {}.", plain_text(read.problem, 500));
  if (read.state == RunState::hang) text += " The run hangs.";
  if (is_over(read.state)) text += fmt::format(" The run is over: {}.", to_string(read.state));
  const bool is_bad = !read.problem.empty() || (read.state != RunState::cut_off && read.state != RunState::ended);
  {
    const std::lock_guard lock(mutex_);
    visited_s_ = now_s;
  }
  return Json{{"version", std::to_string(read.version)}, {"text", text}, {"bad", is_bad}}.dump_ascii();
}

}  // namespace ms::tracepp
