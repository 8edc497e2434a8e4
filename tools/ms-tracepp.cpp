// ms-tracepp: analyzes traces of a run: slow ranks, hangs, where the time went. The commands
// are in libms/traces/tracepp/report/commands.cpp and libms/traces/tracepp/export/commands.cpp.
#include "base/cli.h"
#include "base/tool_exits.h"
#include "tracepp/commands.h"
#include "tracepp/findings/finding.h"

namespace {

using namespace ms;  // NOLINT: a main

// The codes of findings.
ManSection findings_section() {
  ManSection section{"findings", {}};
  for (const tracepp::FindingKind& kind : tracepp::finding_kinds()) section.items.emplace_back(kind.name, kind.doc);
  return section;
}

// Made in main(): options that commands share are constants of other files, which are not set before it.
Tool tool() {
  return {
      .name = "ms-tracepp",
      .summary = "analyze traces of a run: slow ranks, hangs, where the time went",
      .commands = {tracepp::report_command(), tracepp::heatmap_command(), tracepp::stragglers_command(),
                   tracepp::hang_command(), tracepp::merge_command(), tracepp::export_command(),
                   tracepp::diff_command(), tracepp::info_command()},
      .description =
          "ms-tracepp reads the traces that every rank of ms-train writes, and those of other programs.\n\n"
          "Ranks and steps are counted from 0, as in ms-trace(5), --steps and MS_FAULT. The log and metrics.jsonl of "
          "ms-train count steps from 1, so step 9 here is step 10 there.",
      .examples = {{"ms-tracepp report runs/default/trace", "Show where the time went:"},
                   {"ms-tracepp report -o report.html runs/default/trace", "Write the report as a page with charts:"},
                   {"ms-tracepp heatmap runs/default/trace", "Show slow ranks as a heat map:"},
                   {"ms-tracepp hang runs/default/trace", "Find the cause of a hang:"},
                   {"ms-tracepp merge -o run.perfetto --steps 100-102 runs/default/trace",
                    "Look at three steps of all ranks at https://ui.perfetto.dev:"}},
      .see_also = {"ms-train(1)", "ms-trace(5)", "ms.toml(5)", "ms-exit(7)"},
      .exit_status = exits_of("ms-tracepp"),
      .sections = {
          tracepp::recording_manual(),
          {"json",
           {{"all",
             "schema is 1. The meaning of a key does not change; new keys may be added. Names that end in _s are in "
             "seconds, in _ns in nanoseconds, in _share fractions of 1. Unknown values are null."},
            {"report",
             "info (see below), clocks (per host: offset, drift, bound), look_first (sentence, hint, cost_share, is: "
             "fault, lost or design, confidence, cause, rank, line), effective, breakdown (mean; ranks; kinds), "
             "bubble, messages (communication: classes, edges, groups, suspects, ranks), critical_path, change_points, "
             "hang. With --expected also expected, in the form of diff: before is expected, after is observed."},
            {"stragglers",
             "slowdown (S, M_W, M_S, launch), suspects (rank, dp, pp, tp, score), findings (code, ranks, first_step, "
             "last_step, cost_s, cost_share of measured_s, fault, confidence, evidence), measured_s (mean step time), "
             "replayed_s (replayed without delays), ideal_s (all equally fast), span_s (from the first operation of a "
             "step to its last, which may overlap the next step), unexplained_share (part of a step explained neither "
             "by the replay nor by the delay of a finding), is_contended (ranks share cores), quiet_confidence "
             "(confidence that there is no fault if there is no finding), steps (step, measured_s, slowdown), left_out "
             "(step, why: steps excluded because a rank lacks operations or has additional ones), steps_left_out "
             "(their number), by_dp, by_stage, by_type. M_W and M_S can be below 0 or above 1, because a faster part "
             "changes the critical path."},
            {"hang",
             "state, sentence, since_s, evidence, suspects (rank, reason, confidence, what it does), groups "
             "(operations that ranks wait in: match, members, missing), missing_ranks, waits (rank, group, sequence), "
             "sources (name, state, stance, sentence), collect, problems (parts of the files that were not used, and "
             "how often)."},
            {"diff",
             "before and after of median_step_s, mean_step_s, parts, axes, kinds, messages, ranks; not_comparable "
             "gives the reason if the comparison is weak."},
            {"info",
             "source, run, mesh, world (ranks of the run), ranks (read), hosts, device, began, last_written, events, "
             "first_step, last_step, first_summed_step, last_summed_step, ended, errors, run_before (the files of the "
             "previous run, if they exist), dropped, problems."}}},
          findings_section(),
          {"glossary",
           {{"busy", "The device computes."},
            {"stalled",
             "The device is in a section but does not compute, because it shares a core or waits within the section."},
            {"idle", "The device waits, and the trace does not contain the reason."},
            {"world",
             "All ranks of the run. Its collectives are all-reduces over all ranks, for example for gradient "
             "clipping."},
            {"hidden, exposed", "Communication time while the device computes, and while it does not."},
            {"wait, transfer", "Communication time until the last member is ready, and from then to its end."},
            {"launch, delay", "The inputs of an operation are ready, but it does not start: the host is late."},
            {"replay", "Steps recomputed from the durations of their operations, without delays."},
            {"S", "Slowdown of a step relative to a step in which no operation is slower than usual for its kind."},
            {"confidence",
             "0 to 1. One half is the threshold of a report; 1 rules out chance. The confidence is lower if the replay "
             "does not explain all of the time. At least nine of ten findings with 0.9 or more are right, on machines "
             "with one to six times as many busy threads as cores."}}},
          {"other programs",
           {{"Flight Recorder",
             "Files that PyTorch writes when a collective times out (TORCH_NCCL_DEBUG_INFO_TEMP_FILE), or the return "
             "values of _dump_nccl_trace and _dump_fr_trace, as pickle or JSON. Only plain data is read from pickles; "
             "no code is executed. The time of a dump is the time stamp of its file, which a copy may change. Gloo "
             "does not record sends and receives, and records a failed collective as completed. If a dump of Gloo is "
             "missing, the result is therefore uncertain."},
            {"Logs of jobs",
             "In logs, hang reads the lines of PyTorch's watchdog: for each rank and group the operation "
             "that timed out, and the newest that was issued and completed. Beside dumps, a log is another source."},
            {"PyTorch profiler",
             "On a GPU, communication consists of NCCL's kernels; on the CPU, of collectives of Gloo, MPI and UCC. The "
             "latter do not name their group, so they can be compared only if the job has one group."}}}}};
}

}  // namespace

int main(int argc, char** argv) { return run_tool("ms-tracepp", tool, argc, argv); }
