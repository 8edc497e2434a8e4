// The commands of ms-tracepp, each with its options, its manual text and its function; and the section RECORDING of its
// manual: how to make other programs write the files that it reads.
#pragma once

#include "base/cli.h"

namespace ms::tracepp {

// They print.
Command stragglers_command();
Command hang_command();
Command diff_command();
Command info_command();
// They write a file.
Command report_command();
Command heatmap_command();
Command merge_command();
Command export_command();

ManSection recording_manual();

}  // namespace ms::tracepp
