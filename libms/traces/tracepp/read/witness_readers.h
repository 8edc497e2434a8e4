// Reads what is no trace, but tells what ranks do: each function adds a file to RunTrace::witnesses, and returns 0,
// since such a file does not say how many ranks there are.
#pragma once

#include <cstdint>
#include <string_view>

#include "tracepp/read/text_input.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Stacks of processes as py-spy dump, Python's faulthandler, gdb, and the agents of ms-driver write them: one thread of
// each process, the one that runs the program. The rank is that of the text, or of the file's name.
bool is_stack_text(std::string_view beginning, bool is_named);
std::int64_t read_stacks(TextInput& input, RunTrace& trace);

// The output of NCCL's RAS (ncclras, since NCCL 2.24): its text, which lists outliers only, and its JSON.
bool is_ras_output(std::string_view beginning, bool is_named);
std::int64_t read_ras(TextInput& input, RunTrace& trace);

// How far a run got, and when: the status that ms-driver writes from heartbeats, and the files of NCCL's Inspector
// plugin, of which ms-netcheck inspector reads how fast each operation was. The files of all processes are one report.
bool is_driver_status(std::string_view beginning, bool is_named);
std::int64_t read_driver_status(TextInput& input, RunTrace& trace);
bool is_inspector_file(std::string_view beginning, bool is_named);
std::int64_t read_inspector(TextInput& input, RunTrace& trace);

}  // namespace ms::tracepp
