// ms-tracepp: what the ranks of a run did, which one was slow, which one hangs, and where the time went. Tables, then
// calls: the thinking is in libms/tracepp.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/cli.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/exit.h"
#include "base/progress.h"
#include "base/text.h"
#include "tracepp/diff.h"
#include "tracepp/export.h"
#include "tracepp/read.h"
#include "tracepp/report.h"
#include "tracepp/report_json.h"
#include "tracepp/report_text.h"

namespace {

using namespace ms;           // NOLINT: a main
using namespace ms::tracepp;  // NOLINT

constexpr int kOk = 0, kFound = static_cast<int>(ExitCode::check_failed);

RunTrace read(const std::vector<std::string>& paths) {
  SystemClock clock;
  std::optional<ms::Progress> progress;
  ReadOptions options;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    if (!progress) progress.emplace("read", total, "bytes", clock);
    progress->update(done);
  };
  return read_run(paths, options);
}

int print(const Args& args, const std::string& json, const std::string& text) {
  std::fputs((args.has("json") ? json : text).c_str(), stdout);
  return kOk;
}

int report(const Args& args) {
  RunTrace trace = read(args.list("PATH"));
  const Analysis analysis = analyse(trace);
  return args.has("json") ? print(args, report_json(trace, analysis), {})
                          : print(args, {}, report_text(trace, analysis));
}

int stragglers(const Args& args) {
  const RunTrace trace = read(args.list("PATH"));
  const Verdict verdict = find_suspects(trace);
  print(args, suspects_json(verdict), suspects_text(verdict) + "\n" + stragglers_text(verdict));
  return args.has("check") && !verdict.findings.empty() ? kFound : kOk;
}

int hang(const Args& args) {
  const RunTrace trace = read(args.list("PATH"));
  const Hang found = find_hang(trace);
  print(args, hang_json(found, trace), hang_text(found, trace));
  const bool stuck = found.state == RunState::hang || found.state == RunState::failed;
  return args.has("check") && stuck ? kFound : kOk;
}

int info(const Args& args) {
  const RunTrace trace = read(args.list("PATH"));
  return print(args, info_json(trace), info_text(trace));
}

struct Read {
  explicit Read(const std::string& path)
      : trace(read({path})),
        matches(match_messages(trace)),
        clocks(align(trace, matches)),
        breakdown(break_down(trace)),
        messages(measure_messages(trace, matches)) {}
  Analysed analysed() const { return {trace, breakdown, messages}; }

  RunTrace trace;
  Matches matches;
  Alignment clocks;
  Breakdown breakdown;
  MessageReport messages;
};

int diff(const Args& args) {
  const Read before(args.get("BEFORE")), after(args.get("AFTER"));
  const Diff found = compare(before.analysed(), after.analysed());
  return args.has("json") ? print(args, dump(diff_json(found)), {}) : print(args, {}, diff_text(found));
}

std::string output_of(const Args& args) {
  if (!args.has("output")) throw user_error("cli.value", "--output FILE is missing");
  return args.get("output");
}

// "12" or "100-200".
ExportOptions chosen(const Args& args) {
  ExportOptions options;
  const auto number = [](const std::string& option, const std::string& text, std::int64_t max) {
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > max) {
      throw user_error("cli.value", fmt::format("--{} '{}' is not a number, or a range as 3-7 is", option, text));
    }
    return value;
  };
  const auto range = [&](const std::string& option, const std::string& text, std::int64_t max) {
    const std::size_t dash = text.find('-');
    const std::int64_t first = number(option, text.substr(0, dash), max);
    const std::int64_t last = dash == std::string::npos ? first : number(option, text.substr(dash + 1), max);
    if (last < first) throw user_error("cli.value", fmt::format("--{} '{}' ends before it begins", option, text));
    return std::pair(first, last);
  };
  if (args.has("steps")) {
    const auto [first, last] = range("steps", args.get("steps"), INT32_MAX);
    options.first_step = static_cast<std::int32_t>(first);
    options.last_step = static_cast<std::int32_t>(last);
  }
  if (args.has("ranks")) {
    for (const std::string& part : split(args.get("ranks"), ',')) {
      const auto [first, last] = range("ranks", part, 1 << 24);
      for (std::int64_t rank = first; rank <= last; ++rank) options.ranks.push_back(static_cast<int>(rank));
    }
  }
  return options;
}

// Puts the ranks on one clock and writes them; says how well that went.
int write(const Args& args, const std::string& format) {
  const std::string path = output_of(args);
  const ExportOptions options = chosen(args);
  const auto write_to = format == "chrome"     ? export_chrome
                        : format == "csv"      ? export_csv
                        : format == "perfetto" ? export_perfetto
                                               : nullptr;
  if (write_to == nullptr) {
    throw user_error("cli.value", fmt::format("--format '{}' is not known: chrome, csv, perfetto", format));
  }
  RunTrace trace = read(args.list("PATH"));
  const Alignment clocks = align(trace, match_messages(trace));
  write_to(trace, path, options);
  fmt::print("{}{}wrote         {}\n", info_text(trace), clocks_text(clocks), path);
  return kOk;
}

