#include "tracepp/export/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/number.h"
#include "base/print.h"
#include "base/text.h"
#include "tracepp/clock/align.h"
#include "tracepp/commands.h"
#include "tracepp/export/export.h"
#include "tracepp/export/sharded_files.h"
#include "tracepp/read/command.h"
#include "tracepp/report/report.h"

namespace ms::tracepp {
namespace {

constexpr int kOk = 0;

// A format that can be written. A file name says one by its ending, also before ".gz".
struct ExportFormat {
  std::string_view name;
  std::vector<std::string_view> endings;
  void (*write)(const RunTrace& trace, const std::string& path, const ExportOptions& options);
  bool is_timeline;  // Perfetto opens it
};
const std::array<ExportFormat, 3> kFormats{{
    {"chrome", {".json"}, export_chrome, true},
    {"csv", {".csv"}, export_csv, false},
    {"perfetto", {".perfetto", ".pftrace"}, export_perfetto, true},
}};

const ExportFormat& format_named(std::string_view name) {
  const auto* const format = std::ranges::find(kFormats, name, &ExportFormat::name);
  if (format != kFormats.end()) return *format;
  throw user_error("cli.value", fmt::format("--format '{}' is not known: chrome, csv, perfetto", name));
}

// The format that a file's name says; nullptr: none.
const ExportFormat* format_of(std::string_view file) {
  if (file.ends_with(".gz")) file.remove_suffix(3);
  for (const ExportFormat& format : kFormats)
    if (std::ranges::any_of(format.endings, [&](std::string_view ending) { return file.ends_with(ending); }))
      return &format;
  return nullptr;
}

// Puts the ranks on one clock, writes them, and prints how well the clocks could be compared.
int write(const Args& args, const ExportFormat& format) {
  const std::string path = output_of(args);
  const ExportOptions options = chosen_events(args);
  RunTrace trace = read_with_progress(args.list("PATH"));
  const std::size_t events = count_chosen(args, trace, options);
  const Alignment clocks = align(trace, match_operations(trace));
  format.write(trace, path, options);
  std::error_code ignored;
  if (path == "-" || !std::filesystem::is_regular_file(path, ignored)) return kOk;  // or a pipe, or a device
  print_out("{}wrote {}, {}, {}{}\n", clocks_text(clocks), path,
            format_size(static_cast<double>(std::filesystem::file_size(path, ignored))), plural(events, "event"),
            format.is_timeline ? ": open it at https://ui.perfetto.dev" : "");
  return kOk;
}

int sharding_number(const Args& args, const std::string& option) {
  if (!args.has(option)) return 0;
  const std::string text = args.get(option);
  const int value = whole_number<int>(text).value_or(0);
  if (value < 1) throw user_error("cli.value", fmt::format("--{} '{}' is not a number from 1 on", option, text));
  return value;
}

// Writes a directory of Perfetto files.
int export_shards(const Args& args) {
  if (args.has("format") && args.get("format") != "perfetto")
    throw user_error("cli.value", fmt::format("--format {} cannot be sharded: perfetto can", args.get("format")));
  const std::string directory = args.get("output");
  if (directory == "-" || format_of(directory) != nullptr)
    throw user_error("cli.value", fmt::format("--output {}: shards are several files", directory),
                     "name a directory, which is made");
  const Sharding sharding{.steps = sharding_number(args, "shard-steps"), .dp = sharding_number(args, "shard-dp")};
  const ExportOptions options = chosen_events(args);
  ShardedFiles files(args.list("PATH"), options);
  check_chosen(args, files.counted(), files.outline().ranks);
  const ShardsWritten written = export_perfetto_shards(files.run(), directory, sharding);
  print_out("{}wrote {} and index.json in {}, {}, the largest {}, {}: open one at https://ui.perfetto.dev\n",
            clocks_text(files.clocks()), plural(written.files, "file"), directory,
            format_size(static_cast<double>(written.bytes)), format_size(static_cast<double>(written.largest_bytes)),
            plural(written.events, "event"));
  if (written.arrow_ends > 0)
    print_out("{} of arrows lead to another file, or to what was not chosen: those are not drawn\n",
              plural(written.arrow_ends, "end"));
  return kOk;
}

int export_run(const Args& args) {
  if (args.has("shard-steps") || args.has("shard-dp")) return export_shards(args);
  const ExportFormat* const by_name = format_of(output_of(args));
  if (!args.has("format")) return write(args, by_name == nullptr ? format_named("chrome") : *by_name);
  const std::string format = args.get("format");
  if (by_name != nullptr && by_name->name != format) {
    throw user_error("cli.value",
                     fmt::format("--format {}, but the name {} says {}", format, args.get("output"), by_name->name),
                     "leave out --format, or rename the file");
  }
  return write(args, format_named(format));
}

int merge_run(const Args& args) {
  const ExportFormat* const by_name = format_of(output_of(args));
  return write(args, by_name == nullptr ? format_named("perfetto") : *by_name);
}

Option output_option() {
  return {.name = "output",
          .value = "FILE",
          .doc =
              "Output file; - is standard output. Its extension selects the format: .json for Chrome, .csv for a "
              "table, .perfetto or .pftrace for Perfetto. Append .gz to compress.",
          .letter = 'o',
          .required = true};
}
}  // namespace

std::string output_of(const Args& args) {
  const std::string path = args.get("output");
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw user_error("cli.value", fmt::format("--output {} is a directory", path), "name the file to write");
  return path;
}

Option steps_option() { return {"steps", "A-B", "Include only these steps."}; }
Option ranks_option() { return {"ranks", "LIST", "Include only these ranks, as in 0-7,16."}; }

ExportOptions chosen_events(const Args& args) {
  ExportOptions options;
  const auto number = [](const std::string& option, const std::string& text, std::int64_t max) {
    const std::int64_t value = whole_number<std::int64_t>(text).value_or(-1);
    if (value < 0 || value > max)
      throw user_error("cli.value", fmt::format("--{} '{}' is not a number, or a range as 3-7 is", option, text));
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

void check_chosen(const Args& args, const ChosenEvents& counted, const std::vector<RankTrace>& ranks) {
  if (counted.events > 0 || (!args.has("steps") && !args.has("ranks"))) return;
  if (counted.of_steps == 0 && args.has("steps")) {
    throw user_error(
        "cli.value",
        fmt::format("no events in steps {}; the trace has {}", args.get("steps"),
                    counted.last_step < 0 ? "none" : fmt::format("{}-{}", counted.first_step, counted.last_step)));
  }
  throw user_error("cli.value", fmt::format("no events of ranks {}; the trace has {}-{}", args.get("ranks"),
                                            ranks.front().rank, ranks.back().rank));
}

std::size_t count_chosen(const Args& args, const RunTrace& trace, const ExportOptions& options) {
  ChosenEvents counted;
  for (const RankTrace& rank : trace.ranks) counted.add(rank, options);
  check_chosen(args, counted, trace.ranks);
  return counted.events;
}

Command merge_command() {
  return {.name = "merge",
          .summary = "write all ranks on one time axis for chrome://tracing or Perfetto",
          .positionals = {paths_argument()},
          .options = {output_option(), steps_option(), ranks_option()},
          .run = merge_run,
          .description =
              "If the name of the output has no known extension, the format is Perfetto's own, which is the smallest "
              "and opens fastest. The command prints the accuracy of the clock alignment between hosts."};
}

Command export_command() {
  return {.name = "export",
          .summary = "like merge, with a choice of format, or split into several files",
          .positionals = {paths_argument()},
          .options = {output_option(),
                      {"format", "chrome|csv|perfetto", "Format (default: from the file name, else chrome)."},
                      steps_option(),
                      ranks_option(),
                      {"shard-steps", "N",
                       "Split a large Perfetto trace: write files of N steps each into the directory --output."},
                      {"shard-dp", "N",
                       "Split by N dp ranks, or by N ranks if the trace has no mesh. A file holds whole replicas of "
                       "the model, so arrows from sends to receives stay inside it."}},
          .run = export_run,
          .description =
              "Each file of a split trace can be opened alone. index.json lists the steps, ranks and size of each "
              "file, and the number of its arrows that begin or end in another file. Collectives over dp have members "
              "in several files. The files concatenated with cat form the whole trace.\n\nTraces of ms-train are read "
              "once to count events and to align clocks with a sample of the steps, and then again for each output "
              "file. Memory holds the events of one output file, or of several small files with a million events "
              "together. An event takes 32 bytes. Traces of other programs are held in memory completely."};
}

}  // namespace ms::tracepp
