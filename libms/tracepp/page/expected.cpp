#include "tracepp/page/expected.h"

#include <fmt/format.h>

#include <stdlib.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/escape.h"
#include "base/html.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "tracepp/read/read.h"

namespace ms::tracepp {
namespace {

constexpr double kSimulation_s = 600;  // a simulation of every stage of a large cluster takes seconds
constexpr double kAsExpected = 0.1;    // of a step: the simulator is no more exact than that
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

// ms-train of the same installation, else the one in PATH.
std::string simulator() {
  std::error_code ignored;
  const std::filesystem::path beside =
      std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "ms-train";
  return std::filesystem::exists(beside, ignored) ? beside.string() : "ms-train";
}

std::string config_of(const std::string& path) {
  const std::filesystem::path trace = std::filesystem::weakly_canonical(path);
  for (const std::filesystem::path& directory : {trace, trace.parent_path()}) {
    const std::filesystem::path config = directory / "config.toml";
    if (std::filesystem::is_regular_file(config)) return config.string();
  }
  throw user_error("expected.config", fmt::format("neither {} nor the directory above it has config.toml", path),
                   "--expected needs run.dir of a run of ms-train, or its trace directory");
}

std::string signed_duration(double seconds) { return (seconds < 0 ? "-" : "+") + format_duration(std::abs(seconds)); }

}  // namespace

Expected expect_step(const RunTrace& observed, const Analysis& analysis, const std::string& path,
                     const std::string& cluster) {
  const Scratch scratch;
  const SubprocessResult result = run_subprocess(
      {simulator(), "simulate", config_of(path), "--cluster", cluster, "--trace", scratch.path(), "--steps", "3"},
      {.deadline_s = kSimulation_s});
  if (!result.ok()) {
    throw user_error("expected.simulate", fmt::format("ms-train simulate does not time this run: {}; it says: {}",
                                                      result.describe(), plain_text(result.err, 1000)));
  }
  RunTrace trace = read_run({scratch.path()}, {});
  const Matches matches = match_operations(trace);
  const Breakdown breakdown = break_down(trace);
  const CommReport comms = measure_communication(trace, matches);
  return {.cluster = cluster,
          .diff = compare({trace, breakdown, comms}, {observed, analysis.breakdown, analysis.comms})};
}

std::string expected_sentence(const Expected& expected) {
  const BeforeAfter& step = expected.diff.mean_step_s;
  if (step.before <= 0 || step.after <= 0) return "no step to compare with an expected one";
  const double off = step.change() / step.before;
  std::string text = fmt::format("a step takes {} in the mean, ", format_duration(step.after));
  if (std::abs(off) <= kAsExpected) return text + fmt::format("as expected: {}", format_duration(step.before));
  text += fmt::format("{} ({:.0f} %) {} than the {} expected of {}", format_duration(std::abs(step.change())),
                      100 * std::abs(off), off > 0 ? "more" : "less", format_duration(step.before), expected.cluster);
  if (step.after > kFarOff * step.before || step.before > kFarOff * step.after)
    return text + "; so far apart, the file does not describe these machines, or much else ran on them";
  std::string parts;
  for (const PartDiff& part : expected.diff.parts) {
    if (part.s.change() * off <= 0 || std::abs(part.s.change()) < 0.2 * std::abs(step.change())) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part.part, signed_duration(part.s.change()));
  }
  return text + (parts.empty() ? "" : ": " + parts);
}

std::string expected_text(const Expected& expected) {
  std::string text = expected_sentence(expected) + "\n";
  for (const std::string& why : expected.diff.not_comparable) text += fmt::format("not comparable: {}\n", why);
  TextTable table({{"part of a step"}, {"expected", Align::right}, {"observed", Align::right}, {"", Align::right}});
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
