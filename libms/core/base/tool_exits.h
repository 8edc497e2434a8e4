// The exit codes that mean something of their own in one program: where it does not keep to kExitCodes of exit.h, or
// says more. The manual pages of the programs, ms-exit(7) and ms-train explain print the table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ms {

struct ToolExitRow {
  std::string_view tool;  // "ms-diag"; "others": programs that are not of ms
  int code;
  std::string_view meaning;  // sentences: what happened, and what to do where that is not plain
};

std::span<const ToolExitRow> tool_exits();  // by code, then by tool

// The rows of one tool, as Tool::exit_status takes them.
std::vector<std::pair<int, std::string>> exits_of(std::string_view tool);

}  // namespace ms
