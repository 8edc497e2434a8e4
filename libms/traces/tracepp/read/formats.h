// The formats of trace files, one row each: how a file is recognised, what reads it, and its name in the documentation.
// To add a format, write its TraceReader and add a row in formats.cpp; read_run, the help and the manual use the rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tracepp/read/text_input.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Reads files of one format into one RunTrace, one after the other.
class TraceReader {
 public:
  TraceReader() = default;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;
  virtual ~TraceReader() = default;

  // Adds the ranks of a file; -1 stands for a rank number that is not known. Returns the number of ranks of the whole
  // run, 0 if the file does not say. Records that cannot be read are counted in RunTrace::problems.
  virtual std::int64_t read(TextInput& input) = 0;
};

struct TraceFormat {
  std::string_view doc;        // what writes such files, for the manual; empty: not listed
  std::size_t peek_bytes = 0;  // how much of a file `recognises` needs
  bool (*recognises)(std::string_view beginning, bool is_named);  // is_named: the user named the file itself
  std::unique_ptr<TraceReader> (*make)(RunTrace& trace);          // `trace` outlives it
  std::string_view no_ranks;                                      // why a file of this format gave no ranks
  bool is_log = false;  // of a job: it may lie beside the traces, and tell nothing of its ranks
  // Called once all files of a run are read: before the ranks without a number get one, and at the end; null: nothing.
  void (*before_order)(RunTrace& trace) = nullptr;
  void (*finish)(RunTrace& trace) = nullptr;
};

// All formats, in the order in which a file is compared with them.
std::span<const TraceFormat> trace_formats();
// The format of a file; nullptr: none.
const TraceFormat* recognise(TextInput& input, bool is_named);
// "ms-train, ..., or any Chrome trace".
std::string trace_formats_doc();

}  // namespace ms::tracepp
