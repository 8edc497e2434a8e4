#include "tracepp/commands.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/exit.h"
#include "base/print.h"
#include "tracepp/clock/align.h"
#include "tracepp/findings/diff.h"
#include "tracepp/findings/last_comers.h"
#include "tracepp/read/command.h"
#include "tracepp/report/json.h"
#include "tracepp/report/report.h"
#include "tracepp/report/stacks.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr int kOk = 0, kFound = static_cast<int>(ExitCode::check_failed);

Option json_option() { return {"json", "", "Print one JSON document."}; }

int print(const std::string& text) {
  write_out(text);
  return kOk;
}

constexpr double kCostly = 0.002;  // of a step

bool is_costly_fault(const Finding& finding) {
  return is_fault(finding) && finding.doubt.empty() && finding.cost_share >= kCostly;
}

// Steps of other programs cannot be replayed: who comes last to collectives, with the parts of the step by rank.
int last_comers(const Args& args, RunTrace& trace) {
  const Matches matches = match_operations(trace);
  if (!matches.tie_ranks()) return -1;
  align(trace, matches);
  const Breakdown breakdown = break_down(trace);
  const CommReport comms = measure_communication(trace, matches);
  const std::vector<LateRank> late = late_causes(trace, matches);
  const std::optional<Finding> found = find_last_comer(trace, breakdown, comms, late);
  Json json = last_comers_json(trace, breakdown, comms, found);
  json["late"] = late_causes_json(trace, late);
  print(args.has("json") ? dump(json) : last_comers_text(trace, breakdown, comms, found));
  return args.has("check") && found && is_costly_fault(*found) ? kFound : kOk;
}

int stragglers(const Args& args) {
  RunTrace trace = read_with_progress(args.list("PATH"));
  Diagnosis diagnosis;
  try {
    diagnosis = find_suspects(trace);
  } catch (const Error& error) {
    if (error.kind() != "trace.shape" || trace.records_mesh() || trace.source->is_dump) throw;
    const int result = last_comers(args, trace);
    if (result < 0) throw;
    return result;
  }
  print(args.has("json") ? suspects_json(diagnosis) : suspects_text(diagnosis) + "\n" + stragglers_text(diagnosis));
  return args.has("check") && std::ranges::any_of(diagnosis.findings, is_costly_fault) ? kFound : kOk;
}

int hang(const Args& args) {
  const RunTrace trace = read_with_progress(args.list("PATH"), {.witnesses_suffice = true});
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
        paths(device_paths(trace, matches)),
        comms(measure_communication(trace, matches)) {}
  Analysed analysed() const { return {trace, breakdown, comms}; }
  WorkTotals totals() const { return work_totals(trace, paths, breakdown.steps.size()); }

  RunTrace trace;
  Matches matches;
  Alignment clocks;
  Breakdown breakdown;
  DevicePaths paths;
  CommReport comms;
};

int diff(const Args& args) {
  const AnalysedRun before(args.get("BEFORE")), after(args.get("AFTER"));
  const Diff found = compare(before.analysed(), after.analysed());
  // Without marked steps, nothing tells how much of a run its trace covers.
  const WorkDiff work =
      found.parts.empty() ? WorkDiff{.unknown = "no steps to compare"} : compare_work(before.totals(), after.totals());
  if (!args.has("json")) return print(diff_text(found, work));
  Json json = diff_json(found);
  json["work"] = work_diff_json(work);
  return print(dump(json));
}

}  // namespace

