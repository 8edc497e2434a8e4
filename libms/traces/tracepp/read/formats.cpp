#include "tracepp/read/formats.h"

#include <array>

#include "tracepp/read/chrome_reader.h"
#include "tracepp/read/collective_numbers.h"
#include "tracepp/read/flight_recorder_reader.h"
#include "tracepp/read/flight_recorder_run.h"
#include "tracepp/read/group_mesh.h"
#include "tracepp/read/nsys_reader.h"
#include "tracepp/read/pipeline_timeline.h"
#include "tracepp/read/trace_reader.h"
#include "tracepp/read/watchdog_log.h"
#include "tracepp/read/witness_readers.h"
#include "unpack/pickle.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kTextBytes = 1 << 16;

template <class Reader>
std::unique_ptr<TraceReader> make(RunTrace& trace) {
  return std::make_unique<Reader>(trace);
}

// Reads files for which a function suffices, since it keeps nothing from one to the next.
template <std::int64_t (*read_file)(TextInput&, RunTrace&)>
class FileReader final : public TraceReader {
 public:
  explicit FileReader(RunTrace& trace) : trace_(trace) {}
  std::int64_t read(TextInput& input) override { return read_file(input, trace_); }

 private:
  RunTrace& trace_;
};

void finish_chrome(RunTrace& trace) {
  if (trace.source->is_pipeline) {
    connect_pipeline(trace);
  } else {
    group_by_order(trace);
    number_collectives(trace);
    infer_mesh(trace);
  }
}

bool is_any_pickle(std::string_view beginning, bool) { return unpack::is_pickle(beginning); }

constexpr std::array<TraceFormat, 11> kFormats{{
    {.doc = "ms-train",
     .peek_bytes = 8,
     .recognises = is_trace_file,
     .make = make<TraceFileReader>,
     .no_ranks = "not a trace"},
    {.doc = "",
     .peek_bytes = 8,
     .recognises = is_any_pickle,
     .make = make<FlightRecorderPickleReader>,
     .no_ranks = "a Flight Recorder dump without operations",
     .before_order = number_dumps,
     .finish = relate_dumps},
    {.doc = "PyTorch flight recorder (pickle or JSON)",
     .peek_bytes = kTextBytes,
     .recognises = is_flight_recorder,
     .make = make<FlightRecorderReader>,
     .no_ranks = "a Flight Recorder dump without operations",
     .before_order = number_dumps,
     .finish = relate_dumps},
    {.doc = "nsys export (SQLite, JSON lines)",
     .peek_bytes = 16,
     .recognises = is_sqlite,
     .make = make<NsysSqliteReader>,
     .no_ranks = "a SQLite database without Nsight Systems' kernels",
     .finish = finish_chrome},
    {.doc = "",
     .peek_bytes = kTextBytes,
     .recognises = is_nsys_json,
     .make = make<NsysReader>,
     .no_ranks = "an export of Nsight Systems without kernels",
     .finish = finish_chrome},
    {.doc = "",
     .peek_bytes = kTextBytes,
     .recognises = is_ras_output,
     .make = make<FileReader<read_ras>>,
     .no_ranks = "output of NCCL's RAS that is not whole"},
    {.doc = "",
     .peek_bytes = kTextBytes,
     .recognises = is_driver_status,
     .make = make<FileReader<read_driver_status>>,
     .no_ranks = "a status of ms-driver that is not whole"},
    {.doc = "",
     .peek_bytes = kTextBytes,
     .recognises = is_inspector_file,
     .make = make<FileReader<read_inspector>>,
     .no_ranks = "a file of NCCL's Inspector without operations"},
    {.doc = "",
     .peek_bytes = kTextBytes,
     .recognises = is_stack_text,
     .make = make<FileReader<read_stacks>>,
     .no_ranks = "stacks without a process of the job"},
    // A file that the user named is taken for a Chrome trace where it is JSON at all.
    {.doc = "PyTorch profiler (also .gz, .zst), NDTimeline, StragglerAnalysis, or any Chrome trace",
     .peek_bytes = kTextBytes,
     .recognises = is_chrome_trace,
     .make = make<ChromeReader>,
     .no_ranks = "JSON without events",
     .finish = finish_chrome},
    // The last one: a file that the user named is taken for a log where it is text at all.
    {.doc = "a job's log with lines of PyTorch's watchdog",
     .peek_bytes = kTextBytes,
     .recognises = is_watchdog_log,
     .make = make<WatchdogLogReader>,
     .no_ranks =
         "not a trace: no line of PyTorch's watchdog names a rank of the run; ms-netcheck nccl-log reads those of NCCL",
     .is_log = true},
}};

}  // namespace

std::span<const TraceFormat> trace_formats() { return kFormats; }

const TraceFormat* recognise(TextInput& input, bool is_named) {
  for (const TraceFormat& format : kFormats)
    if (format.recognises(input.peek(format.peek_bytes), is_named)) return &format;
  return nullptr;
}

std::string trace_formats_doc() {
  std::string text;
  for (const TraceFormat& format : kFormats) {
    if (format.doc.empty()) continue;
    text += text.empty() ? "" : ", ";
    text += format.doc;
  }
  return text;
}

}  // namespace ms::tracepp
