#include "tracepp/commands.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/print.h"
#include "base/text.h"
#include "tracepp/clock/align.h"
#include "tracepp/heat/draw.h"
#include "tracepp/heat/measures.h"
#include "tracepp/read/command.h"
#include "tracepp/read/run_metrics.h"
#include "tracepp/steps/effective.h"

namespace ms::tracepp {
namespace {

HeatMap map_of(const std::string& by, const RunTrace& trace) {
  const Breakdown breakdown = break_down(trace);
  const std::vector<Measure> measures = measures_of(trace, breakdown);
  if (measures.empty()) {
    throw user_error("trace.shape", "no finished step in these traces, or nothing in it that takes time",
                     "ms-tracepp info says what they hold, ms-tracepp hang why a run is stalled");
  }
  if (by == "mesh") return mesh_map(trace, measures);
  return rank_map(trace, measures, measure_effective(trace, breakdown).median_step_s);
}

// Says that the files hold what could not be used; empty: they do not.
std::string problems_note(const RunTrace& trace) {
  std::uint64_t count = 0;
  const std::pair<const std::string, std::uint64_t>* most = nullptr;
  for (const auto& problem : trace.problems) {
    count += problem.second;
    if (most == nullptr || problem.second > most->second) most = &problem;
  }
  if (most == nullptr) return "";
  return fmt::format("{} in the files, most often {}: ms-tracepp info lists them", plural(count, "problem"),
                     plain_text(most->first, 200));
}

HeatMap map_of_traces(const std::string& by, const std::vector<std::string>& paths) {
  RunTrace trace = read_with_progress(paths);
  align(trace, match_operations(trace));
  HeatMap map = map_of(by, trace);
  if (std::string note = problems_note(trace); !note.empty()) map.notes.push_back(std::move(note));
  return map;
}

HeatMap map_of_experts(const std::string& run) {
  const auto loads = newest_expert_loads(run);
  if (!loads) {
    throw user_error("trace.shape",
                     fmt::format("{} has no metrics.jsonl with the load of experts", plain_text(run, 200)),
                     "pass the run.dir of a run with metrics.expert_load_every");
  }
  return expert_map(*loads);
}

int heatmap(const Args& args) {
  const std::string by = args.get("by");
  if (by != "rank" && by != "mesh" && by != "experts")
    throw user_error("cli.value", fmt::format("--by '{}' is not known: rank, mesh, experts", by));
  const HeatMap map =
      by == "experts" ? map_of_experts(args.list("PATH").front()) : map_of_traces(by, args.list("PATH"));
  const Screen screen = output_screen();
  write_painted(terminal_map(map, screen), screen.colours);
  return 0;
}

}  // namespace

Command heatmap_command() {
  return {.name = "heatmap",
          .summary = "show the heat maps of the report in the terminal",
          .positionals = {paths_argument()},
          .options = {{"by", "rank|mesh|experts",
                       "rank: ranks by kind of work, relative to the median rank of the stage. mesh: dp by pp, in "
                       "seconds of forward, backward and waiting. experts: the load of experts by layer, the newest "
                       "in the metrics.jsonl of a run.dir (metrics.expert_load_every).",
                       "rank"}},
          .run = heatmap,
          .description =
              "Use it on a login node without a browser. The numbers are those of ms-tracepp report -o. The map fills "
              "the terminal. A cell of several ranks shows the rank furthest from the median, and a line prints the "
              "number of ranks per cell. 1 to 9 mean more than the median, a to i less. Colours mean the same; they "
              "are used if the terminal supports them and NO_COLOR is not set. A map compares ranks but does not find "
              "causes; for these see ms-tracepp stragglers."};
}

}  // namespace ms::tracepp
