#include "tracepp/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/print.h"
#include "base/text.h"
#include "base/user_path.h"
#include "tracepp/export/commands.h"
#include "tracepp/page/curves.h"
#include "tracepp/page/expected.h"
#include "tracepp/page/page.h"
#include "tracepp/read/command.h"
#include "tracepp/read/read.h"
#include "tracepp/read/run_metrics.h"
#include "tracepp/report/json.h"

namespace ms::tracepp {
namespace {

constexpr int kDone = 0;

std::optional<Expected> expected_of(const Args& args, const std::vector<std::string>& paths, const RunTrace& trace,
                                    const Analysis& analysis) {
  if (!args.has("expected")) return {};
  return compare_with_expected(paths, args.get("expected"), trace, analysis);
}

// Warns of experts that starve; empty: none does.
std::string expert_loads_text(const trace::ExpertLoads& loads) {
  const std::string warning = trace::starving_experts(loads.by_layer);
  return warning.empty() ? "" : fmt::format("\nload of experts in step {}: {}\n", loads.step, warning);
}

// Takes the peak of the devices that the user gave.
void take_peak(const Args& args, RunTrace& trace) {
  if (!args.has("peak-tflops")) return;
  const double tflops = args.get_double("peak-tflops");
  if (!(tflops > 0 && tflops < 1e6)) throw user_error("cli.value", "--peak-tflops: a number above 0 is needed");
  trace.peak_flops = 1e12 * tflops;
}

// Those of the first path's run.
std::optional<trace::ExpertLoads> expert_loads_of(const NamedRuns& named) {
  return newest_expert_loads(named.traces.front());
}

// Writes the page, and prints its first sentences.
int write_page(const Args& args) {
  const std::string path = output_of(args);
  if (path != "-") check_user_file(path);
  const ExportOptions asked = chosen_events(args);
  const NamedRuns named = named_runs(args.list("PATH"));
  RunTrace trace = read_with_progress(named.traces);
  count_chosen(args, trace, asked);
  take_peak(args, trace);
  const Analysis analysis = analyse(trace, SystemClock().wall_s());
  const std::optional<Expected> expected = expected_of(args, named.traces, trace, analysis);
  const std::string page = report_page(trace, analysis, asked,
                                       {.curves = read_curves(named.runs),
                                        .expert_loads = expert_loads_of(named),
                                        .sections = expected ? expected_html(*expected) : ""});
  if (path == "-") {
    write_bytes(page);
    return kDone;
  }
  write_user_file(path, page);
  print_out("{}{}\nwrote {}, {}: open it in a browser\n", first_text(trace, analysis),
            expected ? expected_sentence(*expected) + "\n" : "", path, format_size(static_cast<double>(page.size())));
  return kDone;
}

// Leaves the newest steps, and what belongs to none.
void keep_newest(RunTrace& trace) {
  constexpr std::int64_t kNewest = 100;
  std::int64_t last = kNoStep;
  for (const RankTrace& rank : trace.ranks)
    if (!rank.sums.empty()) last = std::max(last, rank.sums.back().step);
  const auto is_old = [&](std::int64_t step) { return step != kNoStep && step <= last - kNewest; };
  for (RankTrace& rank : trace.ranks) {
    std::erase_if(rank.events, [&](const Event& event) { return is_old(event.step); });
    std::erase_if(rank.sums, [&](const StepSum& sum) { return is_old(sum.step); });
  }
}

// Prints one sentence, or nothing. ms-train asks for it while the run goes on.
int print_brief(const Args& args) {
  if (!args.has("expected")) throw user_error("cli.value", "--brief needs --expected: it is of that");
  const NamedRuns named = named_runs(args.list("PATH"));
  RunTrace trace = read_run(named.traces);
  keep_newest(trace);
  const Analysis analysis = analyse(trace, SystemClock().wall_s());
  write_out(known_sentence(*expected_of(args, named.traces, trace, analysis)));
  return kDone;
}

int report(const Args& args) {
  if (args.has("brief")) {
    for (const char* option : {"json", "output"})
      if (args.has(option))
        throw user_error("cli.value", fmt::format("--brief and --{}: it prints a sentence", option));
    return print_brief(args);
  }
  if (args.has("output")) {
    if (args.has("json")) throw user_error("cli.value", "--json and --output: a page is no JSON document");
    return write_page(args);
  }
  for (const char* option : {"steps", "ranks"})
    if (args.has(option)) throw user_error("cli.value", fmt::format("--{} needs --output: it is of the page", option));
  const NamedRuns named = named_runs(args.list("PATH"));
  RunTrace trace = read_with_progress(named.traces);
  take_peak(args, trace);
  const Analysis analysis = analyse(trace, SystemClock().wall_s());
  const std::optional<Expected> expected = expected_of(args, named.traces, trace, analysis);
  if (args.has("json")) {
    Json json = report_json(trace, analysis);
    if (expected) json["expected"] = diff_json(expected->diff);
    write_out(dump(json));
  } else {
    write_out(report_text(trace, analysis, args.has("all")));
    if (expected) write_out("\n" + expected_text(*expected));
    if (const auto loads = expert_loads_of(named)) write_out(expert_loads_text(*loads));
    if (named.runs.size() > 1) write_out("\n" + curves_text(read_curves(named.runs)));
  }
  return kDone;
}

Option with_doc(Option option, std::string doc) {
  option.doc = std::move(doc);
  return option;
}

}  // namespace

Command report_command() {
  return {
      .name = "report",
      .summary = "show where the time went and the three most important findings",
      .positionals = {paths_argument()},
      .options =
          {{"json", "", "Print one JSON document."},
           {.name = "output",
            .value = "FILE",
            .doc = "Write a self-contained HTML page instead: charts of the steps, heat maps of the ranks, "
                   "a timeline, the mesh.",
            .letter = 'o'},
           {"expected", "CLUSTER",
            "Also compare with the step that ms-train simulate computes for this cluster file, see ms-cluster(5) and "
            "ms-train calibrate. PATH must be run.dir/trace."},
           {"brief", "",
            "With --expected, print only a sentence that compares the newest 100 steps with the expected step, or "
            "nothing if no comparison is possible. ms-train run logs this sentence if run.cluster is set."},
           with_doc(steps_option(), "Steps in the timeline of the page."),
           with_doc(ranks_option(),
                    "Ranks in the timeline of the page, as in 0-7,16. Without --steps and --ranks, the page of "
                    "a large run shows the most informative ones."),
           {"peak-tflops", "TFLOPS",
            "Peak of a device's dense GEMMs in TFLOP/s, the denominator of MFU. Default: known by the device's name."},
           {"all", "",
            "Print all kinds of work instead of the longest, and also the pipeline bubble, communication by group, the "
            "critical path, and when steps became slower; all kernels, kinds of kernels, operators and queues of "
            "streams."}},
      .run = report,
      .description =
          "Aligns the clocks of all ranks, then runs all analyses. The JSON document has the full results: time by "
          "rank, step and axis; exposed communication; the pipeline bubble relative to its schedule; communication by "
          "group with wait, transfer and bandwidth; the critical path; and the steps at which the run became slower. "
          "Traces of torch.profiler also tell why a device is idle: the host synchronises with it (aten::item, "
          "cudaStreamSynchronize, copies to pageable memory), a data loader, a checkpoint, garbage collection, "
          "compilation, launches that come late for another reason, gaps between queued kernels, events. The report "
          "names what the host executed meanwhile: operators, modules and Python lines (record with_stack=True for the "
          "lines). A wait for the device counts only for the time that it blocked the host. Time is unknown if the "
          "trace does not link a kernel with its launch. Without a device, the time of a rank between operators is "
          "reported as outside. The idle time of streams is also counted as Holistic Trace Analysis does: host wait, "
          "kernel wait, other, without the last step. Their critical path leads from the end of a step backwards, "
          "always to "
          "what was waited for last: the kernel before on a stream, another stream, the launch, the host thread, the "
          "last rank of a collective. A step lasts until its work has ended on host and device, and the parts of the "
          "path add up to it. If ranks of a group were not traced, waiting and transfer of its collectives cannot be "
          "told apart: the path calls them unsplit. --all shows for each group and operation how much of it computing "
          "hides. "
          "Kernels that were launched in the recorded steps are listed by "
          "name and kind, with launch delays, queue lengths and the rate of copies; whether a GEMM ran on tensor cores "
          "is known by the kernel's name. With record_shapes=True the report has TFLOP/s, GB/s and the MFU of the "
          "steps: "
          "the FLOPs of GEMMs, convolutions and attention by the shapes of each forward and backward operator, without "
          "recomputation, over the peak of dense 16-bit GEMMs (FP8 operands: of FP8 GEMMs), for operands of other "
          "types "
          "too. MFU is a lower bound if shapes are missing for more than 5 % of the time of such kernels, and withheld "
          "if for more than 80 %. If you pass several run.dir, the traces are those of the first. "
          "The page plots the loss, step time and tokens per second of all of them, from their metrics.jsonl, and the "
          "load "
          "of the first one's experts, by layer (metrics.expert_load_every)."};
}

}  // namespace ms::tracepp
