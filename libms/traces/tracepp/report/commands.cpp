#include "tracepp/report/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/exit.h"
#include "base/print.h"
#include "tracepp/clock/align.h"
#include "tracepp/findings/diff.h"
#include "tracepp/read/command.h"
#include "tracepp/report/json.h"
#include "tracepp/report/report.h"
#include "tracepp/report/stacks.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr int kOk = 0, kFound = static_cast<int>(ExitCode::check_failed);

Option json_option() { return {.name = "json", .doc = "One JSON document instead of text."}; }

int print(const std::string& text) {
  write_out(text);
  return kOk;
}

constexpr double kCostly = 0.002;  // of a step

bool is_costly_fault(const Finding& finding) {
  return is_fault(finding) && finding.doubt.empty() && finding.cost_share >= kCostly;
}

int stragglers(const Args& args) {
  const Diagnosis diagnosis = find_suspects(read_with_progress(args.list("PATH")));
  print(args.has("json") ? suspects_json(diagnosis) : suspects_text(diagnosis) + "\n" + stragglers_text(diagnosis));
  return args.has("check") && std::ranges::any_of(diagnosis.findings, is_costly_fault) ? kFound : kOk;
}

int hang(const Args& args) {
  const RunTrace trace = read_with_progress(args.list("PATH"));
  const Hang found = find_hang(trace, SystemClock().wall_s());
  print(args.has("json") ? hang_json(found, trace)
                         : hang_text(found, trace) + suspect_stacks(args.list("PATH"), found));
  const bool is_well = found.state == RunState::ended || found.state == RunState::cut_off;
  return args.has("check") && !is_well ? kFound : kOk;
}

int info(const Args& args) {
  const RunTrace trace = read_with_progress(args.list("PATH"));
  return print(args.has("json") ? info_json(trace) : info_text(trace));
}

// A run on one clock, and what diff compares of it.
struct AnalysedRun {
  explicit AnalysedRun(const std::string& path)
      : trace(read_with_progress({path})),
        matches(match_operations(trace)),
        clocks(align(trace, matches)),
        breakdown(break_down(trace)),
        comms(measure_communication(trace, matches)) {}
  Analysed analysed() const { return {trace, breakdown, comms}; }

  RunTrace trace;
  Matches matches;
  Alignment clocks;
  Breakdown breakdown;
  CommReport comms;
};

int diff(const Args& args) {
  const AnalysedRun before(args.get("BEFORE")), after(args.get("AFTER"));
  const Diff found = compare(before.analysed(), after.analysed());
  return print(args.has("json") ? dump(diff_json(found)) : diff_text(found));
}

}  // namespace

Command stragglers_command() {
  return {
      .name = "stragglers",
      .summary = "which rank, link or stage makes the others wait, and what it costs",
      .positionals = {paths_argument()},
      .options = {json_option(),
                  {.name = "check",
                   .doc = fmt::format("Exits with 1 where something broke and costs at least {} % of a step: {}. How "
                                      "the run is laid out is no fault: {}. A finding in doubt does not count.",
                                      100 * kCostly, finding_names(true), finding_names(false))}},
      .run = stragglers,
      .description =
          "Costs are seconds of a measured step, the mean of all steps; the cost of a single event is in seconds "
          "of the run. The step from which on something was slow is found to within a few steps. A step of "
          "which a rank lacks an operation, or has one that most steps do not have, is left out and named: half a step "
          "would count as a fast one.\n\nWhere traces of ranks or pages of events are missing, cut off or damaged, the "
          "first line says so. A fault of a rank that exchanges data with one without a trace, or a stall right "
          "after events that are lost, is in doubt: its cause may be in what is missing. S is then only told where "
          "the replay takes no longer than the run did.\n\nReplays every step with each operation as fast as its kind "
          "usually is, and "
          "with parts of the run as they were. S is "
          "how many times as long a step takes as it would if no rank or communication were slower than usual; "
          "M_W is the part of that loss which is gone if the slowest 3 % of the workers are as fast as the "
          "others, M_S if the last stage is (Lin et al., arXiv 2505.05713).\n\nTraces of torch.profiler cannot be "
          "replayed, as they do not say how ranks lie on the axes dp, pp and tp. For them, report names a rank that "
          "others wait "
          "for in collectives, if the trace has enough steps to tell it from chance: give it at least eight."};
}

Command hang_command() {
  return {
      .name = "hang",
      .summary = "which ranks wait for which, and which do not wait: for a run that is stalled or died",
      .positionals = {paths_argument()},
      .options = {json_option(),
                  {.name = "check", .doc = "Exits with 1 where the run hangs or failed, or nothing tells."}},
      .run = hang,
      .description =
          "Compares the newest operations of all ranks. Works on a run that still hangs: each rank "
          "writes its file every second. Give all files there are; a rank whose file is missing is a "
          "finding of its own. Where processes of ms-train have left their stacks in run.dir/evidence, those of "
          "the suspects are shown, and what the GPUs of their nodes said.\n\nDumps of PyTorch's Flight Recorder: end "
          "the names of their files with the rank "
          "in the "
          "run, as TORCH_FR_DUMP_TEMP_FILE does. Where nothing tells the rank of a dump, as where names count the "
          "ranks of each node, the file is named instead, with a confidence of at most 50 %. A dump that an earlier "
          "attempt left behind is left out. Where a wait is no "
          "longer than several earlier ones of the same operations, nothing tells it from a hang: dump again in a "
          "minute."};
}

Command diff_command() {
  return {.name = "diff",
          .summary = "compare two runs: what got slower, and by how much",
          .positionals = {{.name = "BEFORE", .doc = "File or directory of one run."},
                          {.name = "AFTER", .doc = "Of the other one."}},
          .options = {json_option()},
          .run = diff};
}

Command info_command() {
  return {.name = "info",
          .summary = "what the files hold, and what could not be used of them",
          .positionals = {paths_argument()},
          .options = {json_option()},
          .run = info};
}

}  // namespace ms::tracepp
