// The part of a command line that names traces, and reading them with a progress line. For the commands of ms-tracepp.
#pragma once

#include <string>
#include <vector>

#include "base/cli.h"
#include "tracepp/read/read.h"

namespace ms::tracepp {

// "PATH...", with the formats that can be read.
Positional paths_argument();
// read_run, with its progress on standard error.
RunTrace read_with_progress(const std::vector<std::string>& paths, ReadOptions options = {});

}  // namespace ms::tracepp
