// ms-tracepp: what the ranks of a run did, which one was slow, which one hangs, and where the time went. Tables, then
// calls: the thinking is in libms/tracepp.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
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
  const Analysis analysis = analyse(trace, SystemClock().wall_s());
  return args.has("json") ? print(args, report_json(trace, analysis), {})
                          : print(args, {}, report_text(trace, analysis, args.has("all")));
}

int stragglers(const Args& args) {
  const RunTrace trace = read(args.list("PATH"));
  const Verdict verdict = find_suspects(trace);
  print(args, suspects_json(verdict), suspects_text(verdict) + "\n" + stragglers_text(verdict));
  return args.has("check") && std::ranges::any_of(verdict.findings, is_fault) ? kFound : kOk;
}

int hang(const Args& args) {
  const RunTrace trace = read(args.list("PATH"));
  const Hang found = find_hang(trace, SystemClock().wall_s());
  print(args, hang_json(found, trace), hang_text(found, trace));
  const bool stuck =
      found.state == RunState::hang || found.state == RunState::failed || found.state == RunState::killed;
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
  const std::string path = args.get("output");
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw user_error("cli.value", fmt::format("--output {} is a directory", path), "name the file to write");
  return path;
}

// The format that a file's name says; empty: none.
std::string format_of(std::string_view name) {
  if (name.ends_with(".gz")) name.remove_suffix(3);
  return name.ends_with(".json")                                     ? "chrome"
         : name.ends_with(".csv")                                    ? "csv"
         : name.ends_with(".perfetto") || name.ends_with(".pftrace") ? "perfetto"
                                                                     : "";
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

// How many events are chosen. None is a mistake.
std::size_t count_chosen(const Args& args, const RunTrace& trace, const ExportOptions& options) {
  std::size_t chosen_events = 0, of_steps = 0;
  std::int32_t first = INT32_MAX, last = kNoStep;
  for (const RankTrace& rank : trace.ranks) {
    const auto count = static_cast<std::size_t>(
        std::ranges::count_if(rank.events, [&](const Event& event) { return options.has_step(event.step); }));
    of_steps += count;
    if (options.has_rank(rank.rank)) chosen_events += count;
    for (const Event& event : rank.events) {
      if (event.step == kNoStep) continue;
      first = std::min(first, event.step);
      last = std::max(last, event.step);
    }
  }
  if (chosen_events > 0 || (!args.has("steps") && !args.has("ranks"))) return chosen_events;
  if (of_steps == 0 && args.has("steps")) {
    throw user_error("cli.value", fmt::format("no events in steps {}; the trace has {}", args.get("steps"),
                                              last == kNoStep ? "none" : fmt::format("{}-{}", first, last)));
  }
  throw user_error("cli.value", fmt::format("no events of ranks {}; the trace has {}-{}", args.get("ranks"),
                                            trace.ranks.front().rank, trace.ranks.back().rank));
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
  const std::size_t events = count_chosen(args, trace, options);
  const Alignment clocks = align(trace, match_messages(trace));
  write_to(trace, path, options);
  std::error_code ignored;
  if (path == "-" || !std::filesystem::is_regular_file(path, ignored)) return kOk;  // or a pipe, or a device
  fmt::print("{}wrote {}, {}, {}{}\n", clocks_text(clocks), path,
             format_size(static_cast<double>(std::filesystem::file_size(path, ignored))), plural(events, "event"),
             format == "csv" ? "" : ": open it at https://ui.perfetto.dev");
  return kOk;
}

int export_run(const Args& args) {
  const std::string by_name = format_of(output_of(args));
  if (!args.has("format")) return write(args, by_name.empty() ? "chrome" : by_name);
  const std::string format = args.get("format");
  if (!by_name.empty() && by_name != format) {
    throw user_error("cli.value",
                     fmt::format("--format {}, but the name {} says {}", format, args.get("output"), by_name),
                     "leave --format out, or name the file otherwise");
  }
  return write(args, format);
}

int merge_run(const Args& args) {
  const std::string by_name = format_of(output_of(args));
  return write(args, by_name.empty() ? "perfetto" : by_name);
}

const Positional kPaths{.name = "PATH",
                        .doc =
                            "Files of ranks, or directories that hold them: of ms-train, PyTorch profiler (also .gz, "
                            ".zst), PyTorch flight recorder, NDTimeline, StragglerAnalysis, or any Chrome trace.",
                        .many = true};
const Option kJson{.name = "json", .doc = "One JSON document instead of text."};
const Option kCheck{.name = "check", .doc = "Exits with 1 where the run hangs or failed."};
const Option kCheckFaults{.name = "check",
                          .doc =
                              "Exits with 1 where something broke: slow_rank, slow_link, pause, launch_delay, "
                              "data_stall. How the run is laid out is no fault: last_stage, slow_stage, "
                              "uneven_sequences."};
const Option kOutput{.name = "output",
                     .value = "FILE",
                     .doc =
                         "The file to write, - for standard output. Its name says the format: .json is Chrome's, .csv "
                         "a table, .perfetto "
                         "or .pftrace Perfetto's own; with .gz behind it, gzip.",
                     .letter = 'o'};
const Option kSteps{.name = "steps", .value = "A-B", .doc = "Only these steps."};
const Option kRanks{.name = "ranks", .value = "LIST", .doc = "Only these ranks, as 0-7,16."};

const Tool kTool{
    .name = "ms-tracepp",
    .summary = "what the ranks of a run did: which one was slow, which one hangs, where the time went",
    .commands =
        {{.name = "report",
          .summary = "where the time went, and the three things to look at first",
          .positionals = {kPaths},
          .options = {kJson,
                      {.name = "all",
                       .doc = "All kinds of work, not only the longest; also the pipeline's bubble, messages by group, "
                              "the critical path, and since when steps take longer."}},
          .run = report,
          .description =
              "Puts all ranks on one clock, then does all analyses. The JSON document holds them whole: time "
              "by rank, step and axis, exposed communication, the pipeline's bubble against its schedule, "
              "messages by group with wait, transfer and bandwidth, the critical path, steps from which on "
              "the run was slower."},
         {.name = "stragglers",
          .summary = "which rank, link or stage makes the others wait, and what it costs",
          .positionals = {kPaths},
          .options = {kJson, kCheckFaults},
          .run = stragglers,
          .description =
              "Costs are seconds of a measured step, the mean of all steps; what happened once is told in seconds of "
              "the "
              "run. A step from which on something was so is found to within a few steps.\n\nPlays every step again "
              "with each operation as fast as its kind usually is, and with parts of the run as "
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
          .description = "Where the name of the output does not say the format, it is Perfetto's own, which is the "
                         "smallest and opens fastest. Says how well the clocks of the hosts could be compared."},
         {.name = "export",
          .summary = "the same in a format that is named",
          .positionals = {kPaths},
          .options = {kOutput,
                      {.name = "format",
                       .value = "FORMAT",
                       .doc = "chrome, csv or perfetto. Without it the name of the file says it; where that "
                              "does not, chrome."},
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
    .description =
        "Reads the traces that every rank of ms-train writes, and those of other programs.\n\n"
        "Ranks and steps are counted from 0, as in ms-trace(5), --steps and MS_FAULT; the log and "
        "metrics.jsonl of ms-train count steps from 1, so that step 9 here is their step 10.",
    .examples = {{.command = "ms-tracepp report runs/default/trace", .doc = "Where did the time go?"},
                 {.command = "ms-tracepp hang runs/default/trace", .doc = "Why does it stand still?"},
                 {.command = "ms-tracepp merge -o run.perfetto --steps 100-102 runs/default/trace",
                  .doc = "Look at three steps of all ranks at https://ui.perfetto.dev:"}},
    .see_also = {"ms-train(1)", "ms-trace(5)", "ms.toml(5)", "ms-exit(7)"},
    .exit_status = {{0, "Done."},
                    {1, "With --check: something was found."},
                    {2, "Usage is wrong, or nothing named is a trace that can be read."},
                    {70, "A bug in ms-tracepp."},
                    {74, "What it writes could not be written."}},
    .sections = {
        {.title = "json",
         .items = {{"all",
                    "schema is 1; keys do not change their meaning, new ones may come. Names that end in _s are "
                    "seconds, in _ns nanoseconds, in _share parts of 1. What is not known is null."},
                   {"report",
                    "info (as below), clocks (of each host: offset, drift, bound), look_first (sentence, hint, "
                    "cost_share, is: fault, lost or design), effective, breakdown (mean; ranks; kinds), bubble, "
                    "messages (classes, edges, groups, suspects, ranks), critical_path, change_points, hang."},
                   {"stragglers",
                    "slowdown (S, M_W, M_S, launch), suspects (rank, dp, pp, tp, score), findings (code, ranks, "
                    "first_step, last_step, cost_s, cost_share of measured_s, fault, confidence, evidence), "
                    "measured_s (mean of a step), replayed_s (played again without delays), ideal_s (if all "
                    "were equally fast), span_s (from the first operation of a step to its last, which may "
                    "overlap the next step), steps, by_dp, by_stage, by_type. M_W and M_S may lie beyond 0 to "
                    "1: mending them moves the critical path elsewhere."},
                   {"hang",
                    "state, sentence, since_s, evidence, suspects (rank, reason, confidence, what it does), groups "
                    "(operations that ranks wait in: match, members, missing), missing_ranks, waits (rank, group, "
                    "sequence)."},
                   {"diff",
                    "before and after of median_step_s, mean_step_s, parts, axes, kinds, messages, ranks; "
                    "not_comparable says why they say little."},
                   {"info",
                    "source, run, mesh, world (ranks of the run), ranks (that were read), hosts, device, began, "
                    "last_written, "
                    "events, first_step, last_step, first_summed_step, last_summed_step, ended, errors, dropped, "
                    "problems."}}},
        {.title = "findings",
         .items = {{"slow_rank", "Computes longer than ranks with the same work."},
                   {"slow_link", "Messages of an edge, a group or a rank move data longer than others like them."},
                   {"pause", "A rank or a host stood still in one step."},
                   {"data_stall", "A dp rank waited for its tokens."},
                   {"launch_delay", "Ranks stood still again and again, while all that they needed was there."},
                   {"last_stage, slow_stage", "A pipeline stage has more to compute than the others: no fault."},
                   {"uneven_sequences", "Microbatches are not equally much work: no fault."}}},
        {.title = "glossary",
         .items = {
             {"busy", "The device computes."},
             {"stalled", "The device is in a section, but does not compute: it shares a core, or waits within it."},
             {"idle", "Nothing in the trace says what the device waits for."},
             {"world", "All ranks of the run; messages over it are sums over all, as for clipping."},
             {"hidden, exposed", "Of a message's time: while the device computed, and while it did not."},
             {"wait, transfer", "Of a message's time: until the last member was ready, and from then to its end."},
             {"launch, delay", "All that an operation needs is there, and it does not begin: the host is late."},
             {"replay", "The steps played again from the durations of their operations, without delays."},
             {"S", "How many times as long a step takes as it would if no operation were slower than its kind."},
             {"confidence", "0 to 1: one half is what would just be told, 1 is far from all chance."}}}}};

}  // namespace

int main(int argc, char** argv) { return run_tool(kTool, argc, argv); }