int export_run(const Args& args) { return write(args, args.get("format")); }

int merge_run(const Args& args) {
  std::string name = output_of(args);
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  return write(args, name.ends_with(".json") ? "chrome" : name.ends_with(".csv") ? "csv" : "perfetto");
}

const Positional kPaths{.name = "PATH",
                        .doc =
                            "Files of ranks, or directories that hold them: of ms-train, PyTorch profiler (also .gz, "
                            ".zst), PyTorch flight recorder, NDTimeline, StragglerAnalysis, or any Chrome trace.",
                        .many = true};
const Option kJson{.name = "json", .doc = "One JSON document instead of text."};
const Option kCheck{.name = "check", .doc = "Exits with 1 where something was found."};
const Option kOutput{
    .name = "output", .value = "FILE", .doc = "The file to write; gzip where it ends in .gz.", .letter = 'o'};
const Option kSteps{.name = "steps", .value = "A-B", .doc = "Only these steps."};
const Option kRanks{.name = "ranks", .value = "LIST", .doc = "Only these ranks, as 0-7,16."};

const Tool kTool{
    .name = "ms-tracepp",
    .summary = "what the ranks of a run did: which one was slow, which one hangs, where the time went",
    .commands =
        {{.name = "report",
          .summary = "where the time went, and the three things to look at first",
          .positionals = {kPaths},
          .options = {kJson},
          .run = report,
          .description =
              "Puts all ranks on one clock, then does all analyses. The JSON document holds them whole: time "
              "by rank, step and axis, exposed communication, the pipeline's bubble against its schedule, "
              "messages by group with wait, transfer and bandwidth, the critical path, steps from which on "
              "the run was slower."},
         {.name = "stragglers",
          .summary = "which rank, link or stage makes the others wait, and what it costs",
          .positionals = {kPaths},
          .options = {kJson, kCheck},
          .run = stragglers,
          .description =
              "Plays every step again with each operation as fast as its kind usually is, and with parts of the run as "
              "they were. S is how many times as long a step takes as it would if no rank or message were slower than "
              "usual; M_W is the part of that loss which is gone if the slowest 3 % of the workers are as fast as the "
              "others, M_S if the last stage is (Lin et al., arXiv 2505.05713)."},
         {.name = "hang",
          .summary = "who waits for whom, and who does not wait: for a run that stands still or died",
          .positionals = {kPaths},
          .options = {kJson, kCheck},
          .run = hang,
          .description = "Compares the newest operations of all ranks. Works on a run that still hangs: each rank "
                         "writes its file every second. Give all files there are; a rank whose file is missing is a "
                         "finding of its own."},
         {.name = "merge",
          .summary = "write all ranks on one time axis, for chrome://tracing or Perfetto",
          .positionals = {kPaths},
          .options = {kOutput, kSteps, kRanks},
          .run = merge_run,
          .description = "The name of the output says the format: .json is Chrome's, .csv a table, anything else "
                         "Perfetto's own, which is the smallest and opens fastest. Says how well the clocks of the "
                         "hosts could be compared."},
         {.name = "export",
          .summary = "the same in a format that is named",
          .positionals = {kPaths},
          .options =
              {kOutput,
               {.name = "format", .value = "FORMAT", .doc = "chrome, csv or perfetto.", .default_text = "chrome"},
               kSteps,
               kRanks},
          .run = export_run},
         {.name = "diff",
          .summary = "compare two runs: what got slower, and by how much",
          .positionals = {{.name = "BEFORE", .doc = "File or directory of one run."},
                          {.name = "AFTER", .doc = "Of the other one."}},
          .options = {kJson},
          .run = diff},
         {.name = "info",
          .summary = "what the files hold, and what could not be used of them",
          .positionals = {kPaths},
          .options = {kJson},
          .run = info}},
    .description = "Reads the traces that every rank of ms-train writes, and those of other programs.",
    .examples = {{.command = "ms-tracepp report runs/default/trace", .doc = "Where did the time go?"},
                 {.command = "ms-tracepp hang runs/default/trace", .doc = "Why does it stand still?"},
                 {.command = "ms-tracepp merge -o run.perfetto --steps 100-102 runs/default/trace",
                  .doc = "Look at three steps of all ranks at https://ui.perfetto.dev:"}},
    .see_also = {"ms-train(1)", "ms-trace(5)", "ms.toml(5)"}};

}  // namespace

int main(int argc, char** argv) { return run_tool(kTool, argc, argv); }