Command stragglers_command() {
  return {
      .name = "stragglers",
      .summary = "find the ranks, links and stages that make others wait, and their cost",
      .positionals = {paths_argument()},
      .options = {json_option(),
                  {"check", "",
                   fmt::format("Exit with 1 if a fault costs at least {} % of a step: {}. Findings about "
                               "the layout of the run are not faults: {}. Doubtful findings do not count.",
                               100 * kCostly, finding_names(true), finding_names(false))}},
      .run = stragglers,
      .description =
          "The command replays every step with the usual duration of each kind of operation, and again with parts "
          "of the run at their measured durations. S is the slowdown of a step relative to a step in which no rank "
          "or communication is slower than usual. M_W is the share of the lost time that disappears if the slowest "
          "3 % of the workers are as fast as the others. M_S is the share that disappears if the last stage is as "
          "fast as the others (Lin et al., arXiv 2505.05713).\n\nCosts are in seconds per measured step, averaged "
          "over all steps; the cost of a single event is in seconds of the run. The step at which a slowdown "
          "starts is accurate to a few steps. A step is excluded and listed if a rank lacks an operation in it, or "
          "has an operation that most steps do not have. An incomplete step would otherwise count as fast.\n\nIf "
          "traces of ranks or pages of events are missing, truncated or damaged, the first line reports it. A "
          "fault is doubtful if its rank exchanges data with a rank without a trace, or if a stall directly "
          "follows lost events, because the cause may be in the missing data. If traces of ranks are missing, S is "
          "printed only if the replayed steps take no longer than the measured ones.\n\nTraces of torch.profiler "
          "cannot be replayed, because they do not mark forwards and backwards. For them, the command names a rank "
          "that others wait for in collectives, if the trace has enough collectives to rule out chance: record at "
          "least eight steps. It also tells what that rank did instead, if the trace records the host: from one "
          "collective of "
          "a group to the next it compares the critical path of the last rank with those of the others. A rank that "
          "waited for others itself is in doubt. The mesh is inferred from the process groups where they fit one mesh "
          "in the order "
          "tp, dp, pp; info tells what it rests on."};
}

Command hang_command() {
  return {
      .name = "hang",
      .summary = "find the ranks that others wait for in a run that hangs or died",
      .positionals = {paths_argument()},
      .options = {json_option(), {"check", "", "Exit with 1 if the run hangs or failed, or if that is unknown."}},
      .run = hang,
      .description =
          "Compares the newest operations of all ranks. It works while the run still hangs, because each rank writes "
          "its file every second. Pass the files of all ranks; a missing file is a finding of its own. If processes of "
          "ms-train left their stacks in run.dir/evidence, the output includes the stacks of the suspects and the "
          "state of the GPUs of their nodes.\n\nNames of PyTorch Flight Recorder dumps must end with the global rank, "
          "as with TORCH_FR_DUMP_TEMP_FILE. If the rank of a dump is unknown, for example because names end with local "
          "ranks, the file is reported instead of the rank, with a confidence of at most 50 %. Dumps of an earlier "
          "attempt are ignored; so are files whose name, or whose directory's, has a lower number than another one's, "
          "such as attempt-1 beside attempt-2, and all that was written before these. A hang cannot be distinguished "
          "from a normal wait while the wait is no longer than several earlier waits of the same operations: dump "
          "again after a minute.\n\nOther sources of the same hang may lie beside the dumps, or be given alone: the "
          "log of the job (*.out, *.err, *.log, or any file that you name), what ncclras prints (as text or with -f "
          "json; two samples some seconds apart tell more than one), the status.json of ms-driver (heartbeats), files "
          "of NCCL's Inspector, and stacks of the ranks (py-spy dump, Python's faulthandler, gdb, or the files that "
          "ms-driver keeps), with the rank at the end of the file's name. Each source is judged by itself. The answer "
          "joins them: sources that agree raise the confidence, sources that contradict each other lower it, and below "
          "50 % no rank is called at fault. The output lists the sources, whether each agrees, and what to collect "
          "next. With --json, fault tells where the cause of a suspect lies: host, network, device, program or "
          "unknown."};
}

Command diff_command() {
  return {
      .name = "diff",
      .summary = "compare two runs: what became slower, and by how much",
      .positionals = {{"BEFORE", "File or directory of one run."}, {"AFTER", "File or directory of the other run."}},
      .options = {json_option()},
      .run = diff,
      .description =
          "If both are traces of torch.profiler that record the host, the command compares their critical paths, "
          "whose parts add up to the step, and names the largest part of the change: kernels, communication, the "
          "data loader, a host that synchronises. The change of which the traces do not show the cause is called "
          "unknown. Tables of kernels, operators and Python lines show calls and time per step of a rank, what is "
          "gone and what is new, and operators that call another one than before."};
}

Command info_command() {
  return {.name = "info",
          .summary = "show the contents of trace files, and what could not be read",
          .positionals = {paths_argument()},
          .options = {json_option()},
          .run = info};
}

}  // namespace ms::tracepp
