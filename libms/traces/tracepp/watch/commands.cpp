#include "tracepp/watch/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/print.h"
#include "base/text.h"
#include "tracepp/heat/measures.h"
#include "tracepp/page/follow.h"
#include "tracepp/page/page.h"
#include "tracepp/read/read.h"
#include "tracepp/watch/screen.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kTailBytes = 256 << 10;  // of metrics.jsonl: some hundred steps

std::string metrics_path(const std::string& dir) { return dir + "/metrics.jsonl"; }

MetricsTail read_metrics(const std::string& dir) {
  const MappedFile file(metrics_path(dir));
  const std::size_t begin = file.size_bytes() - std::min(file.size_bytes(), kTailBytes);
  std::string text(file.size_bytes() - begin, '\0');
  file.read(begin, std::as_writable_bytes(std::span(text)));
  return parse_metrics(text, begin > 0);
}

double age_s(const std::string& path) {
  std::error_code ignored;
  const auto written = std::filesystem::last_write_time(path, ignored);
  const std::chrono::duration<double> age = std::filesystem::file_time_type::clock::now() - written;
  return ignored ? 0 : std::max(0.0, age.count());
}

// The state of the traces at this moment.
struct TraceLook {
  std::string text = {};     // lines
  std::string verdict = {};  // the first of them, without numbers that change with every step
  bool is_over = false;
};

TraceLook look_at_traces(const std::string& dir) {
  const std::string path = dir + "/trace";
  if (!std::filesystem::is_directory(path)) return {.text = "no traces in " + path + "\n"};
  RunTrace trace = read_run({path}, {});
  const Analysis analysis = analyse(trace, SystemClock().wall_s());
  TraceLook look;
  look.text = first_text(trace, analysis);
  for (const StepShare& part : shares_of(analysis.breakdown)) {
    if (part.share >= 0.005) look.text += fmt::format("  {:<18} {:5.1f} % of a step\n", part.name, 100 * part.share);
  }
  for (const Mark& mark : marks_of(analysis)) look.verdict += fmt::format("rank {}: {}\n", mark.rank, mark.why);
  look.is_over = analysis.hang.state != RunState::cut_off && analysis.hang.state != RunState::hang;
  if (look.is_over) look.text += fmt::format("the run is over: {}\n", to_string(analysis.hang.state));
  return look;
}

// Follows a run until it is over.
class Watch {
 public:
  Watch(std::string dir, double every_s, bool once) : dir_(std::move(dir)), every_s_(every_s), once_(once) {}

  void run() {
    const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
    while (true) {
      Watched watched{.dir = dir_, .metrics = read_metrics(dir_), .metrics_age_s = age_s(metrics_path(dir_))};
      if (clock_.now_s() >= next_look_s_) look();
      watched.traces = look_.text;
      if (once_) {
        write_out(screen_text(watched));
      } else if (is_terminal) {
        write_screen(screen_text(watched));
      } else {
        print_new(watched);
      }
      std::fflush(stdout);
      if (once_ || look_.is_over) return;
      clock_.sleep_s(every_s_);
    }
  }

 private:
  void look() {
    const double begin_s = clock_.now_s();
    try {
      look_ = look_at_traces(dir_);
    } catch (const Error& error) {  // files of ranks may be half there at this moment
      if (once_) throw;
      look_ = {.text = fmt::format("traces cannot be read now: {}\n", error.message())};
    }
    next_look_s_ = clock_.now_s() + (clock_.now_s() - begin_s) / kReadingShare;
  }

  // For a file: each step once, and what the traces say when it changes.
  void print_new(const Watched& watched) {
    for (const StepMetrics& step : watched.metrics.steps) {
      if (step.step <= last_step_) continue;
      last_step_ = step.step;
      write_out(line_text(step) + "\n");
    }
    if (look_.verdict != last_verdict_ || look_.is_over) write_out(look_.text);
    last_verdict_ = look_.verdict;
  }

  SystemClock clock_;
  std::string dir_;
  double every_s_ = 1;
  bool once_ = false;
  TraceLook look_;
  double next_look_s_ = 0;
  std::int64_t last_step_ = 0;
  std::string last_verdict_;
};

int watch(const Args& args) {
  const std::string dir = args.get("DIR");
  const double every_s = args.has("every") ? args.get_seconds("every") : 1;
  if (!(every_s >= 0.1)) throw user_error("cli.value", "--every is below 0.1s");
  if (!std::filesystem::is_regular_file(metrics_path(dir))) {
    throw user_error("watch.run_dir", fmt::format("{} is not there", metrics_path(dir)),
                     "name run.dir of a run of ms-train that has begun");
  }
  Watch(dir, every_s, args.has("once")).run();
  return 0;
}

}  // namespace

Command watch_command() {
  return {
      .name = "watch",
      .summary = "follow a run: its steps, its loss, what makes it slow",
      .positionals = {{.name = "DIR", .doc = "run.dir of the run, which holds metrics.jsonl and trace/."}},
      .options = {{.name = "every", .value = "DURATION", .doc = "How often the screen is drawn. Default: 1s."},
                  {.name = "once", .doc = "Shows it once."}},
      .run = watch,
      .description =
          "A screen on a terminal, until the run is over or you press Ctrl-C. Elsewhere a line for each step, and "
          "what the traces say whenever they name another rank. Traces are read less often where there are many, so "
          "that reading takes a tenth of the time."};
}

}  // namespace ms::tracepp
