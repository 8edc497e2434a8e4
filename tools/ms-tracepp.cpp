// ms-tracepp: what the ranks of a run did, which one was slow, which one hangs, and where the time went. The commands
// are in libms/traces/tracepp/report/commands.cpp and libms/traces/tracepp/export/commands.cpp.
#include "base/cli.h"
#include "base/tool_exits.h"
#include "tracepp/export/commands.h"
#include "tracepp/findings/finding.h"
#include "tracepp/heat/commands.h"
#include "tracepp/page/commands.h"
#include "tracepp/read/recording.h"
#include "tracepp/report/commands.h"

namespace {

using namespace ms;  // NOLINT: a main

// The codes of findings.
ManSection findings_section() {
  ManSection section{.title = "findings", .items = {}};
  for (const tracepp::FindingKind& kind : tracepp::finding_kinds()) section.items.emplace_back(kind.name, kind.doc);
  return section;
}

const Tool kTool{
    .name = "ms-tracepp",
    .summary = "what the ranks of a run did: which one was slow, which one hangs, where the time went",
    .commands = {tracepp::report_command(), tracepp::heatmap_command(), tracepp::stragglers_command(),
                 tracepp::hang_command(), tracepp::merge_command(), tracepp::export_command(), tracepp::diff_command(),
                 tracepp::info_command()},
    .description =
        "Reads the traces that every rank of ms-train writes, and those of other programs.\n\n"
        "Ranks and steps are counted from 0, as in ms-trace(5), --steps and MS_FAULT; the log and "
        "metrics.jsonl of ms-train count steps from 1, so that step 9 here is their step 10.",
    .examples = {{.command = "ms-tracepp report runs/default/trace", .doc = "Where did the time go?"},
                 {.command = "ms-tracepp report -o report.html runs/default/trace",
                  .doc = "The same as a page with charts."},
                 {.command = "ms-tracepp heatmap runs/default/trace", .doc = "Which ranks take longer, as a picture?"},
                 {.command = "ms-tracepp report --follow runs/default",
                  .doc = "The same as a page for the browser of another machine, by ssh."},
                 {.command = "ms-tracepp hang runs/default/trace", .doc = "Why is it stalled?"},
                 {.command = "ms-tracepp merge -o run.perfetto --steps 100-102 runs/default/trace",
                  .doc = "Look at three steps of all ranks at https://ui.perfetto.dev:"}},
    .see_also = {"ms-train(1)", "ms-trace(5)", "ms.toml(5)", "ms-exit(7)"},
    .exit_status = exits_of("ms-tracepp"),
    .sections = {
        tracepp::recording_manual(),
        {.title = "json",
         .items = {{"all",
                    "schema is 1; keys do not change their meaning, new ones may come. Names that end in _s are "
                    "seconds, in _ns nanoseconds, in _share parts of 1. What is not known is null."},
                   {"report",
                    "info (as below), clocks (of each host: offset, drift, bound), look_first (sentence, hint, "
                    "cost_share, is: fault, lost or design), effective, breakdown (mean; ranks; kinds), bubble, "
                    "messages (communication: classes, edges, groups, suspects, ranks), critical_path, change_points, "
                    "hang; with --expected, expected: as diff, before expected and after observed."},
                   {"stragglers",
                    "slowdown (S, M_W, M_S, launch), suspects (rank, dp, pp, tp, score), findings (code, ranks, "
                    "first_step, last_step, cost_s, cost_share of measured_s, fault, confidence, evidence), "
                    "measured_s (mean of a step), replayed_s (replayed without delays), ideal_s (if all "
                    "were equally fast), span_s (from the first operation of a step to its last, which may "
                    "overlap the next step), unexplained_share (of a step, that neither the replay nor a delay of a "
                    "finding explains), is_contended (ranks share cores), quiet_confidence (that nothing is at fault "
                    "if no finding says so), steps (step, measured_s, slowdown), left_out (step, why: the steps that "
                    "were not judged, because a rank lacks operations of them or has others), "
                    "steps_left_out (their number), by_dp, by_stage, by_type. M_W and M_S may lie beyond 0 to "
                    "1: mending them moves the critical path elsewhere."},
                   {"hang",
                    "state, sentence, since_s, evidence, suspects (rank, reason, confidence, what it does), groups "
                    "(operations that ranks wait in: match, members, missing), missing_ranks, waits (rank, group, "
                    "sequence), problems (what of the files was not used, and how often)."},
                   {"diff",
                    "before and after of median_step_s, mean_step_s, parts, axes, kinds, messages, ranks; "
                    "not_comparable says why they say little."},
                   {"info",
                    "source, run, mesh, world (ranks of the run), ranks (that were read), hosts, device, began, "
                    "last_written, "
                    "events, first_step, last_step, first_summed_step, last_summed_step, ended, errors, run_before "
                    "(its files), dropped, "
                    "problems."}}},
        findings_section(),
        {.title = "glossary",
         .items =
             {{"busy", "The device computes."},
              {"stalled", "The device is in a section, but does not compute: it shares a core, or waits within it."},
              {"idle", "Nothing in the trace says what the device waits for."},
              {"world", "All ranks of the run; collectives over it are all-reduces over all ranks, as for clipping."},
              {"hidden, exposed", "Of communication time: while the device computed, and while it did not."},
              {"wait, transfer", "Of communication time: until the last member was ready, and from then to its end."},
              {"launch, delay", "All that an operation needs is there, and it does not begin: the host is late."},
              {"replay", "The steps computed again from the durations of their operations, without delays."},
              {"S", "How many times as long a step takes as it would if no operation were slower than its kind."},
              {"confidence",
               "0 to 1: one half is what would just be reported, 1 is far from all chance. What the replay does not "
               "explain lowers it. Of findings with 0.9 and more, at least nine of ten are right on machines with one "
               "to "
               "six times as many busy threads as cores."}}},
        {.title = "other programs",
         .items = {
             {"Flight Recorder",
              "The files that PyTorch writes when a collective times out, or what _dump_nccl_trace and _dump_fr_trace "
              "return: pickles or JSON. Of a pickle, plain data is read and nothing is executed. A dump does not hold "
              "the time of its writing: the time stamp of the file counts, unless the file was copied. Gloo records no "
              "sends and receives, and it records a failed collective as ended. Where a rank left no dump, nothing is "
              "certain."},
             {"PyTorch profiler",
              "On a GPU, NCCL's kernels are the communication. On the CPU, collectives of gloo, MPI and UCC are. They "
              "name no group, so that they can be compared only if the job has one group."}}}}};

}  // namespace

int main(int argc, char** argv) { return run_tool(kTool, argc, argv); }
