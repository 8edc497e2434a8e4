// Manual pages, as mdoc text, from the same tables that drive the programs: command lines (section 1), configuration
// keys (section 5), exit codes (section 7). cmake/ms_man.cmake runs the tools with --man to build the pages. What is
// written here passes "mandoc -Tlint -Wwarning".
#pragma once

#include <span>
#include <string>

#include "base/cli.h"
#include "base/config.h"

namespace ms::man {

// NAME(1): usage, commands with their arguments and options, environment, exit status, examples.
std::string tool_page(const Tool& tool);

// ms.toml(5): every key of every section, from ConfigSchema::reference().
std::string config_page(std::span<const ConfigRow> rows);

// ms-exit(7), from kExitCodes.
std::string exit_page();

}  // namespace ms::man
