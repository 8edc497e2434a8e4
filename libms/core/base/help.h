// The texts of --help, of a tool and of a command, from the table of cli.h: at most 80 columns.
#pragma once

#include <string>

#include "base/cli.h"

namespace ms {

std::string tool_help(const Tool& tool);
std::string command_help(const Tool& tool, const Command& command);

}  // namespace ms
