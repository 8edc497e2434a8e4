// Completion of command lines by shells, from the table that drives a tool. CMake has every tool print its scripts
// ("ms-train --completion bash") and installs them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cli.h"

namespace ms {

// Returns the script for "bash", "zsh" or "fish"; nullopt for any other shell.
std::optional<std::string> completion_script(const Tool& tool, std::string_view shell);

// The words that the value of an option may be: those of "tcp|mpi" in its table, none of "FILE" or "FILE|RATE": in
// capitals stand names for what the user writes.
std::vector<std::string> value_words(const Option& option);

}  // namespace ms
